"""The independent checkers accept float32 kernels in NumPy and reject a dozen faults in each."""

from __future__ import annotations

import ast
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import bench.correctness.independent
from bench.correctness.independent import CHECKERS, attention
from bench.correctness.independent.attention import visible
from bench.correctness.independent.memory import (
    NUMBERS,
    STORED,
    UNIT,
    decoded,
    elements,
    encoded,
    numbers,
)
from bench.correctness.independent_works import Work, outcome
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue

TILES = {"tile_q": 16, "tile_kv": 24, "depth": 2}
ROW_TILES = {"tile_rows": 2, "tile_columns": 256, "kept_columns": 512}
MASKS = ("none", "causal_top_left", "causal_bottom_right")
MEMBER = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def rounded(values, type_, scale=1.0):
    """To a type and back, by a library that the checker does not use."""
    return (values * scale).astype(np.float32).astype(MEMBER[type_]).astype(
        np.float32
    ) / np.float32(scale)


def fp8_attention(case, images, **wrong):
    """A correct float32 kernel on codes: P in the codes' type times its power of two."""
    form, factors = case["format"], []
    for name in "qkv":
        scales = elements(images[f"{name}_scale"], case["tensors"][f"{name}_scale"]).view(
            np.float32
        )
        if "scale_of_head_0" in wrong:
            scales = np.broadcast_to(scales[:, :1], scales.shape)
        codes = np.ascontiguousarray(elements(images[name], case["tensors"][name]))
        values = (
            codes - np.float32(127.0 if "midpoint" in wrong else 128.0)
            if form == "sim"
            else codes.view(MEMBER[form])
        )
        factors.append(values.astype(np.float32) * scales[..., None, None])
    p_scale = 1.0 if "no_p_scale" in wrong else {"e4m3": 2.0**8, "e5m2": 2.0**15}.get(form, 1.0)

    def kept(p):
        if form == "sim":
            return rounded(p, "bf16" if "coarse" in wrong else case["dtype"])
        return rounded(p, form, p_scale)

    return answer(case, images, factors, kept, wrong)


def half_attention(case, images, **wrong):
    """A right float32 kernel with P in the storage type."""
    factors = [numbers(images[name], case["tensors"][name]).astype(np.float32) for name in "qkv"]
    return answer(
        case,
        images,
        factors,
        lambda p: rounded(p, "bf16" if "coarse" in wrong else case["dtype"]),
        wrong,
    )


def answer(case, images, factors, kept_as, wrong):
    """What a kernel leaves that multiplies kept_as(P) by V; `wrong` plants one mistake."""
    dtype, heads = case["dtype"], case["H"]
    q, k, v = factors
    head = (
        np.arange(heads) // (heads // case["H_kv"])
        if "head" not in wrong
        else np.arange(heads) % case["H_kv"]
    )
    k, v = k[:, head], v[:, head]
    seen = visible(case)
    if "mask" in wrong and case["mask"] != "none":
        seen = np.pad(seen, ((0, 0), (1, 0)), constant_values=True)[:, :-1]  # one key too many
    if "last" in wrong and case["S_kv"] > 1:
        seen = seen & (np.arange(case["S_kv"]) < case["S_kv"] - 1)
    scale = np.float32(case["D"] ** -0.5) * np.float32(wrong.get("scale", 1.0))
    scores = np.where(seen, scale * (q @ k.swapaxes(2, 3)), -np.inf).astype(np.float32)
    top = scores.max(3, initial=-np.inf)
    some = np.isfinite(top)
    top = np.where(some, top, 0.0)
    p = np.exp(scores - top[..., None])
    total = p.sum(3)
    kept = kept_as(p)
    if "rescale" in wrong:
        kept[..., : case["S_kv"] // 2] *= wrong["rescale"]
    if "swapped" in wrong and case["S_kv"] > 2:
        v = v[:, :, np.r_[1, 0, 2 : case["S_kv"]]]
    o = (kept @ v) / np.where(total > 0, total, 1.0)[..., None] * wrong.get("factor", 1.0)
    if "row" in wrong and case["S_q"] > 3:
        o[:, :, 2] = o[:, :, 3]
    after = {name: image.copy() for name, image in images.items()}
    elements(after["o"], case["tensors"]["o"])[...] = encoded(o.astype(np.float64), dtype)
    with np.errstate(divide="ignore"):
        lse = np.where(some, top + np.log(total) + wrong.get("lse", 0.0), -np.inf).astype(
            np.float32
        )
    after["lse"][: lse.size] = lse.reshape(-1).view(np.uint32)
    if "input" in wrong:
        after["k"][0] ^= 1
    if "beyond" in wrong:
        after["o"][-1] = 0
    if "unwritten" in wrong and case["S_q"]:
        elements(after["o"], case["tensors"]["o"])[-1, -1, -1, -1] = STORED[dtype][1]
    return after


def norm(case, images, **wrong):
    """A right float32 kernel; h is rounded before it is squared, or not."""
    x, residual, weight = (
        numbers(images[name], case["tensors"][name]).astype(np.float32)
        for name in ("x", "residual", "weight")
    )
    h = x + residual
    kept = rounded(h, case["dtype"])
    used = h if "of_exact" in wrong else kept
    squares = used * used
    if "last" in wrong and case["N"] > 1:
        squares[:, -1] = 0.0
    mean = squares.sum(1, keepdims=True, dtype=np.float32) / np.float32(
        case["N"] + wrong.get("columns", 0)
    )
    y = used / np.sqrt(mean + np.float32(wrong.get("eps", 1e-6)))
    if "twice" in wrong:
        y = rounded(y, case["dtype"])
    y = (
        y
        * (np.roll(weight, 1) if "shifted" in wrong else weight)
        * np.float32(wrong.get("factor", 1.0))
    )
    if "row" in wrong and case["M"] > 1:
        y[1] = y[0]
    after = {name: image.copy() for name, image in images.items()}
    elements(after["y"], case["tensors"]["y"])[...] = encoded(y.astype(np.float64), case["dtype"])
    bits = encoded(kept.astype(np.float64), case["dtype"])
    elements(after["h"], case["tensors"]["h"])[...] = bits ^ 1 if "last_bit" in wrong else bits
    if "input" in wrong:
        after["weight"][0] ^= 1
    if "beyond" in wrong:
        after["h"][-1] = 0
    if "unwritten" in wrong:
        elements(after["y"], case["tensors"]["y"])[-1, -1] = STORED[case["dtype"]][1]
    return after


def layer(case, images, **wrong):
    """c = activation(a b^T + bias) + residual in float64, or with one mistake."""
    after = {name: image.copy() for name, image in images.items()}
    a, b, bias, residual = (
        numbers(images[name], case["tensors"][name]) for name in ("a", "b", "bias", "residual")
    )
    if "a_scale" in images:
        scales = {key: numbers(images[key], case["tensors"][key]) for key in ("a_scale", "b_scale")}
        if "scale" in wrong:
            scales = {key: np.full_like(scale, scale[0]) for key, scale in scales.items()}
        a, b = a * scales["a_scale"][:, None], b * scales["b_scale"][:, None]
    terms = slice(None, -1) if "last" in wrong else slice(None)
    c = a[:, terms] @ b[:, terms].T
    if case["bias"] == "yes" and "bias" not in wrong:
        c = c + bias
    c = c * wrong.get("factor", 1.0)
    if "activation" not in wrong:
        c = {"gelu": gelu, "silu": silu, "none": lambda x: x}[case["activation"]](c)
    if case["residual"] == "yes":
        c = c + residual * (2.0 if "residual" in wrong else 1.0)
    if "shifted" in wrong:
        c = np.roll(c, 1, axis=1)
    elements(after["c"], case["tensors"]["c"])[...] = encoded(c, case["dtype"])
    if "row" in wrong:
        elements(after["c"], case["tensors"]["c"])[-1] = 0
    if "input" in wrong:
        after["a"][case["tensors"]["a"]["offset"]] ^= 1
    if "beyond" in wrong:
        after["c"][-1] = 0
    if "unwritten" in wrong:
        elements(after["c"], case["tensors"]["c"])[-1, -1] = STORED[case["dtype"]][1]
    return after


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1.0 + np.exp(np.minimum(-x, 700.0)))


KERNELS = {
    "gemm": (
        layer,
        {"tile_rows": 32, "tile_columns": 48, "tile_depth": 32, "depth": 2},
        [
            {"dtype": dtype, "activation": activation, "bias": more, "residual": more}
            for dtype in ("fp16", "bf16")
            for activation, more in (("none", "no"), ("gelu", "yes"), ("silu", "yes"))
        ],
    ),
    "gemm_fp8": (
        layer,
        {"tile_rows": 32, "tile_columns": 48, "tile_depth": 32, "depth": 2},
        [
            {
                "format": form,
                "sums": "fast",
                "dtype": dtype,
                "row_scales": row_scales,
                "activation": activation,
                "bias": more,
                "residual": more,
            }
            for form, row_scales in (("e4m3", 0), ("e5m2", 1))
            for dtype, activation, more in (("bf16", "none", "no"), ("fp16", "silu", "yes"))
        ],
    ),
    "attention": (
        half_attention,
        TILES,
        [{"D": 64, "dtype": dtype, "mask": mask} for dtype in ("fp16", "bf16") for mask in MASKS],
    ),
    "attention_fp8": (
        fp8_attention,
        TILES,
        [
            {"D": 32, "dtype": dtype, "mask": mask, "format": form}
            for form in ("sim", "e4m3", "e5m2")
            for dtype, mask in (
                ("fp16", "none"),
                ("bf16", "causal_bottom_right"),
                ("fp16", "causal_top_left"),
            )
        ],
    ),
    "rmsnorm": (norm, ROW_TILES, [{"dtype": "fp16"}, {"dtype": "bf16"}]),
}


def judgements(name, wrong, seed=3):
    checker, (kernel, tiles, groups) = CHECKERS[name], KERNELS[name]
    rng = np.random.default_rng(seed)
    for compiled in groups:
        for case in checker.draw_cases(rng, tiles, compiled):
            images = checker.images(case)
            yield case, checker.judged(case, images, kernel(case, images, **wrong))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_is_right_with_some_of_what_the_mean_allows_to_spare(name, seed):
    for case, (why, ratio) in judgements(name, {}, seed):
        assert why == "", case
        assert ratio < 0.7 * attention.RMS_FACTOR, case


@pytest.mark.parametrize(
    "wrong",
    [{"of_exact": True}, {"twice": True}, {"of_exact": True, "twice": True}],
    ids=" ".join,
)
def test_rmsnorm_may_be_made_of_the_exact_h_and_rounded_before_its_weight(wrong):
    assert [why for _, (why, _) in judgements("rmsnorm", wrong) if why] == []


ATTENTION_MISTAKES = [
    {"scale": 1.02},
    {"mask": True},
    {"last": True},
    {"head": True},
    {"rescale": 1.02},
    {"swapped": True},
    {"factor": 1.01},
    {"row": True},
    {"lse": 0.05},
    {"input": True},
    {"beyond": True},
    {"unwritten": True},
    {"coarse": True},
]
FP8_MISTAKES = [
    *(mistake for mistake in ATTENTION_MISTAKES if "rescale" not in mistake),
    {"rescale": 1.1},
    {"scale_of_head_0": True},
    {"midpoint": True},
    {"no_p_scale": True},
]
NORM_MISTAKES = [
    {"eps": 0.0},
    {"eps": 1e-5},
    {"last": True},
    {"columns": 1},
    {"factor": 1.01},
    {"shifted": True},
    {"row": True},
    {"last_bit": True},
    {"input": True},
    {"beyond": True},
    {"unwritten": True},
]


LAYER_MISTAKES = [
    {"last": True},
    {"bias": True},
    {"factor": 1.01},
    {"activation": True},
    {"residual": True},
    {"shifted": True},
    {"row": True},
    {"input": True},
    {"beyond": True},
    {"unwritten": True},
]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("gemm", mistake) for mistake in LAYER_MISTAKES),
        *(("gemm_fp8", mistake) for mistake in [*LAYER_MISTAKES, {"scale": True}]),
        *(("attention", mistake) for mistake in ATTENTION_MISTAKES),
        *(("attention_fp8", mistake) for mistake in FP8_MISTAKES),
        *(("rmsnorm", mistake) for mistake in NORM_MISTAKES),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_each_mistake_is_seen(name, wrong):
    assert any(why for _, (why, _) in judgements(name, wrong))


@pytest.mark.parametrize("name", ["attention", "attention_fp8"])
def test_a_row_that_sees_no_key_must_be_zero_and_minus_infinity(name):
    checker, (kernel, tiles, groups) = CHECKERS[name], KERNELS[name]
    case = checker.draw_cases(np.random.default_rng(1), tiles, groups[0])[-1]
    images = checker.images(case)
    after = kernel(case, images)
    assert case["S_kv"] == 0 and checker.judged(case, images, after) == ("", 0.0)
    elements(after["o"], case["tensors"]["o"])[0, 0, 0, 0] = 1
    assert checker.judged(case, images, after)[0]


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
def test_its_eight_bit_numbers_are_the_formats(form):
    theirs = np.arange(256, dtype=np.uint8).view(MEMBER[form]).astype(np.float64)
    assert np.array_equal(NUMBERS[form], np.where(np.isinf(theirs), np.nan, theirs), equal_nan=True)
    values = np.random.default_rng(0).normal(size=1000) * 50.0
    error = np.abs(decoded(encoded(values, form), form) - values)
    assert np.array_equal(
        error, np.abs(values.astype(np.float32).astype(MEMBER[form]).astype(np.float64) - values)
    )
    assert error.max() <= UNIT[form] * np.abs(values).max()


@pytest.mark.parametrize("name", KERNELS)
def test_it_hands_a_kernel_what_kernel_toml_says(name):
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel(name)
    checker, (_, tiles, groups) = CHECKERS[name], KERNELS[name]
    case = checker.draw_cases(np.random.default_rng(0), tiles, groups[0])[0]
    given = checker.arguments(case)
    assert [value if type_ == "tensor" else type_ for type_, value in given] == [
        argument.dtype if argument.kind == "scalar" else argument.name
        for argument in kernel.arguments
    ]
    assert {argument.name for argument in kernel.arguments if argument.kind == "output"} == set(
        checker.OUTPUTS
    )


def test_the_checkers_and_their_runner_share_no_code_with_what_they_check():
    for path in Path(bench.correctness.independent.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(
                name.split(".")[0] in ("greenfast", "bench")
                and not name.startswith("bench.correctness.independent")
                for name in names
            ), path.name


def test_every_kernel_of_the_repository_has_a_checker():
    assert (
        set(CHECKERS)
        == {kernel.name for kernel in Catalogue([REPOSITORY_TEMPLATES]).kernels()}
        == set(KERNELS)
    )


@pytest.mark.parametrize(
    ("gate", "checker", "safety", "planted", "expected"),
    [
        ("", "", "", "", "both accept"),
        ("wrong", "wrong", "", "", "both reject"),
        ("wrong", "", "", "", "right rejected"),
        ("wrong", "", "", "drop a mask: a -> b", "only the gate rejects"),
        ("", "wrong", "", "", "wrong accepted"),
        ("", "wrong", "a race", "remove __syncthreads: a -> b", "only safety rejects"),
        (None, None, "", "", "not compiled"),
    ],
)
def test_what_gate_checker_and_safety_said_makes_one_word(gate, checker, safety, planted, expected):
    work = Work(0, None, (), None, planted, gate=gate, checker=checker, safety=safety)
    assert outcome(work) == expected
