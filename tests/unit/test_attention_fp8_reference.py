"""attention_fp8's reference: codes, inputs, and bounds that pass correct kernels only."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, load_kernel
from greenfast.search.oracle.comparison import FROBENIUS_FACTOR
from greenfast.search.oracle.reference import kernel_module

FORMATS = ("sim", "e4m3", "e5m2")
TILE_KV = 16
TILES = {"tile_q": 16, "tile_kv": TILE_KV, "depth": 2}


fp8 = kernel_module(load_kernel(REPOSITORY_TEMPLATES / "attention_fp8"))


def dims_of(
    s_q: int, s_kv: int, *, batch: int = 1, heads: int = 2, kv_heads: int = 2
) -> dict[str, int]:
    return {"B": batch, "H": heads, "H_kv": kv_heads, "S_q": s_q, "S_kv": s_kv, "D": 64}


def options_of(form: str, dtype: str = "fp16", mask: str = "none") -> dict[str, str]:
    return {"format": form, "dtype": dtype, "mask": mask}


# ---- codes ----


@pytest.mark.parametrize("form", FORMATS)
def test_every_code_that_is_a_number_comes_back(form):
    codes = np.arange(256, dtype=np.uint8)
    numbers = fp8.decode(codes, form)
    finite = np.isfinite(numbers)
    assert finite.sum() == {"sim": 256, "e4m3": 254, "e5m2": 248}[form]
    back = fp8.encode(numbers[finite], form)
    assert np.array_equal(fp8.decode(back, form), numbers[finite])
    assert np.abs(numbers[finite]).max() == {"sim": 128, "e4m3": 448, "e5m2": 57344}[form]


@pytest.mark.parametrize("form", FORMATS)
def test_a_head_of_zeros_has_scale_one_and_the_code_of_zero(form):
    numbers = np.zeros((1, 2, 3, 4))
    numbers[0, 1] = np.arange(12).reshape(3, 4) - 8.0
    codes, scales = fp8.quantise(numbers, form)
    assert scales[0, 0] == 1.0 and set(codes[0, 0].ravel()) == {128 if form == "sim" else 0}
    assert scales[0, 1] == np.float32(8.0 / fp8.LARGEST[form])
    assert fp8.decode(codes, form)[0, 1, 0, 0] == -fp8.LARGEST[form]


@pytest.mark.parametrize("form", FORMATS)
def test_codes_are_the_nearest(form):
    numbers = np.random.default_rng(1).standard_normal((2, 3, 40, 64))
    codes, scales = fp8.quantise(numbers, form)
    units = numbers / scales.astype(np.float64)[..., None, None]
    error = np.abs(fp8.decode(codes, form) - units)
    step = (
        0.5
        if form == "sim"
        else np.maximum(fp8.UNIT_ROUNDOFF[form] * np.abs(units), fp8.SUBNORMAL_ROUNDOFF[form])
    )
    assert (error <= step * (1 + 1e-6)).all()


@pytest.mark.parametrize("form", FORMATS)
def test_inputs_are_repeatable_numbers_and_as_hard_as_they_say(form):
    dims, options = dims_of(20, 50, batch=2, heads=6, kv_heads=3), options_of(form)
    for recipe in fp8.RECIPES:
        once, again, other = (
            fp8.make_inputs(dims, options, recipe, seed, TILES) for seed in (5, 5, 6)
        )
        for name in "qkv":
            assert once[name].dtype == np.uint8 and once[f"{name}_scale"].dtype == np.float32
            assert (
                np.isfinite(fp8.dequantised(once, name, form)).all()
                and (once[f"{name}_scale"] > 0).all()
            )
        assert all(once[name].tobytes() == again[name].tobytes() for name in once)
        assert once["k"].tobytes() != other["k"].tobytes()
    ends = fp8.make_inputs(dims, options, "extreme_codes", 0, TILES)
    assert set(ends["v"].ravel()) == set(fp8.END_CODES[form])
    apart = fp8.make_inputs(dims, options, "head_scales", 0, TILES)
    for name in ("k_scale", "v_scale"):
        steps = np.abs(np.diff(np.log10(apart[name]), axis=1))
        assert (steps > 1.8).all() and (
            np.abs(np.log10(apart[name][0] / apart[name][1])) > 1.8
        ).all()
    zeros = fp8.make_inputs(dims, options, "zero_heads", 0, TILES)
    assert all((zeros[f"{name}_scale"][:, head] == 1).all() for head, name in enumerate("qkv"))


def test_unknown_inputs_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="normal, rising, falling"):
        fp8.make_inputs(dims_of(2, 2), options_of("sim"), "random", 0, TILES)


# ---- values ----


def naive(
    dims: dict[str, int], options: dict[str, str], inputs: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Attention written down one row at a time on numbers made of the codes one by one."""

    def number(name: str, b: int, h: int, i: int) -> np.ndarray:
        one_by_one = [
            fp8.decode(np.array([code], np.uint8), options["format"])[0]
            for code in inputs[name][b, h, i]
        ]
        return np.array(one_by_one) * float(inputs[f"{name}_scale"][b, h])

    o, lse = np.zeros(inputs["q"].shape), np.full(inputs["q"].shape[:3], -np.inf)
    for b, h, i in itertools.product(*map(range, o.shape[:3])):
        head = h // (dims["H"] // dims["H_kv"])
        seen = {
            "none": dims["S_kv"],
            "causal_top_left": min(i + 1, dims["S_kv"]),
            "causal_bottom_right": max(i + 1 + dims["S_kv"] - dims["S_q"], 0),
        }[options["mask"]]
        if not seen:
            continue
        q = number("q", b, h, i)
        scores = [float(q @ number("k", b, head, j)) / math.sqrt(dims["D"]) for j in range(seen)]
        weights = [math.exp(score - max(scores)) for score in scores]
        o[b, h, i] = sum(w * number("v", b, head, j) for j, w in enumerate(weights)) / math.fsum(
            weights
        )
        lse[b, h, i] = max(scores) + math.log(math.fsum(weights))
    return o, lse


@pytest.mark.parametrize(
    ("form", "mask"),
    [("sim", "none"), ("e4m3", "causal_top_left"), ("e5m2", "causal_bottom_right")],
)
def test_the_reference_is_attention_on_the_dequantised_codes(form, mask):
    for dims in (
        dims_of(4, 6, batch=2, heads=4),
        dims_of(5, 2, heads=2, kv_heads=1),
        dims_of(3, 0),
    ):
        options = options_of(form, mask=mask)
        inputs = fp8.make_inputs(dims, options, "head_scales", 3, TILES)
        o, lse = naive(dims, options, inputs)
        expected = fp8.reference(dims, options, inputs)
        np.testing.assert_allclose(expected["o"]["value"], o, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(expected["lse"]["value"], lse, rtol=1e-12, atol=1e-13)


# ---- bounds ----


def model_kernel(
    dims: dict[str, int], options: dict[str, str], inputs: dict[str, np.ndarray], bug: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """A tiled float32 kernel with P scaled and stored in its type; `bug` breaks one line."""
    form, stored = options["format"], fp8.held(options)
    q, k, v = (
        fp8.decode(inputs[name], form).astype(np.float32) + (bug == "midpoint") for name in "qkv"
    )
    p_scale = np.float32(
        {"": fp8.LEAST_P_SCALE.get(form, 1.0), "P not scaled": 1.0}.get(bug, stored.p_scale)
    )
    visible = np.minimum(
        fp8.visible_keys(dims, options["mask"]) + (bug == "mask one off"), dims["S_kv"]
    )
    keys = dims["S_kv"] - (bug == "last key missing")
    o, lse = np.zeros(q.shape, stored.o_dtype), np.zeros(q.shape[:3], np.float32)
    for b, h in itertools.product(range(dims["B"]), range(dims["H"])):
        head = h * dims["H_kv"] // dims["H"]
        scale = (
            np.float32(dims["D"] ** -0.5)
            * inputs["q_scale"][b, h]
            * inputs["k_scale"][b, head - (bug == "k scale")]
        )
        top = np.full(dims["S_q"], -np.inf, np.float32)
        total, out = (
            np.zeros(dims["S_q"], np.float32),
            np.zeros((dims["S_q"], dims["D"]), np.float32),
        )
        for first in range(0, keys, TILE_KV):
            tile = slice(first, min(first + TILE_KV, keys))
            score = (q[b, h] @ k[b, head, tile].T) * scale
            score = np.where(
                np.arange(tile.start, tile.stop) < visible[:, None], score, np.float32(-np.inf)
            )
            new_top = np.maximum(top, score.max(axis=1))
            shift = np.where(np.isneginf(new_top), np.float32(0), new_top)
            shrink, top = np.exp(top - shift), new_top
            p = np.exp(score - shift[:, None])
            held = (p * p_scale).astype(stored.p_dtype).astype(np.float32)
            total = total * shrink + (
                held.sum(axis=1) / p_scale if bug == "sum of the rounded P" else p.sum(axis=1)
            )
            out = (
                out * (1 if bug == "o not rescaled" else shrink[:, None]) + held @ v[b, head, tile]
            )
        factor = inputs["v_scale"][b, head - (bug == "v scale")] / p_scale
        o[b, h] = (out * (factor / np.where(total > 0, total, 1))[:, None]).astype(stored.o_dtype)
        with np.errstate(divide="ignore"):
            lse[b, h] = top + np.log(total)
    return o, lse


def judge(expected: dict[str, np.ndarray | None], got: np.ndarray) -> bool:
    got, value = got.astype(np.float64), expected["value"]
    with np.errstate(invalid="ignore"):
        error = np.where(got == value, 0.0, np.abs(got - value))
    if not (error <= expected["bound"]).all():
        return False
    return expected["rounded"] is None or bool(
        np.linalg.norm(error) <= FROBENIUS_FACTOR * np.linalg.norm(expected["rounded"] - value)
    )


def accepts(
    dims: dict[str, int], options: dict[str, str], recipe: str, seed: int, bug: str = ""
) -> bool:
    inputs = fp8.make_inputs(dims, options, recipe, seed, TILES)
    expected = fp8.reference(dims, options, inputs)
    with np.errstate(all="ignore"):
        o, lse = model_kernel(dims, options, inputs, bug)
    return judge(expected["o"], o) and judge(expected["lse"], lse)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("recipe", fp8.RECIPES)
def test_a_right_kernel_passes_on_every_recipe(recipe, form):
    """At the least correct scale of P: the largest is closer to the reference's own model."""
    for seed, (mask, dtype) in enumerate(
        [("none", "fp16"), ("causal_top_left", "bf16"), ("causal_bottom_right", "fp16")]
    ):
        for dims in (
            dims_of(33, 3 * TILE_KV + 1, heads=6, kv_heads=3),
            dims_of(1, 33, batch=2),
            dims_of(17, 17),
        ):
            assert accepts(dims, options_of(form, dtype, mask), recipe, seed), (mask, seed, dims)


ANYWHERE = (
    ("last key missing", "normal"),
    ("last key missing", "equal_keys"),
    ("last key missing", "small_weights"),
    ("o not rescaled", "rising"),
    ("mask one off", "normal"),
    ("mask one off", "row_code"),
    ("k scale", "head_scales"),
    ("v scale", "head_scales"),
)
OF_ONE_BYTE = (("sum of the rounded P", "normal"), ("P not scaled", "small_weights"))
WRONG = (
    [(form, *change) for form in FORMATS for change in ANYWHERE]
    + [(form, *change) for form in ("e4m3", "e5m2") for change in OF_ONE_BYTE]
    + [
        ("sim", "midpoint", "normal"),
        ("sim", "midpoint", "zero_heads"),
        ("sim", "v scale", "normal"),
    ]
)


@pytest.mark.parametrize(("form", "bug", "recipe"), WRONG)
def test_a_wrong_kernel_fails(form, bug, recipe):
    mask = "causal_top_left" if bug == "mask one off" else "none"
    dims = dims_of(33, 3 * TILE_KV + 1, heads=6, kv_heads=3)
    assert not accepts(dims, options_of(form, mask=mask), recipe, 0, bug)


# ---- probes ----


def cut(numbers: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Numbers without their bits 13 places below the largest addend's."""
    unit = np.where(largest > 0.0, fp8.last_place(largest), 1.0)
    return np.trunc(numbers / unit) * unit


def hopper_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left right^T as an H200's wgmma was seen to add: 32 products at once, each addend cut."""
    total = np.zeros((len(left), len(right)))
    for first in range(0, left.shape[1], 32):
        step = slice(first, first + 32)
        terms = left[:, None, step] * right[None, :, step]
        largest = np.maximum(np.abs(terms).max(axis=2), np.abs(total))
        total = cut(terms, largest[..., None]).sum(axis=2) + cut(total, largest)
        total = cut(total, np.abs(total))
    return total


HARD = ("normal", "rising", "dominant_key", "small_weights", "extreme_codes")


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
def test_probes_allow_what_an_adder_of_13_bits_loses_and_little_more(form):
    dims, options, values = dims_of(33, 97), options_of(form), {"tile_q": 16, "tile_kv": 16}
    weight = fp8.plain.probe_weight(np.arange(33)[:, None], np.arange(97)[None])
    for recipe in HARD:
        inputs = fp8.make_inputs(dims, options, recipe, 0, TILES)
        q, k, v = (fp8.decode(inputs[name], form)[0] for name in "qkv")
        scales = [inputs[f"{name}_scale"][0].astype(np.float64) for name in "qkv"]
        scores = [hopper_product(q[h], k[h]) * scales[0][h] * scales[1][h] for h in range(2)]
        sums = [hopper_product(weight, v[h].T) * scales[2][h] for h in range(2)]
        for stage, got in (("qk", np.array([scores])), ("pv", np.array([[sums]]))):
            judged = getattr(fp8, f"probe_{stage}")(dims, options, inputs, values, got)
            error = np.abs(judged.get("got", got) - judged["value"])
            assert (error <= judged["bound"]).all(), (recipe, stage)
            size = np.abs(judged["value"]).mean()
            assert np.median(judged["bound"]) < 0.01 * size, (recipe, stage)


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
def test_a_probe_finds_one_product_that_is_left_out(form):
    dims, options = dims_of(33, 97), options_of(form)
    inputs = fp8.make_inputs(dims, options, "normal", 0, TILES)
    q, k = (fp8.dequantised(inputs, name, form)[0] for name in "qk")
    got = np.array([[hopper_product(q[h][:, 1:], k[h][:, 1:]) for h in range(2)]])
    judged = fp8.probe_qk(dims, options, inputs, {}, got)
    assert (np.abs(got - judged["value"]) > judged["bound"]).mean() > 0.9
