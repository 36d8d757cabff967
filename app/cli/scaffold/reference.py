"""Inputs and correct outputs of {name}; docs/reference/reference-py.md describes both functions."""

from __future__ import annotations

import numpy as np
from greenfast_bounds import as_float64, stored, summed


def make_inputs(dims, options, recipe, seed, tiles):
    """The inputs by name, in their storage types. The same arguments give the same bits."""
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal((dims["M"], dims["N"])) for _ in range(2))
    if recipe == "cancelling":  # c is what the last bits leave
        b = b / 64.0 - a
    elif recipe != "normal":
        raise ValueError(f"unknown inputs {recipe!r}")
    return {"a": stored(a, options["dtype"]), "b": stored(b, options["dtype"])}


def reference(dims, options, inputs):
    """For each output the value in float64, the largest allowed error, and the value as stored.

    `summed` derives the bound from the number of terms and the sum of their sizes. Others are
    `given` (a bound that you state) and `calibrated` (a bound that is measured).
    """
    a, b = as_float64(inputs).values()
    c, sizes = a + b, np.abs(a) + np.abs(b)
    return {
        "c": summed(c, sizes, 2, options["dtype"]),
        "sums": summed(c.sum(axis=1), sizes.sum(axis=1), 2 * dims["N"], "float32"),
    }
