"""Tensor maps encoded by the driver, as a launch through CuPy takes them. For children only."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from cuda.bindings import driver

MAP_BYTES = 128
_TYPES = {
    "fp16": "FLOAT16",
    "bf16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "e4m3": "UINT8",
    "e5m2": "UINT8",
    "int8": "UINT8",
    "uint8": "UINT8",
    "int16": "UINT16",
    "uint16": "UINT16",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
_L2_PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}
_FILLS = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


class NotEncoded(RuntimeError):
    """The driver refused a tensor map whose numbers were checked."""


def encoded(numbers: Mapping[str, Any], address: int) -> np.void:
    """The 128 bytes of a `CUtensorMap` at `address`; `numbers` as in TensorMap.numbers()."""
    sizes = numbers["sizes"]
    status, tensor_map = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[numbers['dtype']]}"),
        len(sizes),
        address,
        [driver.cuuint64_t(size) for size in sizes],
        # An empty list would be a null pointer, which the driver refuses for a map of one axis.
        [driver.cuuint64_t(stride) for stride in numbers["strides_bytes"] or [0]],
        [driver.cuuint32_t(size) for size in numbers["box"]],
        [driver.cuuint32_t(1) for _ in sizes],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(
            driver.CUtensorMapSwizzle,
            f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[numbers['swizzle_bytes']]}",
        ),
        getattr(
            driver.CUtensorMapL2promotion,
            f"CU_TENSOR_MAP_L2_PROMOTION_{_L2_PROMOTIONS[numbers['l2_promotion_bytes']]}",
        ),
        getattr(
            driver.CUtensorMapFloatOOBfill,
            f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[numbers['fill']]}",
        ),
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise NotEncoded(f"cuTensorMapEncodeTiled: {status.name} for {dict(numbers)}")
    raw = ctypes.string_at(int(tensor_map.getPtr()), MAP_BYTES)
    encoded_map: np.void = np.frombuffer(raw, f"V{MAP_BYTES}")[0]
    return encoded_map
