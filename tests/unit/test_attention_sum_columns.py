"""attention/wgmma with `sum_columns`: the row sums come from P V, with ones beside V."""

from __future__ import annotations

from functools import partial

import pytest
from changed_subjects import changed_subject

from greenfast.search.devices.facts import device
from greenfast.search.diagnose.probes import probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.render import render
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.verdict import Outcome

SUMS = {"sum_columns": True}
ALONE = {"consumers": 1, "tile_n": 64}
# Each with the log-sum-exp of rows, which comes from the sums.
CASES = [
    ("none", "bf16", {"tile_n": 80, "blocks_per_sm": 2, "overlap": False}),
    ("causal_bottom_right", "fp16", {**ALONE, "split_kv": 3, "combine": "cluster_push"}),
    ("causal_top_left", "bf16", {**ALONE, "scheduler": "persistent_all", "lazy_rescale": True}),
    ("none", "fp16", {**ALONE, "loader": "self", "split_kv": 2}),
]


def items(mask="none", dtype="bf16", width=64):
    return (("D", width), ("dtype", dtype), ("mask", mask))


@pytest.fixture
def subject(catalogue, emulator):
    made = partial(changed_subject, catalogue, emulator, "attention", "wgmma", "fa3")
    base = {"turns": False, "consumers": 2, "tile_n": 64, "stages": 2}
    return lambda compiled, **more: made({**base, **SUMS, **more}, compiled=compiled)


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "dtype", "parameters"), CASES)
def test_sums_are_right(subject, mask, dtype, parameters):
    made = subject(items(mask, dtype), **parameters)
    assert CorrectnessGate().judge(made).outcome is Outcome.PASSED
    assert SafetyGate().judge(made).outcome is Outcome.PASSED


@pytest.mark.slow
def test_every_stage_can_be_probed(subject, catalogue, emulator, toolchain):
    made = subject(items())
    context = EvaluationContext(
        made.kernel, items(), (), emulator, toolchain, catalogue.include_dirs, GateLimits(), 0
    )
    reports = probe_candidate(context, made.candidate, ("more_keys_grouped_heads",))
    assert {report.outcome for report in reports} == {"right"}, reports


def test_no_addition_is_left(catalogue):
    kernel = catalogue.kernel("attention")
    template = kernel.template("wgmma")
    point = resolve(template, complete_parameters(template, SUMS, items()), items(), device("h200"))
    text = render(kernel, template, point, catalogue.include_dirs).text
    assert "sum += score" not in text and "warp_sum" not in text.partition("finish_sums")[2]


def test_larger_heads_have_no_room_for_ones(catalogue):
    template = catalogue.kernel("attention").template("wgmma")
    space = Space(template, items(width=128), device("h200"))
    parameters = complete_parameters(template, SUMS, items(width=128))
    assert "heads of 64" in space.why_not(parameters)
    ordered = dict(complete_parameters(template, {**SUMS, "ordered": True}, items()))
    assert not ordered["sum_columns"]
