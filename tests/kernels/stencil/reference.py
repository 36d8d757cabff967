"""Three neighbours in float64; a right kernel adds them in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STORAGE = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
WEIGHTS = (1.0, 2.0, 1.0)


def make_inputs(dims, options, recipe, seed, tiles):
    return {"x": np.random.default_rng(seed).normal(size=dims["N"]).astype(STORAGE[options["dtype"]])}


def reference(dims, options, inputs):
    exact = inputs["x"].astype(np.float64)
    value = np.convolve(exact, WEIGHTS)[1:-1]
    bound = 4 * 2.0**-23 * np.convolve(np.abs(exact), WEIGHTS)[1:-1]
    return {"y": {"value": value, "bound": bound, "rounded": None}}
