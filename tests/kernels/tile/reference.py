"""C = A B in float64 on the rounded inputs; a right kernel multiplies exactly and adds in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STORAGE = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
FLOAT32_STEP = 2.0**-23


def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    a = random.normal(size=(dims["M"], dims["K"]))
    b = random.normal(size=(dims["K"], dims["N"]))
    if recipe == "code":                     # swapped rows, columns or steps show
        a += np.arange(dims["M"])[:, None] / 8.0 - np.arange(dims["K"]) / 16.0
        b += np.arange(dims["N"]) / 8.0
    storage = STORAGE[options["dtype"]]
    return {"a": a.astype(storage), "b": b.astype(storage)}


def reference(dims, options, inputs):
    a, b = (inputs[name].astype(np.float64) for name in ("a", "b"))
    bound = (dims["K"] + 8) * FLOAT32_STEP * (np.abs(a) @ np.abs(b))
    return {"c": {"value": a @ b, "bound": bound, "rounded": None}}
