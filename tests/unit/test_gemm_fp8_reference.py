"""gemm_fp8's codes, its float64 reference and its bounds; sizes that do not fit are refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.oracle.reference import kernel_module

KERNEL = Catalogue([REPOSITORY_TEMPLATES]).kernel("gemm_fp8")
REFERENCE = kernel_module(KERNEL)
TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def inputs_of(recipe, rows=5, columns=32, depth=96, row_scales=0, **options):
    dims = {"M": rows, "N": columns, "K": depth, "row_scales": row_scales}
    options = {
        "format": "e4m3",
        "sums": "fast",
        "dtype": "bf16",
        "activation": "none",
        "bias": "no",
        "residual": "no",
        **options,
    }
    return dims, options, REFERENCE.make_inputs(dims, options, recipe, 3, {})


def by_hand(dims, options, inputs):
    """c in plain NumPy: codes times scales, then the rest."""
    a, b = (
        inputs[name].view(TYPES[options["format"]]).astype(float) * inputs[f"{name}_scale"][:, None]
        for name in "ab"
    )
    c = np.einsum("mk,nk->mn", a, b)
    if options["bias"] == "yes":
        c = c + inputs["bias"].astype(float)
    if options["activation"] == "silu":
        c = c / (1.0 + np.exp(-c))
    return c + (inputs["residual"].astype(float) if options["residual"] == "yes" else 0.0)


@pytest.mark.parametrize("row_scales", [0, 1])
@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
def test_the_reference_is_the_product_of_what_the_codes_stand_for(form, row_scales):
    more = {"format": form, "activation": "silu", "bias": "yes", "residual": "yes"}
    for recipe in REFERENCE.RECIPES:
        dims, options, inputs = inputs_of(recipe, row_scales=row_scales, **more)
        c = REFERENCE.reference(dims, options, inputs)["c"]
        np.testing.assert_allclose(c["value"], by_hand(dims, options, inputs), rtol=1e-9, atol=1e-9)
        assert (np.abs(c["rounded"] - c["value"]) <= c["bound"]).all()
        assert np.isfinite(by_hand(dims, options, inputs)).all(), recipe


def test_the_largest_number_of_a_scale_has_the_largest_code():
    for row_scales, largest in ((0, 1), (1, 5)):
        _, _, inputs = inputs_of("row_scales", row_scales=row_scales)
        codes = np.abs(inputs["a"].view(TYPES["e4m3"]).astype(float))
        assert inputs["a_scale"].shape == (largest,) and (codes.max(1) == 448.0).sum() == largest
    _, _, inputs = inputs_of("zeros", row_scales=1)
    assert (inputs["a_scale"][::2] == 1.0).all() and (inputs["a"][::2] == 0).all()


@pytest.mark.parametrize("sums", ["fast", "float32"])
@pytest.mark.parametrize("recipe", REFERENCE.RECIPES)
def test_a_sum_that_keeps_thirteen_bits_is_right_and_one_that_lacks_terms_is_not(recipe, sums):
    dims, options, inputs = inputs_of(recipe, columns=64, depth=512, dtype="fp16", sums=sums)
    c = REFERENCE.reference(dims, options, inputs)["c"]
    a, b = (REFERENCE.dequantised(inputs, name, "e4m3") for name in "ab")

    def worst(kept):
        total, whole = np.zeros_like(c["value"]), np.zeros_like(c["value"])
        for first in range(0, kept, 32):
            if sums == "float32" and first % 128 == 0:
                whole, total = whole + total, np.zeros_like(total)
            terms = a[:, None, first : first + 32] * b[None, :, first : first + 32]
            top = np.maximum(np.abs(terms).max(2), np.abs(total))
            unit = 2.0 ** (np.floor(np.log2(np.maximum(top, 1e-30))) - 13)
            total = (
                np.trunc(total / unit) * unit + (np.trunc(terms / unit[..., None])).sum(2) * unit
            )
        error = whole + total - c["value"]
        size = np.linalg.norm(error) / np.linalg.norm(c["rounded"] - c["value"])
        return (np.abs(error) / c["bound"]).max(), size

    pointwise, whole = worst(512)
    assert pointwise < 1.0 and whole < 2.0
    pointwise, whole = worst(480)
    assert pointwise > 1.0 or whole > 2.0


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        ("M=8,N=32,K=24", "K=24 is not a multiple of 16, as a row's stride must be"),
        ("M=8,N=40,K=32", "N=40 is not a multiple of 16, as a row's stride must be"),
        ("M=8,N=32,K=32,A_scales=8", "8 scales of A and 1 of B do not follow from M=8, N=32"),
        ("M=8,N=32,K=32,format=e3m4", "e3m4"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_in_a_sentence(workload, says):
    with pytest.raises(UsageError) as refused:
        KERNEL.workload(workload)
    assert says in str(refused.value)


def test_the_example_of_a_refusal_is_a_workload():
    assert KERNEL.workload(KERNEL.workload_form.example).dims[:3] == (
        ("M", 8),
        ("N", 16),
        ("K", 16),
    )


def test_unknown_inputs_and_scales_that_do_not_fit_are_refused():
    dims, options, _ = inputs_of("normal")
    with pytest.raises(ValueError, match="unknown inputs 'best'"):
        REFERENCE.make_inputs(dims, options, "best", 0, {})
    with pytest.raises(ValueError, match="do not follow from M=5"):
        REFERENCE.make_inputs({**dims, "A_scales": 2}, options, "normal", 0, {})
