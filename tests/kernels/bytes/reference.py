"""y[i] is a neighbour of x[i] among the whole numbers. x holds numbers between all of them."""

from __future__ import annotations

import numpy as np


def make_inputs(dims, options, recipe, seed, tiles):
    steps = np.arange(dims["n"]) + seed
    return {"x": (steps * 37 % 250 - 125 + 0.25).astype(np.float32)}


def reference(dims, options, inputs):
    value = inputs["x"].astype(np.float64)
    return {"y": {"value": value, "bound": np.where(np.isnan(value), np.inf, 0.75), "rounded": None}}
