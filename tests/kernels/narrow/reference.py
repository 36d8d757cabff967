"""C in float64 on the rounded operands; a right kernel rounds exactly so, multiplies exactly and adds in float32.

fp8 products are added with fewer bits on some devices (PTX ISA leaves it open), hence the wider bound.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn,) * 2, "e5m2": (ml_dtypes.float8_e5m2,) * 2,
           "mixed": (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)}
SCALE_A, SCALE_B = np.float32(0.3), np.float32(5.0)


def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    a, b = (4.0 * random.normal(size=(dims[rows], dims["K"])) for rows in "MN")
    if recipe == "code":                     # swapped rows or steps show
        a += np.arange(dims["M"])[:, None] / 4.0 - np.arange(dims["K"]) / 8.0
        b += np.arange(dims["N"])[:, None] / 2.0
    return {"a": (a * SCALE_A).astype(np.float32), "b": (b * SCALE_B).astype(np.float32)}


def to_tf32(values):
    """To 10 fraction bits, ties away from zero."""
    return ((values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def reference(dims, options, inputs):
    scaled = (inputs["a"] / SCALE_A, inputs["b"] / SCALE_B)
    if options["format"] == "tf32":
        a, b = (to_tf32(one).astype(np.float64) for one in scaled)
        share = (2 * dims["K"] + 16) * 2.0**-23
    else:
        a, b = (one.astype(kind).astype(np.float64) for one, kind in zip(scaled, FORMATS[options["format"]]))
        share = 2.0**-10
    scale = float(SCALE_A) * float(SCALE_B)
    value = scale * (a @ b.T)
    return {"c": {"value": value, "bound": share * scale * (np.abs(a) @ np.abs(b).T) + 1e-30, "rounded": None}}
