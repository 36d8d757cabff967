"""Sentences of gates: memory that emulated runs do not have, and each limiting resource."""

from __future__ import annotations

import pytest
from contexts import workload_context

from greenfast.search.gates.performance import BINDING_SHARE, binding_limits
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import (
    Green,
    Reason,
    Rejected,
    Stage,
    TimeKind,
    Timing,
    gate_result,
    performance_of,
)


@pytest.fixture
def judged(artifacts, toolchain):
    """The verdict on a catalogue's axpy."""

    def judge(catalogue):
        target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
        context = workload_context(catalogue, "axpy", "line", target, toolchain)
        template = context.kernel.template("right")
        return evaluate(preset_candidate(template, "plain", context.compiled), context).verdict

    return judge


@pytest.mark.parametrize("size", [10 * 2**30, 2**45])
def test_a_workspace_that_no_run_has_is_the_candidates_fault_and_not_ours(
    size, broken_kernel, judged
):
    broken_kernel(
        "right.cu.j2", "int N, float a, float b)", "int N, float a, float b, char* scratch)"
    )
    verdict = judged(
        broken_kernel(
            "right.toml",
            "[presets.plain]",
            f"""[[workspaces]]
name = "scratch"
bytes = "{size}"
zero_fill = false

[presets.plain]""",
        )
    )
    assert isinstance(verdict, Rejected) and (verdict.stage, verdict.reason) == (
        Stage.CORRECTNESS,
        Reason.OUT_OF_MEMORY,
    )
    assert f"its workspaces need {size:,} bytes; a run on the emulator has" in verdict.sentence


def test_every_limit_that_binds_is_named(album, judged):
    verdict = judged(album)
    assert isinstance(verdict, Green)
    (timing,) = performance_of(verdict).timings
    bound = binding_limits(timing)
    assert bound[0] == timing.limited_by
    assert f"(limited by {' and '.join(bound)})" in gate_result(verdict, "performance").sentence


def test_what_takes_nearly_as_long_as_the_longest_binds_too():
    limits = (
        ("shared memory", 4.0),
        ("tensor cores", 4.0 * BINDING_SHARE),
        ("latency", 3.0),
        ("DRAM", 0.1),
    )
    timing = Timing("mission", 5.0, TimeKind.MODELLED, "shared memory", limits=limits)
    assert binding_limits(timing) == ("shared memory", "tensor cores")
    assert binding_limits(Timing("mission", 5.0, TimeKind.REPLAYED, "latency")) == ("latency",)
