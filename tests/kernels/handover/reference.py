"""Running sums over rows in float64; a right kernel adds in float32, in any order."""

from __future__ import annotations

import numpy as np

FLOAT32_STEP = 2.0**-23


def make_inputs(dims, options, recipe, seed, tiles):
    return {"x": np.random.default_rng(seed).normal(size=(dims["R"], dims["C"])).astype(np.float32)}


def reference(dims, options, inputs):
    exact = inputs["x"].astype(np.float64)
    sums, sizes = (np.cumsum(terms.sum(axis=1)) for terms in (exact, abs(exact)))
    steps = dims["R"] + dims["C"] + 8
    return {"y": {"value": sums, "bound": steps * FLOAT32_STEP * sizes, "rounded": None}}
