"""An output compared with what it should be: two bounds, both of which must hold.

Each element must lie within its pointwise bound. The total error, as a Frobenius norm, may be at
most twice that of the reference's `rounded` model and what float32 sums may add
(accumulation.py). NaN is correct where the reference has NaN and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.oracle.accumulation import accumulation_error, cancellation_error
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.expected import CaseData, Expected, blocks, frobenius_norm
from greenfast.search.oracle.not_finite import FLOATING, planted

FROBENIUS_FACTOR = 2.0  # against a float64 model in which only stored values are rounded


@dataclass(frozen=True)
class Comparison:
    """The errors of one output, an error being the size of output - value."""

    size: int  # elements
    wrong: int  # elements out of the pointwise bound
    largest_error: float  # NaN or infinite where an output is that and should not be
    mean_error: float | None  # None: there is no element, or not all errors are finite
    sign_bias: float | None  # mean of output - value, relative to `mean_error`
    worst: tuple[int, ...] | None  # index of the worst element; None: there is no element
    frobenius: float | None  # relative; None without a rounded model, or where all values are 0
    allowed: float | None

    @property
    def all_within(self) -> bool:
        return not self.wrong

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


@dataclass(frozen=True)
class Errors:
    """Of the elements of an output; all arrays have one shape."""

    signed: np.ndarray  # output - value; 0 if both are the same infinity, or NaN
    error: np.ndarray  # its size
    within: np.ndarray  # the pointwise bound

    @cached_property
    def wrong(self) -> int:
        """The number of elements out of bound."""
        return self.within.size - int(np.count_nonzero(self.within))

    def worst(self) -> tuple[bool, float, int]:
        """Whether it is out of bound, its error, and its index in C order.

        It is the first that is not a number, else the largest error. Elements out of bound come
        before the others.
        """
        rank = self.error
        if self.wrong:
            rank = np.where(self.within, -np.inf, np.where(np.isnan(rank), np.inf, rank))
        index = int(rank.argmax())
        return self.wrong > 0, float(rank.flat[index]), index


def comparable(values: np.ndarray) -> np.ndarray:
    """Elements of an output as they are compared: float64, and int64 as it is."""
    return values if values.dtype == np.int64 else values.astype(np.float64)


def element_errors(case: Case, output: Argument, values: np.ndarray, data: CaseData) -> Errors:
    """The errors of an output's elements, as they are compared."""
    return _errors(values, _open_in_whole_numbers(case, output, data.outputs[output.name]))


def compare_output(
    kernel: KernelSpec, case: Case, output: Argument, values: np.ndarray, data: CaseData
) -> Comparison:
    """The output `values`, of its shape, against the expected one in `data`.

    Large outputs are compared in blocks that stay in a processor's cache.
    """
    expected = _open_in_whole_numbers(case, output, data.outputs[output.name])
    wrong, total, signed, norm, largest = 0, 0.0, 0.0, 0.0, 0.0
    worst = (False, -math.inf, 0)
    for first, elements, block in blocks(values, expected):
        errors = _errors(elements, block)
        wrong += errors.wrong
        total += float(errors.error.sum())
        signed += float(errors.signed.sum())
        of_norm = errors.error if block.all_finite else errors.error[block.finite]
        norm = math.hypot(norm, frobenius_norm(of_norm))
        largest = float(np.maximum(largest, errors.error.max()))  # NaN stays
        is_wrong, error, index = errors.worst()
        worst = max(worst, (is_wrong, error, -first - index))
    mean = total / values.size if values.size and math.isfinite(largest) else None
    frobenius, allowed = _frobenius(
        norm,
        expected,
        accumulation_error(kernel, case, output, expected),
        lambda: cancellation_error(kernel, case, output, data),
    )
    return Comparison(
        values.size,
        wrong,
        largest,
        mean,
        signed / values.size / mean if mean else None,
        tuple(map(int, np.unravel_index(-worst[2], values.shape))) if values.size else None,
        frobenius,
        allowed,
    )


def _errors(values: np.ndarray, expected: Expected) -> Errors:
    got = comparable(values)
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
    return Errors(signed, error, within)


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
    total: float, expected: Expected, accumulated: float, cancelled: Callable[[], float]
) -> tuple[float | None, float | None]:
    """(relative error, allowed error); None if the reference has no rounded model or no size.

    `total` is the norm of the errors. `cancelled` is expensive, and asked only about an error that
    is too large without it.
    """
    if expected.rounded is None or not expected.value.size or expected.norm == 0.0:
        return None, None
    allowed = FROBENIUS_FACTOR * expected.rounding + accumulated
    if not total <= allowed and math.isfinite(total):
        allowed += cancelled()
    return total / expected.norm, allowed / expected.norm
