"""y[row, i] = table[code[row, i] & 15] * scale[row]: one product of two float32 values."""

from __future__ import annotations

import numpy as np

TABLE = np.arange(16) * 0.25 - 2.0


def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    return {
        "code": random.integers(0, 256, (dims["M"], dims["N"]), dtype=np.uint8),
        "scale": random.normal(size=dims["M"]).astype(np.float32),
    }


def reference(dims, options, inputs):
    value = TABLE[inputs["code"] & 15] * inputs["scale"].astype(np.float64)[:, None]
    bound = 2.0**-22 * np.abs(value) + 1e-7
    return {"y": {"value": value, "bound": bound, "rounded": value.astype(np.float32).astype(np.float64)}}
