"""The checker of bench/independent_check.py can say yes and no: float32 attention in NumPy, and a dozen ways to get it wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from bench import independent_reference
from bench.independent_check import Work, outcome
from bench.independent_reference import decoded, draw_cases, encoded, images, judged, strided, visible

TILES = {"tile_q": 16, "tile_kv": 24, "depth": 2}


def attention(case, found, **wrong):
    """What a right float32 kernel with P in the storage type leaves; `wrong` plants one mistake."""
    dtype, heads = case["dtype"], case["H"]
    q, k, v = (decoded(np.ascontiguousarray(strided(found[name], case, name, np)), dtype, np).astype(np.float32) for name in "qkv")
    head = np.arange(heads) // (heads // case["H_kv"]) if "head" not in wrong else np.arange(heads) % case["H_kv"]
    k, v = k[:, head], v[:, head]
    seen = visible(case, np)
    if "mask" in wrong and case["mask"] != "none":
        seen = np.pad(seen, ((0, 0), (1, 0)), constant_values=True)[:, :-1]       # one key too many
    if "last" in wrong and case["S_kv"] > 1:
        seen = seen & (np.arange(case["S_kv"]) < case["S_kv"] - 1)
    scale = np.float32(case["D"] ** -0.5) * np.float32(wrong.get("scale", 1.0))
    scores = np.where(seen, scale * (q @ k.swapaxes(2, 3)), -np.inf).astype(np.float32)
    top = scores.max(3, initial=-np.inf)
    some = np.isfinite(top)
    top = np.where(some, top, 0.0)
    p = np.exp(scores - top[..., None])
    total = p.sum(3)
    kept = decoded(encoded(p.astype(np.float64), "bf16" if "coarse" in wrong else dtype, np), "bf16" if "coarse" in wrong else dtype, np)
    if "rescale" in wrong:
        kept[..., :case["S_kv"] // 2] *= 1.02
    if "swapped" in wrong and case["S_kv"] > 2:
        v = v[:, :, np.r_[1, 0, 2:case["S_kv"]]]
    o = (kept.astype(np.float32) @ v) / np.where(total > 0, total, 1.0)[..., None] * wrong.get("factor", 1.0)
    if "row" in wrong and case["S_q"] > 3:
        o[:, :, 2] = o[:, :, 3]
    after = {name: image.copy() for name, image in found.items()}
    strided(after["o"], case, "o", np)[...] = encoded(o.astype(np.float64), dtype, np)
    with np.errstate(divide="ignore"):
        lse = np.where(some, top + np.log(total) + wrong.get("lse", 0.0), -np.inf).astype(np.float32)
    after["lse"][:lse.size] = lse.reshape(-1).view(np.uint32)
    if "input" in wrong:
        after["k"][0] ^= 1
    if "beyond" in wrong:
        after["o"][-1] = 0
    if "unwritten" in wrong and case["S_q"]:
        strided(after["o"], case, "o", np)[-1, -1, -1, -1] = independent_reference.SENTINEL[dtype]
    return after


def judgements(wrong, seed=3, masks=("none", "causal_top_left", "causal_bottom_right")):
    rng = np.random.default_rng(seed)
    for dtype in ("fp16", "bf16"):
        for mask in masks:
            for case in draw_cases(rng, TILES, 64, dtype, mask):
                found = images(case, np)
                yield case, judged(case, found, attention(case, found, **wrong), np)


@pytest.mark.parametrize("seed", range(3))
def test_right_attention_is_right_with_half_of_what_the_mean_allows_to_spare(seed):
    for case, (why, ratio) in judgements({}, seed):
        assert why == "", case
        assert ratio < independent_reference.RMS_FACTOR / 2


@pytest.mark.parametrize("wrong", [
    {"scale": 1.02}, {"mask": True}, {"last": True}, {"head": True}, {"rescale": True}, {"swapped": True}, {"factor": 1.01},
    {"row": True}, {"lse": 0.05}, {"input": True}, {"beyond": True}, {"unwritten": True}, {"coarse": True}],
    ids=lambda one: next(iter(one)))
def test_each_mistake_is_seen(wrong):
    assert any(why for _, (why, _) in judgements(wrong))


def test_a_row_that_sees_no_key_must_be_zero_and_minus_infinity():
    rng = np.random.default_rng(1)
    case = draw_cases(rng, TILES, 32, "fp16", "none")[-1]
    found = images(case, np)
    after = attention(case, found)
    assert case["S_kv"] == 0 and judged(case, found, after, np) == ("", 0.0)
    strided(after["o"], case, "o", np)[0, 0, 0, 0] = 1
    assert judged(case, found, after, np)[0]


def test_the_checker_and_its_runner_share_no_code_with_what_they_check():
    folder = Path(independent_reference.__file__).parent
    for name in ("independent_reference.py", "independent_runner.py"):
        for node in ast.walk(ast.parse((folder / name).read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(one.split(".")[0] in ("search", "kernel_templates", "app", "db") for one in names), name


@pytest.mark.parametrize(("gate", "checker", "safety", "planted", "expected"), [
    ("", "", "", "", "both accept"), ("wrong", "wrong", "", "", "both reject"), ("wrong", "", "", "", "right rejected"),
    ("wrong", "", "", "drop a mask: a -> b", "only the gate rejects"), ("", "wrong", "", "", "wrong accepted"),
    ("", "wrong", "a race", "remove __syncthreads: a -> b", "only safety rejects"), (None, None, "", "", "not compiled")])
def test_what_gate_checker_and_safety_said_makes_one_word(gate, checker, safety, planted, expected):
    work = Work(0, None, (), None, planted, gate=gate, checker=checker, safety=safety)
    assert outcome(work) == expected
