"""Sums of multiples of 1/64, which float32 holds exactly."""

from __future__ import annotations

import numpy as np


def make_inputs(dims, options, recipe, seed, tiles):
    values = np.random.default_rng(seed).normal(size=(dims["R"], dims["C"]))
    return {"x": (np.round(64 * values) / 64).astype(np.float32)}


def reference(dims, options, inputs):
    value = inputs["x"].astype(np.float64).sum(axis=1)
    return {"y": {"value": value, "bound": np.zeros(dims["R"]), "rounded": value}}
