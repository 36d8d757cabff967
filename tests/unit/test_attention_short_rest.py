"""attention/wgmma with `short_rest`: walks that begin with a part of a tile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from changed_subjects import changed_subject

from greenfast.search.diagnose.probes import probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.expressions import expression
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.verdict import Outcome

PAIR = {"consumers": 2, "tile_n": 80, "turns": False, "overlap": False}
ALONE = {"consumers": 1, "tile_n": 64, "turns": False}
TURNS = {"consumers": 2, "tile_n": 64, "turns": True, "masks_apart": True}
STAYS = {"scheduler": "persistent_all", "q_buffers": 2}
# Each way to load, to keep the softmax before the wait, to store O and to add up the rows.
CASES = [
    ("none", "bf16", {**PAIR, "sum_columns": True}),
    ("causal_bottom_right", "fp16", {**TURNS, "ordered": True, "ordered_part": "half"}),
    ("causal_top_left", "bf16", {**TURNS, **STAYS, "lazy_rescale": True}),
    ("none", "fp16", {**ALONE, "loader": "self", "epilogue": "direct"}),
]
# Keys beside two tiles: sixteen, half a tile, none, and one more than each.
KEYS = ("1", "16", "17", "ceil_div(tile_kv, 32) * 16", "ceil_div(tile_kv, 32) * 16 + 1", "0")
ROWS = ("1", "65", "64", "63", "129", "80")  # of which some leave a warpgroup without rows


def items(mask="none", dtype="bf16", width=64):
    return (("D", width), ("dtype", dtype), ("mask", mask))


def at_every_rest(kernel, mask):
    (like,) = [check for check in kernel.checks if check.name == "tile_plus_one"]
    checks = []
    for rows, keys in zip(ROWS, KEYS, strict=True):
        dims = dict(like.dims)
        dims["S_q"] = expression(rows if mask == "none" else f"tile_q + {keys}", "test")
        dims["S_kv"] = expression(f"2 * tile_kv + {keys}", "test")
        checks.append(replace(like, name=f"rest_{len(checks)}", dims=tuple(dims.items())))
    return replace(kernel, checks=tuple(checks))


@pytest.fixture
def subject(catalogue, emulator):
    made = partial(changed_subject, catalogue, emulator, "attention", "wgmma", "fa3")
    return lambda compiled, **more: made({"short_rest": True, **more}, compiled=compiled)


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "dtype", "parameters"), CASES)
def test_every_rest_is_right(subject, mask, dtype, parameters):
    made = subject(items(mask, dtype), **parameters)
    conditions = replace(made.conditions, kernel=at_every_rest(made.kernel, mask))
    for each in (made, replace(made, conditions=conditions)):
        judged = CorrectnessGate().judge(each)
        assert judged.outcome is Outcome.PASSED, judged
    assert SafetyGate().judge(made).outcome is Outcome.PASSED


@pytest.mark.slow
def test_every_stage_can_be_probed(subject, catalogue, emulator, toolchain):
    compiled = items("causal_bottom_right")
    made = subject(compiled, **TURNS, ordered=True, ordered_part="half")
    context = EvaluationContext(
        made.kernel, compiled, (), emulator, toolchain, catalogue.include_dirs, GateLimits(), 0
    )
    reports = probe_candidate(context, made.candidate, ("more_keys_grouped_heads",))
    assert {report.outcome for report in reports} == {"right"}, reports
