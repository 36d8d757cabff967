"""fp8 and back. y is x within half a step of the format at the row's scale; a row of zeros has scale 1."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STORAGE = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
UNIT = {"e4m3": 2.0**-4, "e5m2": 2.0**-3}              # largest relative error of rounding to nearest
SUBNORMAL = {"e4m3": 2.0**-10, "e5m2": 2.0**-17}       # largest absolute one below the smallest normal number
SLACK = 1.0 + 2.0**-10                                 # float32's share: a division, a product


def make_inputs(dims, options, recipe, seed, tiles):
    values = np.random.default_rng(seed).normal(size=(dims["R"], dims["C"]))
    if recipe == "scales":                             # the largest value of a row in its last quarter, by turns
        values *= 10.0 ** (np.arange(dims["R"]) % 4 - 2.0)[:, None]
        values[:, -1] *= 20.0
    if recipe == "zero_row":
        values[::2] = 0.0
    return {"x": values.astype(STORAGE[options["dtype"]])}


def reference(dims, options, inputs):
    kind = options["format"]
    exact = inputs["x"].astype(np.float64)
    largest = np.abs(exact).max(axis=1)
    scale = np.where(largest > 0, largest / LARGEST[kind], 1.0)
    scaled = np.clip(exact / scale[:, None], -LARGEST[kind], LARGEST[kind])
    rounded = scaled.astype(np.float32).astype(FP8[kind]).astype(np.float64) * scale[:, None]
    bound = SLACK * np.maximum(UNIT[kind] * np.abs(exact), SUBNORMAL[kind] * scale[:, None])
    return {"y": {"value": exact, "bound": bound, "rounded": rounded},
            "s": {"value": scale, "bound": scale * 2.0**-22, "rounded": None}}
