"""The sum of each row in float64; a right kernel adds in float32, in any order."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STORAGE = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
FLOAT32_STEP = 2.0**-23


def make_inputs(dims, options, recipe, seed, tiles):
    rows, columns = dims["R"], dims["C"]
    values = np.random.default_rng(seed).normal(size=(rows, columns))
    return {"x": values.astype(STORAGE[options["dtype"]])}


def reference(dims, options, inputs):
    exact = inputs["x"].astype(np.float64)
    bound = (dims["C"] + 8) * FLOAT32_STEP * np.abs(exact).sum(axis=1)
    return {"y": {"value": exact.sum(axis=1), "bound": bound, "rounded": None}}
