"""y = a * x + b in float64 on the rounded inputs; one rounding of the output is all that a right kernel may add."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STORAGE = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}
A, B = 2.5, -0.75


def make_inputs(dims, options, recipe, seed, tiles):
    values = np.random.default_rng(seed).normal(size=dims["N"]) * {"normal": 1.0, "large": 1000.0}[recipe]
    return {"x": values.astype(STORAGE[options["dtype"]])}


def reference(dims, options, inputs):
    storage = STORAGE[options["dtype"]]
    value = A * inputs["x"].astype(np.float64) + B
    bound = 2 * UNIT[options["dtype"]] * np.abs(value) + 1e-5
    return {"y": {"value": value, "bound": bound, "rounded": value.astype(storage).astype(np.float64)}}
