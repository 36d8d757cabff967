"""The storage types of tensors, by the names that kernel.toml uses."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),  # codes of a format that one of the kernel's options names
}
# Of scalar arguments, for struct.
SCALAR_FORMATS = {"int32": "<i", "int64": "<q", "float32": "<f", "float64": "<d"}
