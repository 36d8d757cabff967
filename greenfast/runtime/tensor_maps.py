"""Tensor maps encoded by the driver (CUDA Driver API, "cuTensorMapEncodeTiled")."""

from __future__ import annotations

import ctypes
from typing import Any

from greenfast.runtime.driver import Driver
from greenfast.runtime.program import MAP_BYTES
from greenfast.search.devices.tensor_map import TensorMap

MOST_MAPS = 256  # of a tensor argument that are kept
# CUtensorMapDataType; 8-bit floats are plain bytes.
TYPES = {
    "uint8": 0,
    "int8": 0,
    "e4m3": 0,
    "e5m2": 0,
    "uint16": 1,
    "int16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "fp16": 6,
    "float32": 7,
    "float64": 8,
    "bf16": 9,
}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
L2_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}  # CUtensorMapL2promotion
FILLS = {"zero": 0, "nan": 1}  # CUtensorMapFloatOOBfill


class EncodedMaps(dict[int, int]):
    """The maps of one tensor argument: where each lies, by the address of its tensor.

    Encoding takes microseconds, and tensors come back to the same addresses. One thread at a time
    uses it: the memory of maps that are forgotten is freed.
    """

    def __init__(self, driver: Driver, tensor_map: TensorMap) -> None:
        super().__init__()
        self._driver, self._map = driver, tensor_map
        self._memory: list[Any] = []
        rank, strides = tensor_map.rank, tensor_map.strides_bytes or (0,)
        self._sizes = (ctypes.c_uint64 * rank)(*tensor_map.sizes)
        self._strides = (ctypes.c_uint64 * len(strides))(*strides)
        self._box = (ctypes.c_uint32 * rank)(*tensor_map.box)
        self._steps = (ctypes.c_uint32 * rank)(*([1] * rank))

    def __missing__(self, address: int) -> int:
        if len(self) >= MOST_MAPS:
            self.clear()
            self._memory.clear()
        memory = (ctypes.c_uint8 * (2 * MAP_BYTES))()
        place = -(-ctypes.addressof(memory) // MAP_BYTES) * MAP_BYTES
        self._encode(place, address)
        self._memory.append(memory)
        self[address] = place
        return place

    def _encode(self, place: int, address: int) -> None:
        """Write the map of the tensor at `address` to the memory at `place`."""
        tensor_map = self._map
        status = self._driver.library.cuTensorMapEncodeTiled(
            ctypes.c_void_p(place),
            TYPES[tensor_map.dtype],
            ctypes.c_uint32(tensor_map.rank),
            ctypes.c_void_p(address),
            self._sizes,
            self._strides,
            self._box,
            self._steps,
            0,  # no interleaving
            SWIZZLES[tensor_map.swizzle_bytes],
            L2_PROMOTIONS[tensor_map.l2_promotion_bytes],
            FILLS[tensor_map.fill],
        )
        if status:
            raise self._driver.failed(status, f"encoding the tensor map {tensor_map.name}")
