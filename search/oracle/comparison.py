"""An output compared with what it should be: two bounds, both of which must hold.

Each element must lie within its pointwise bound. The total error, as a Frobenius norm, may be at
most twice that of the reference's `rounded` model and what float32 sums may add
(accumulation.py). NaN is correct where the reference has NaN and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.oracle.accumulation import accumulation_error, cancellation_error
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.expected import CaseData, Expected, frobenius_norm
from greenfast.search.oracle.not_finite import FLOATING, planted

FROBENIUS_FACTOR = 2.0  # against a float64 model in which only stored values are rounded


@dataclass(frozen=True)
class Comparison:
    """Errors of one output; all arrays have its shape."""

    signed: np.ndarray  # output - value; 0 if both are the same infinity, or NaN
    error: np.ndarray  # its size
    within: np.ndarray  # the pointwise bound
    all_within: bool
    largest_error: float  # NaN or infinite where an output is that and should not be
    frobenius: float | None  # relative; None without a rounded model, or where all values are 0
    allowed: float | None

    @property
    def all_finite(self) -> bool:
        return math.isfinite(self.largest_error)

    @property
    def frobenius_exceeded(self) -> bool:
        """Written as not within, so that NaN exceeds."""
        return (
            self.frobenius is not None
            and self.allowed is not None
            and not self.frobenius <= self.allowed
        )

    @property
    def passes(self) -> bool:
        return self.all_within and not self.frobenius_exceeded


def comparable(values: np.ndarray) -> np.ndarray:
    """Elements of an output as `compare_output` takes them: float64, and int64 as it is."""
    return values if values.dtype == np.int64 else values.astype(np.float64)


def compare_output(
    kernel: KernelSpec, case: Case, output: Argument, got: np.ndarray, data: CaseData
) -> Comparison:
    """The output `got`, which is `comparable`, against the expected one in `data`."""
    expected = _open_in_whole_numbers(case, output, data.outputs[output.name])
    with np.errstate(invalid="ignore", over="ignore"):
        signed = _differences(got, expected)
        if not expected.all_finite:
            same = (got == expected.value) | (np.isnan(got) & np.isnan(expected.value))
            signed[same] = 0.0
        if expected.undefined is not None:
            signed[expected.undefined] = 0.0
        error = np.abs(signed)
        within = error <= expected.bound  # NaN is never within
        if not expected.all_finite:
            within |= same
        if expected.undefined is not None:
            within |= expected.undefined
    frobenius, allowed = _frobenius(
        error,
        expected,
        accumulation_error(kernel, case, output, expected),
        lambda: cancellation_error(kernel, case, output, data),
    )
    return Comparison(
        signed,
        error,
        within,
        bool(within.all()),
        float(error.max(initial=0.0)),
        frobenius,
        allowed,
    )


def _differences(got: np.ndarray, expected: Expected) -> np.ndarray:
    """Output - value in float64; exact between whole numbers that are less than 2^62 apart."""
    signed: np.ndarray = got - expected.value
    if expected.whole is not None and got.dtype == np.int64:
        near = np.abs(signed) < 2.0**62
        signed[near] = got[near] - expected.whole[near]
    return signed


def _open_in_whole_numbers(case: Case, output: Argument, expected: Expected) -> Expected:
    """The same, with NaN and infinities left open in an output that cannot hold them."""
    dtype = dict(case.options).get("dtype") if output.dtype == "dtype" else output.dtype
    if dtype in FLOATING or expected.all_finite or planted(case.inputs) is None:
        return expected
    is_open = ~np.isfinite(expected.value)
    if expected.undefined is not None:
        is_open |= expected.undefined
    return replace(expected, undefined=is_open)


def _frobenius(
    error: np.ndarray, expected: Expected, accumulated: float, cancelled: Callable[[], float]
) -> tuple[float | None, float | None]:
    """(relative error, allowed error); None if the reference has no rounded model or no size.

    `cancelled` is expensive, and asked only about an error that is too large without it.
    """
    if expected.rounded is None or not error.size or expected.norm == 0.0:
        return None, None
    total = frobenius_norm(error if expected.all_finite else error[expected.finite])
    allowed = FROBENIUS_FACTOR * expected.rounding + accumulated
    if not total <= allowed and math.isfinite(total):
        allowed += cancelled()
    return total / expected.norm, allowed / expected.norm
