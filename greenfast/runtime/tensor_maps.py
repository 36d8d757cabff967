"""Tensor maps encoded by the driver (CUDA Driver API, "cuTensorMapEncodeTiled")."""

from __future__ import annotations

import ctypes

from greenfast.runtime.driver import Driver
from greenfast.search.devices.tensor_map import TensorMap

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


def encode(driver: Driver, tensor_map: TensorMap, place: int, address: int) -> None:
    """Write the map of the tensor at `address` to the memory at `place`."""
    rank = tensor_map.rank
    strides = tensor_map.strides_bytes or (0,)
    status = driver.library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        TYPES[tensor_map.dtype],
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*tensor_map.sizes),
        (ctypes.c_uint64 * len(strides))(*strides),
        (ctypes.c_uint32 * rank)(*tensor_map.box),
        (ctypes.c_uint32 * rank)(*([1] * rank)),
        0,  # no interleaving
        SWIZZLES[tensor_map.swizzle_bytes],
        L2_PROMOTIONS[tensor_map.l2_promotion_bytes],
        FILLS[tensor_map.fill],
    )
    if status:
        raise driver.failed(status, f"encoding the tensor map {tensor_map.name}")
