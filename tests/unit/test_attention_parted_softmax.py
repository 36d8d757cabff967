"""attention/wgmma with `ordered_part`: the same bits and probes, with the wait in other places."""

from __future__ import annotations

from functools import partial

import pytest
from changed_subjects import changed_subject

from greenfast.search.diagnose.probes import probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate, differing_outputs
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.verdict import Outcome

COMPILED = (("D", 64), ("dtype", "bf16"), ("mask", "causal_bottom_right"))
ORDERED = {"turns": True, "ordered": True, "tile_n": 64, "consumers": 2, "stages": 2}
WAIT = "gf::wgmma_wait<0>();\n        release(&barriers.v_empty"
FIRST, REST = "scale_log2, 0, 1);", "scale_log2, 1, 2);"


@pytest.fixture
def subject(catalogue, emulator):
    made = partial(changed_subject, catalogue, emulator, "attention", "wgmma", "fa3")
    return lambda part, **more: made({**ORDERED, "ordered_part": part, **more}, compiled=COMPILED)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "lazy"), [("half", True), ("maxima", False)])
def test_results_are_those_of_the_whole_softmax_before_the_wait(subject, part, lazy):
    parted = subject(part, lazy_rescale=lazy)
    assert differing_outputs(subject("all", lazy_rescale=lazy), parted) == ()
    assert CorrectnessGate().judge(parted).outcome is Outcome.PASSED
    assert SafetyGate().judge(parted).outcome is Outcome.PASSED


def test_half_of_the_exponentials_is_on_each_side_of_the_wait(subject):
    text = subject("half").source.text
    loop = text[text.index("while (--key_tile") :]
    assert loop.index(FIRST) < loop.index("computed_before") < loop.index(WAIT) < loop.index(REST)
    loop = subject("maxima").source.text.partition("while (--key_tile")[2]
    assert loop.index(WAIT) < loop.index("scale_log2, 0, 2);") and FIRST not in loop


@pytest.mark.slow
@pytest.mark.parametrize("part", ["half", "maxima"])
def test_every_stage_can_be_probed(subject, catalogue, emulator, toolchain, part):
    made = subject(part)
    context = EvaluationContext(
        made.kernel, COMPILED, (), emulator, toolchain, catalogue.include_dirs, GateLimits(), 0
    )
    reports = probe_candidate(context, made.candidate, ("more_keys_grouped_heads",))
    assert {report.outcome for report in reports} == {"right"}, reports
