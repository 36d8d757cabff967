"""C = A B^T in float64 on the rounded inputs; a right kernel multiplies exactly and adds in float32."""

from __future__ import annotations

import numpy as np

FLOAT32_STEP = 2.0**-23


def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    a = random.normal(size=(dims["M"], dims["K"]))
    b = random.normal(size=(dims["N"], dims["K"]))
    if recipe == "code":                     # swapped rows, columns or steps show
        a += np.arange(dims["M"])[:, None] / 8.0 - np.arange(dims["K"]) / 16.0
        b += np.arange(dims["N"])[:, None] / 8.0
    return {"a": a.astype(np.float16), "b": b.astype(np.float16)}


def reference(dims, options, inputs):
    a, b = (inputs[name].astype(np.float64) for name in ("a", "b"))
    bound = (dims["K"] + 8) * FLOAT32_STEP * (np.abs(a) @ np.abs(b.T))
    return {"c": {"value": a @ b.T, "bound": bound, "rounded": None}}
