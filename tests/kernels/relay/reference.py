"""Twice each element: exact in float32."""

from __future__ import annotations

import numpy as np


def make_inputs(dims, options, recipe, seed, tiles):
    return {"x": np.random.default_rng(seed).normal(size=dims["N"]).astype(np.float32)}


def reference(dims, options, inputs):
    value = 2.0 * inputs["x"].astype(np.float64)
    return {"y": {"value": value, "bound": np.zeros_like(value), "rounded": None}}
