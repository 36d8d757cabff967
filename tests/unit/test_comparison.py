"""Large outputs are compared in blocks, with the result of a comparison as a whole."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from greenfast.search.oracle import expected as expected_module
from greenfast.search.oracle.comparison import compare_output
from greenfast.search.oracle.expected import CaseData, Expected

SHAPE = (3, 5, 7)
BLOCK = 16  # 105 elements: six blocks, and a part of one
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def _right() -> tuple[np.ndarray, Expected]:
    value = np.random.default_rng(0).standard_normal(SHAPE)
    stored = value.astype(BFLOAT16)
    return stored, Expected(value, np.abs(value) / 128, stored.astype(np.float64))


def _wrong_twice(values: np.ndarray, expected: Expected) -> None:
    values[0, 1, 2], values[2, 4, 6] = 50, -60


def _wrong_in_the_last_block(values: np.ndarray, expected: Expected) -> None:
    values[2, 4, 6] = 0.5 + float(values[2, 4, 6])


def _infinite_and_not_a_number(values: np.ndarray, expected: Expected) -> None:
    values[1, 1, 1], values[2, 0, 0] = np.inf, np.nan


def _infinite_where_it_should_be(values: np.ndarray, expected: Expected) -> None:
    values[1, 1, 1] = expected.value[1, 1, 1] = np.inf
    values[2, 0, 0] = expected.value[2, 0, 0] = np.nan


def _finite_where_it_should_be_infinite(values: np.ndarray, expected: Expected) -> None:
    expected.value[1, 1, 1] = -np.inf


def _only_a_little_off_everywhere(values: np.ndarray, expected: Expected) -> None:
    values[...] = (expected.value + expected.bound * 0.99).astype(BFLOAT16)


CHANGES = (
    lambda values, expected: None,
    _wrong_twice,
    _wrong_in_the_last_block,
    _infinite_and_not_a_number,
    _infinite_where_it_should_be,
    _finite_where_it_should_be_infinite,
    _only_a_little_off_everywhere,
)


@pytest.fixture
def compared(monkeypatch):
    """`compared(values, expected)`: as a whole, and in blocks."""
    output = SimpleNamespace(name="o", dtype="dtype")
    case = SimpleNamespace(options=(("dtype", "bf16"),), inputs="normal")

    def both(values, expected):
        results = []
        for block in (expected_module.BLOCK, BLOCK):
            monkeypatch.setattr(expected_module, "BLOCK", block)
            data = CaseData({}, {"o": replace(expected)})
            results.append(compare_output(None, case, output, values, data))
        return results

    return both


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("padded", [False, True])
def test_blocks_give_what_the_whole_gives(compared, change, padded):
    values, expected = _right()
    change(values, expected)
    if padded:  # rows with gaps between them
        values = np.concatenate([values, values], axis=2)[..., : SHAPE[2]]
    whole, parts = compared(values, expected)
    for name in ("size", "wrong", "worst", "passes", "all_finite", "frobenius_exceeded"):
        assert getattr(whole, name) == getattr(parts, name), name
    for name in ("largest_error", "mean_error", "sign_bias", "frobenius", "allowed"):
        a, b = getattr(whole, name), getattr(parts, name)
        assert (a is None) == (b is None), name
        if a is not None and np.isfinite(a):
            assert a == pytest.approx(b, rel=1e-12), name


def test_the_worst_element_is_a_wrong_one_even_where_a_right_one_is_further_off(compared):
    value = np.zeros(SHAPE)
    bound = np.full(SHAPE, 1e-6)
    values = value.astype(np.float64)
    bound[0, 0, 0], values[0, 0, 0] = 100.0, 50.0  # within its bound
    values[2, 3, 4] = 1e-3
    for result in compared(values, Expected(value, bound, None)):
        assert result.worst == (2, 3, 4) and result.wrong == 1


def test_open_elements_are_right_in_every_block(compared):
    values, expected = _right()
    undefined = np.zeros(SHAPE, bool)
    undefined[0, 0, 1] = undefined[2, 4, 5] = True
    values[undefined] = 1e9
    for result in compared(values, replace(expected, undefined=undefined)):
        assert result.passes and result.wrong == 0


def test_whole_numbers_beyond_a_floats_are_exact_in_every_block(compared):
    values = 2**60 + np.arange(105, dtype=np.int64).reshape(SHAPE)
    exact = Expected(values.astype(np.float64), np.zeros(SHAPE), None, whole=values.copy())
    assert all(result.passes for result in compared(values, exact))
    values[1, 4, 6] += 1
    for result in compared(values, exact):
        assert (result.wrong, result.worst, result.largest_error) == (1, (1, 4, 6), 1.0)


def test_an_output_of_no_elements_is_right(compared):
    empty = np.zeros((0, 4))
    for result in compared(empty, Expected(empty, empty, empty)):
        assert result.passes and result.worst is None and result.mean_error is None
