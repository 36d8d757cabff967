"""The RMSNorm reference is correct; its bounds pass every summation order and stop bugs."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.oracle.reference_module import reference_module

FOLDER = REPOSITORY_TEMPLATES / "rmsnorm"
DTYPES = ("fp16", "bf16")
TILES = {"tile_rows": 1, "tile_columns": 256, "kept_columns": 512}


@pytest.fixture(scope="module")
def rmsnorm() -> ModuleType:
    return reference_module("rmsnorm", (FOLDER / "reference.py").read_text())


def model_kernel(
    rmsnorm,
    inputs,
    dtype: str,
    *,
    h_rounded_first: bool,
    scaled_rounded: bool,
    order: int,
    bug: str = "",
):
    """A kernel in float32 as a GPU would run it; `bug` breaks one line."""
    storage = rmsnorm.STORAGE[dtype]
    h32 = inputs["x"].astype(np.float32) + inputs["residual"].astype(np.float32)
    h = h32.astype(storage)
    used = h.astype(np.float32) if h_rounded_first else h32
    squares = used * used
    if bug == "squares in half":
        squares = squares.astype(np.float16).astype(np.float32)
    if bug == "last element missing":
        squares = squares[:, :-1]
    sums = np.random.default_rng(order).permutation(squares, axis=1).sum(axis=1, dtype=np.float32)
    if bug == "one thread's part twice":
        sums = sums + squares[:, ::64].sum(axis=1)
    eps = np.float32(0.0 if bug == "no eps" else rmsnorm.EPS)
    scale = (np.float32(1) / np.sqrt(sums / np.float32(used.shape[1]) + eps))[:, None]
    if bug == "scale of the row before":
        scale = np.roll(scale, 1, axis=0)
    weight = inputs["weight"].astype(np.float32)
    if bug == "weight of the next column":
        weight = np.roll(weight, -1)
    if bug == "weight without its sign":
        weight = np.abs(weight)
    scaled = used * scale
    if scaled_rounded:
        scaled = scaled.astype(storage).astype(np.float32)
    return {
        "h": inputs["x"] if bug == "h not written" else h,
        "y": (scaled * weight).astype(storage),
    }


def accepted(expected: dict, got: dict) -> bool:
    """The gate's two bounds, written as *within* so that NaN fails."""
    for name, tensor in expected.items():
        error = np.abs(got[name].astype(np.float64) - tensor["value"])
        rounding = np.linalg.norm(tensor["rounded"] - tensor["value"])
        if not (error <= tensor["bound"]).all() or not np.linalg.norm(error) <= 2.0 * rounding:
            return False
    return True


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_is_the_formula_one_row_at_a_time(rmsnorm, dtype):
    dims, options = {"M": 5, "N": 37}, {"dtype": dtype}
    inputs = rmsnorm.make_inputs(dims, options, "normal", 3, TILES)
    expected = rmsnorm.reference(dims, options, inputs)
    for m in range(dims["M"]):
        h = [
            float(a) + float(b) for a, b in zip(inputs["x"][m], inputs["residual"][m], strict=True)
        ]
        scale = 1.0 / math.sqrt(
            math.fsum(element * element for element in h) / len(h) + rmsnorm.EPS
        )
        assert expected["h"]["value"][m] == pytest.approx(h, rel=1e-15)
        assert expected["y"]["value"][m] == pytest.approx(
            [a * scale * float(w) for a, w in zip(h, inputs["weight"], strict=True)], rel=1e-13
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 40, 1001, 8192])
def test_right_kernels_pass_whatever_they_round_and_in_which_order_they_add(
    rmsnorm, dtype, columns
):
    dims, options = {"M": 6, "N": columns}, {"dtype": dtype}
    for recipe in rmsnorm.RECIPES:
        for seed in range(2):
            inputs = rmsnorm.make_inputs(dims, options, recipe, seed, TILES)
            expected = rmsnorm.reference(dims, options, inputs)
            for first in (False, True):
                got = model_kernel(
                    rmsnorm, inputs, dtype, h_rounded_first=first, scaled_rounded=False, order=seed
                )
                assert accepted(expected, got), (recipe, seed, first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_before_the_weight_is_within_the_pointwise_bound(rmsnorm, dtype):
    dims, options = {"M": 6, "N": 777}, {"dtype": dtype}
    for recipe in rmsnorm.RECIPES:
        inputs = rmsnorm.make_inputs(dims, options, recipe, 5, TILES)
        expected = rmsnorm.reference(dims, options, inputs)["y"]
        got = model_kernel(
            rmsnorm, inputs, dtype, h_rounded_first=True, scaled_rounded=True, order=1
        )["y"]
        assert (np.abs(got.astype(np.float64) - expected["value"]) <= expected["bound"]).all(), (
            recipe
        )


BUGS = {
    "squares in half": "large",
    "last element missing": "spike",
    "one thread's part twice": "normal",
    "no eps": "tiny",
    "scale of the row before": "row_scales",
    "weight of the next column": "weight_scales",
    "weight without its sign": "weight_scales",
    "h not written": "normal",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bug", BUGS)
def test_wrong_kernels_fail_on_the_inputs_made_for_them(rmsnorm, dtype, bug):
    dims, options = {"M": 6, "N": 520}, {"dtype": dtype}
    inputs = rmsnorm.make_inputs(dims, options, BUGS[bug], 0, TILES)
    expected = rmsnorm.reference(dims, options, inputs)
    with np.errstate(all="ignore"):
        got = model_kernel(
            rmsnorm, inputs, dtype, h_rounded_first=True, scaled_rounded=False, order=0, bug=bug
        )
    assert not accepted(expected, got)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_are_finite_and_as_hard_as_they_say(rmsnorm, dtype):
    dims, options = {"M": 6, "N": 512}, {"dtype": dtype}
    for recipe in rmsnorm.RECIPES:
        inputs = rmsnorm.make_inputs(dims, options, recipe, 7, TILES)
        expected = rmsnorm.reference(dims, options, inputs)
        assert all(np.isfinite(input_.astype(np.float64)).all() for input_ in inputs.values()), (
            recipe
        )
        assert all(
            np.isfinite(tensor["rounded"]).all() and np.isfinite(tensor["bound"]).all()
            for tensor in expected.values()
        ), recipe
    large = rmsnorm.exact_rows(rmsnorm.make_inputs(dims, options, "large", 0, TILES))
    assert np.abs(large).min() >= 2e4 * 0.99 and np.abs(large).max() <= 6e4 * 1.01
    nothing = rmsnorm.exact_rows(rmsnorm.make_inputs(dims, options, "zeros", 0, TILES))
    assert not nothing[::2].any() and nothing[1::2].all(axis=1).any()
    cancelled = rmsnorm.make_inputs(dims, options, "cancellation", 0, TILES)
    assert (
        np.median(np.abs(rmsnorm.exact_rows(cancelled)))
        < np.median(np.abs(cancelled["x"].astype(np.float64))) / 100
    )
    with pytest.raises(ValueError, match="known: normal, large"):
        rmsnorm.make_inputs(dims, options, "huge", 0, TILES)
