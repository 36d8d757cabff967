"""Error bounds for reference.py: given, derived from an error model, or calibrated.

    reference_uses = ["greenfast_bounds:summed"]      # in kernel.toml
    from greenfast_bounds import stored, summed       # in reference.py

Every function returns what `reference` returns for an output: "value" in float64, the pointwise
"bound" on |output - value|, and "rounded", the value after rounding to the storage type, against
which the total error is judged. `dtype` is the output's storage type: fp16, bf16 or float32.

This file's text is part of the identity of a kernel that uses it, and bundles carry it. It needs
NumPy and ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np

STORAGE = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}
# The largest relative error of rounding to nearest, and the largest absolute one below the
# smallest normal number.
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8, "float32": 2.0**-24}
SMALLEST_ROUNDOFF = {"fp16": 2.0**-25, "bf16": 2.0**-134, "float32": 2.0**-150}
FLOAT32_ROUNDOFF = 2.0**-24
DRAWS = 4  # of `calibrated`

Output = dict[str, np.ndarray]


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """`values` in the storage type, as make_inputs returns them."""
    return values.astype(STORAGE[_known(dtype)])


def as_float64(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs as float64, exactly."""
    return {name: array.astype(np.float64) for name, array in inputs.items()}


def given(value: np.ndarray, dtype: str, *, absolute: float = 0.0, relative: float = 0.0) -> Output:
    """A bound that you state: absolute + relative |value|, and the output's own rounding."""
    return _output(value, absolute + relative * np.abs(value), dtype)


def summed(value: np.ndarray, magnitude: np.ndarray, terms: int, dtype: str) -> Output:
    """A bound derived for sums of `terms` products or numbers, added up in float32 in any order.

    `magnitude` is the same sum of the terms' sizes, for A @ B it is |A| @ |B|. The error is at most
    gamma = k u / (1 - k u) times the magnitude, k = terms + 2, u = 2^-24 (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd edition, section 4.2).
    """
    rounding = (terms + 2) * FLOAT32_ROUNDOFF
    gamma = rounding / (1.0 - rounding) if rounding < 0.5 else 2.0 * rounding
    return _output(value, gamma * magnitude, dtype)


def calibrated(
    compute: Callable[..., np.ndarray],
    inputs: Mapping[str, np.ndarray],
    dtype: str,
    *,
    terms: int = 1,
    factor: float = 4.0,
) -> Output:
    """A bound measured: how far the result moves when each input moves by float32's rounding.

    `compute` takes the inputs by name in float64. It is called once as they are, and four times
    with each element moved by up to 2^-23 of itself. The bound is `factor` sqrt(terms) times the
    largest such change in the same row (all of it for one dim), and the output's own rounding.
    `terms` is the length of the longest sum. This is no proof: a kernel whose intermediate values
    are much larger than inputs and outputs may be correct and exceed it.
    """
    exact = as_float64(inputs)
    value = np.asarray(compute(**exact), np.float64)
    random = np.random.default_rng(0)
    change = np.abs(value) * 2.0**-23
    for _ in range(DRAWS):
        moved = {
            name: array * (1.0 + 2.0**-23 * random.uniform(-1.0, 1.0, array.shape))
            for name, array in exact.items()
        }
        with np.errstate(invalid="ignore"):
            step = np.abs(np.asarray(compute(**moved), np.float64) - value)
        change = np.maximum(change, np.where(np.isfinite(step), step, 0.0))
    change = np.where(np.isfinite(change), change, 0.0)
    if value.size:
        change = np.broadcast_to(change.max(axis=-1, keepdims=True), value.shape)
    return _output(value, factor * max(terms, 1) ** 0.5 * change, dtype)


def _output(value: np.ndarray, error: np.ndarray, dtype: str) -> Output:
    """With `error` made before the output is rounded to its storage type."""
    value = np.asarray(value, np.float64)
    unit, smallest = UNIT_ROUNDOFF[_known(dtype)], SMALLEST_ROUNDOFF[dtype]
    bound = unit * np.abs(value) + (1.0 + unit) * error + smallest
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = value.astype(STORAGE[dtype]).astype(np.float64)
    return {"value": value, "bound": np.where(np.isnan(bound), np.inf, bound), "rounded": rounded}


def _known(dtype: str) -> str:
    if dtype not in STORAGE:
        raise ValueError(
            f"greenfast_bounds knows {', '.join(STORAGE)}, and not {dtype!r}: convert inputs with "
            '.astype, and return "value", "bound" and "rounded" of an output yourself'
        )
    return dtype
