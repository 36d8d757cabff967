"""Counts are whole numbers: nothing but the exact ones is right."""

from __future__ import annotations

import numpy as np


def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    keys = random.integers(0, dims["BINS"], dims["N"])
    if recipe == "hot":
        keys = np.where(random.random(dims["N"]) < 0.9, dims["BINS"] - 1, keys)
    return {"keys": keys.astype(np.int32)}


def reference(dims, options, inputs):
    counts = np.bincount(inputs["keys"], minlength=dims["BINS"]).astype(np.float64)
    return {"counts": {"value": counts, "bound": np.zeros_like(counts), "rounded": None}}
