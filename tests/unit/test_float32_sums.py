"""A correct float32 kernel must not be refused for the error of its own sums."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle import reference
from greenfast.search.oracle.accumulation import cancellation_error
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.comparison import compare_output
from greenfast.search.oracle.guarded_reference import GuardedReferences
from greenfast.search.oracle.reference import case_data

KERNEL = """
name = "product"
title = "C = A B in float32"
baseline = "right:plain"

[options]
inputs_as = { values = ["float32", "tf32"], default = "float32" }

[dims]
M = { time = "run", doc = "rows" }
N = { time = "run", doc = "columns" }
K = { time = "run", doc = "terms" }

[work]
flop = "2 * M * N * K"
bytes = "4 * (M * K + K * N + M * N)"

[workloads.square]
title = "a small square"
dims = { M = 32, N = 32, K = 32 }

[[checks]]
name = "small"
dims = { M = 8, N = 8, K = 8 }
inputs = "normal"
seeds = 1
"""
ARGUMENT = """
[[arguments]]
name = "{name}"
kind = "{kind}"
dtype = "float32"
shape = {shape}
contiguous = true
"""
REFERENCE = """
import numpy as np

def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    a = random.normal(size=(dims["M"], dims["K"]))
    b = random.normal(size=(dims["K"], dims["N"]))
    if recipe == "positive":
        a, b = abs(a), abs(b)
    if recipe == "offset":
        a += 3.0
    if recipe == "cancelling":       # the second half of each sum takes the first half away
        half = dims["K"] // 2
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = 1e-3 * b[half : 2 * half] - b[:half]
    return {"a": a.astype(np.float32), "b": b.astype(np.float32)}

def reference(dims, options, inputs):
    a, b = (inputs[name].astype(np.float64) for name in "ab")
    value = a @ b
    bound = (dims["K"] + 8) * 2.0**-23 * (np.abs(a) @ np.abs(b))
    if options["inputs_as"] == "tf32":
        bound = bound + 2.0**-9 * (np.abs(a) @ np.abs(b))
    return {"c": {"value": value, "bound": bound,
                  "rounded": value.astype(np.float32).astype(np.float64)}}
"""
ENDLESS_THE_SECOND_TIME = """
_reference, _calls = reference, []

def reference(dims, options, inputs):
    while _calls:
        pass
    _calls.append(None)
    return _reference(dims, options, inputs)
"""
RIGHT = """
name = "right"
kernel = "product"
idea = "One thread an element."

[[launches]]
entry = "product"
grid = ["1", "1", "1"]
block = ["32", "1", "1"]
smem_dynamic_bytes = 0

[presets.plain]
doc = "plain"
parameters = {}
"""
SHAPES = [(16, 24, 17), (24, 16, 64), (16, 16, 257), (8, 16, 1024)]
RECIPES = ("normal", "positive", "offset", "cancelling")


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    folder = tmp_path_factory.mktemp("float32") / "product"
    folder.mkdir()
    arguments = "".join(
        ARGUMENT.format(name=name, kind=kind, shape=list(shape)).replace("'", '"')
        for name, kind, shape in (("a", "input", "MK"), ("b", "input", "KN"), ("c", "output", "MN"))
    )
    (folder / "kernel.toml").write_text(KERNEL + arguments)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "right.toml").write_text(RIGHT)
    (folder / "right.cu.j2").write_text('extern "C" __global__ void product() {}\n')
    return Catalogue([folder.parent]).kernel("product")


def _case(shape, recipe, inputs_as="float32"):
    dims = tuple(zip("MNK", shape, strict=True))
    return Case("check", dims, (("inputs_as", inputs_as),), recipe, "contiguous", 5, ())


def _terms(a, b):
    """[K, M, N] products in float32."""
    return a.T[:, :, None] * b[:, None, :]


def _one_after_another(terms):
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        total = total + term
    return total


def _fused(a, b, order):
    """Each product is added before it is rounded: float64 holds the product exactly."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in order:
        product = a[:, k, None].astype(np.float64) * b[k].astype(np.float64)
        total = (total.astype(np.float64) + product).astype(np.float32)
    return total


def _compensated(terms):
    total, lost = np.zeros(terms.shape[1:], np.float32), np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        corrected = term - lost
        new = total + corrected
        lost = (new - total) - corrected
        total = new
    return total


def _in_pairs(terms):
    terms = list(terms)
    while len(terms) > 1:
        terms = [sum(pair[1:], pair[0]) for pair in _grouped(terms, 2)]
    return terms[0]


def _grouped(values, size):
    return [values[start : start + size] for start in range(0, len(values), size)]


def _parts(terms, size):
    return [terms[start : start + size] for start in range(0, len(terms), size)]


def _variants():
    """Thirty correct ways to sum, by name: f(a, b) -> c."""

    def summed(sum_up, order=np.arange):
        return lambda a, b: np.asarray(
            sum_up(np.ascontiguousarray(_terms(a, b)[order(a.shape[1])])), np.float32
        )

    def stacked(sum_up):
        """For sums that take a list of terms."""
        return summed(lambda terms: sum_up(np.stack(list(terms))))

    orders = {
        "forward": np.arange,
        "backward": lambda count: np.arange(count)[::-1],
        "shuffled": lambda count: np.random.default_rng(3).permutation(count),
        "even_then_odd": lambda count: np.r_[0:count:2, 1:count:2],
    }
    variants = {
        f"in_order_{name}": summed(_one_after_another, order) for name, order in orders.items()
    }
    variants |= {
        f"fused_{name}": (lambda a, b, order=order: _fused(a, b, order(a.shape[1])))
        for name, order in orders.items()
    }
    variants |= {
        f"split_{parts}": stacked(lambda terms, parts=parts: _split(terms, parts))
        for parts in (2, 3, 4, 7, 8, 16)
    }
    variants |= {
        f"tiled_{size}": stacked(lambda terms, size=size: _tiled(terms, size))
        for size in (4, 8, 16, 32, 64)
    }
    variants |= {
        f"lanes_{lanes}": stacked(lambda terms, lanes=lanes: _lanes(terms, lanes))
        for lanes in (2, 4, 8, 16, 32)
    }
    variants["compensated"] = summed(_compensated)
    variants["compensated_backward"] = summed(_compensated, orders["backward"])
    variants["in_pairs"] = summed(lambda terms: _in_pairs(list(terms)))
    variants["by_blas"] = lambda a, b: a @ b
    variants["by_blas_transposed"] = lambda a, b: (b.T.copy() @ a.T.copy()).T
    variants["float64_inside"] = lambda a, b: (a.astype(np.float64) @ b.astype(np.float64)).astype(
        np.float32
    )
    return variants


def _split(terms, parts):
    size = max(math.ceil(len(terms) / parts), 1)
    return _one_after_another(np.stack([_one_after_another(part) for part in _parts(terms, size)]))


def _tiled(terms, size):
    """A tile's sum is made apart and then added, as fragments of a tensor core are."""
    total = np.zeros(terms.shape[1:], np.float32)
    for part in _parts(terms, size):
        total = total + _in_pairs(list(part))
    return total


def _lanes(terms, lanes):
    lanes = min(lanes, len(terms))
    return _in_pairs([_one_after_another(terms[lane::lanes]) for lane in range(lanes)])


VARIANTS = _variants()


def _tf32(values):
    bits = (values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def _without_a_product(a, b):
    c = a @ b
    c[3, 5] -= a[3, 2] * b[2, 5]
    return c


def _bf16(values):
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


WRONG = {
    "one_product_missing": _without_a_product,
    "one_term_less": lambda a, b: a[:, :-1] @ b[:-1],
    "terms_off_by_one": lambda a, b: a @ np.roll(b, 1, axis=0),
    "first_term_twice": lambda a, b: a @ b + a[:, :1] * b[:1],
    "tf32": lambda a, b: _tf32(a) @ _tf32(b),
    "one_factor_in_tf32": lambda a, b: _tf32(a) @ b,
    "bf16": lambda a, b: _bf16(a) @ _bf16(b),
    "output_in_half": lambda a, b: (a @ b).astype(np.float16).astype(np.float32),
    "sums_in_half": lambda a, b: (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32),
    "rows_swapped": lambda a, b: (a @ b)[::-1],
    "biased": lambda a, b: (a @ b) * np.float32(1.0001),
}


def _comparison(kernel, case, compute):
    data = case_data(kernel, case)
    got = compute(data.inputs["a"].copy(), data.inputs["b"].copy()).astype(np.float64)
    return compare_output(kernel, case, kernel.argument("c"), got, data)


@pytest.mark.slow
def test_thirty_correct_sums():
    assert len(VARIANTS) == 30


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"K={shape[2]}")
def test_every_correct_way_to_sum_passes(product, shape, recipe):
    case = _case(shape, recipe)
    compared = {name: _comparison(product, case, compute) for name, compute in VARIANTS.items()}
    refused = {
        name: (each.frobenius, each.allowed, each.all_within)
        for name, each in compared.items()
        if not each.passes
    }
    assert not refused


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("recipe", ["normal", "positive", "offset"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"K={shape[2]}")
def test_every_wrong_twin_is_refused(product, shape, recipe, wrong):
    assert not _comparison(product, _case(shape, recipe), WRONG[wrong]).passes


def test_the_rounding_of_outputs_alone_refused_most_of_them(product):
    """What the bound was made of before: twice the rounding of the output."""
    case = _case(SHAPES[2], "normal")
    expected = case_data(product, case).outputs["c"]
    refused = [
        name
        for name, compute in VARIANTS.items()
        if _comparison(product, case, compute).frobenius > 2.0 * expected.rounding / expected.norm
    ]
    assert len(refused) >= 20


def test_tf32_passes_where_an_option_says_tf32(product):
    for shape in SHAPES:
        case = _case(shape, "normal", "tf32")
        assert _comparison(product, case, WRONG["tf32"]).passes
        assert not _comparison(product, case, WRONG["bf16"]).passes


def test_narrow_outputs_are_allowed_no_more_than_before(album):
    """fp16 outputs: twice the rounding, and not a bit more."""
    kernel = album.kernel("axpy")
    case = Case("check", (("N", 500),), (("dtype", "fp16"),), "normal", "contiguous", 0, ())
    data = case_data(kernel, case)
    expected = data.outputs["y"]
    compared = compare_output(kernel, case, kernel.argument("y"), expected.rounded, data)
    assert compared.allowed == 2.0 * expected.rounding / expected.norm


def test_an_authors_reference_computes_the_allowance_for_cancelling_terms_in_a_child(
    product, monkeypatch
):
    """Its value is that of this process, and a reference that then does not end is killed."""
    case, output = _case(SHAPES[0], "cancelling"), product.arguments[2]
    data = case_data(product, case)
    here = cancellation_error(product, case, output, data)
    guard = GuardedReferences(60.0)
    monkeypatch.setattr(reference._CACHE, "guard", guard)
    try:
        data.laid_out.clear()
        assert cancellation_error(product, case, output, data) == here > 0.0
        data.laid_out.clear()
        endless = replace(product, reference_text=REFERENCE + ENDLESS_THE_SECOND_TIME)
        reference.compute_case_data(endless, case, None)
        monkeypatch.setattr(guard, "deadline_s", 0.2)
        with pytest.raises(SpecError, match=r"check \(M=.*\), computed again takes .* 0\.2 s"):
            cancellation_error(endless, case, output, data)
    finally:
        guard.close()
