"""Ablations on drawn times: what helps, what does not, and what cannot be told."""

from __future__ import annotations

import math

import pytest
from confirmed_searches import ScatteringGpu, by_threads
from contexts import workload_context

from greenfast.search.diagnose.ablation import (
    ArmResult,
    Effect,
    Measurement,
    Scale,
    begin,
    corrected_interval,
    effect_of,
    judged,
    measured_arm,
)
from greenfast.search.diagnose.ablation_points import (
    TimedPoint,
    arms_of,
    pooled_pairs,
    retuned_points,
)
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space

MEASURED = Scale("measured", 1.0, 4)
MODELLED = Scale("modelled", 2.0, 4)


def point(threads: int, per_thread: int):
    return (("threads", threads), ("per_thread", per_thread))


@pytest.fixture
def ablate(album, toolchain):
    """`ablate(law)`: the findings on the plain preset's arms, by name, on drawn times."""

    def run(fast, retune=4):
        gpu = ScatteringGpu(by_threads(fast))
        context = workload_context(album, "axpy", "line", gpu, toolchain)
        template = context.kernel.template("right")
        winner = preset_candidate(template, "plain", context.compiled)
        space = Space(template, context.compiled, gpu.device)
        ablation = begin(context, winner, space)
        arms = arms_of(space, winner.parameters)
        scale = Scale("measured", 1.0, len(arms))
        return {
            arm.name: judged(measured_arm(ablation, arm, scale, (), retune), scale) for arm in arms
        }

    return run


def test_neighbours_of_numbers_are_timed_in_turns_and_judged_with_numbers(ablate):
    findings = ablate({(128, 1): 8.0, (64, 1): 9.0, (256, 1): 8.0, (128, 2): 7.0})
    assert list(findings) == ["threads=64", "threads=256", "per_thread=2"]
    slower, same, faster = findings.values()
    assert slower.effect is Effect.HELPS and slower.low > 1.08 and slower.ratio < 1.17
    assert faster.effect is Effect.HURTS and faster.high < 0.92
    assert same.effect is Effect.NO_EFFECT and same.low < 1 < same.high
    assert slower.sentence.startswith(
        f"threads=128 helps: with threads=64 it takes {slower.ratio:.3f}"
    )
    assert len(slower.arm.alone.log_ratios) == 40  # all blocks, however clear


def test_a_value_that_was_tuned_together_with_another_proves_useless_once_that_is_tuned_again(
    ablate,
):
    """threads=64 is slow with the winner's per_thread=1, and as fast as the winner with 2."""
    findings = ablate({(128, 1): 8.0, (64, 1): 11.0, (64, 2): 8.0, (256, 1): 8.0, (128, 2): 8.0})
    finding = findings["threads=64"]
    assert finding.ratio > 1.3 and finding.effect is Effect.NO_EFFECT
    assert dict(finding.arm.best.parameters) == {"threads": 64, "per_thread": 2}
    assert "the best with threads=64 takes" in finding.sentence
    plain = ablate({(128, 1): 8.0, (64, 1): 11.0, (64, 2): 8.0}, retune=0)
    assert plain["threads=64"].effect is Effect.HELPS  # a plain flip is fooled


def test_an_arm_that_is_invalid_or_wrong_has_no_time_and_says_why(album):
    kernel = album.kernel("axpy")
    compiled = kernel.workload("line").compile_time(kernel)
    from greenfast.search.devices.facts import device

    space = Space(kernel.template("right"), compiled, device("h200"))
    tied = next(arm for arm in arms_of(space, point(256, 2)) if arm.along)
    assert (tied.name, tied.along) == ("per_thread=4", (("threads", 128),)) and not tied.refused
    assert dict(tied.parameters) == {"threads": 128, "per_thread": 4}
    assert "larger than 512" in tied.tied and space.why_not(tied.parameters) is None
    plain = Measurement(tied.parameters, "d", "green", ratio=1.2, log_ratios=(math.log(1.2),) * 40)
    along = {"along": tied.along, "tied": tied.tied}
    finding = judged(ArmResult("per_thread", 2, 4, "step", "", plain, **along), MEASURED)
    assert "with per_thread=4 and threads=128 it takes 1.200" in finding.sentence
    assert "threads changes too, since alone: 256 threads" in finding.sentence
    refused = ArmResult("per_thread", 2, 4, "step", tied.tied)
    assert "is not a valid point" in judged(refused, MEASURED).sentence
    wrong = Measurement(
        point(64, 1), None, "rejected", "safety", "race", "two threads touch the same bytes"
    )
    assert effect_of(wrong, MEASURED) is Effect.UNCLEAR


def test_within_the_band_of_a_model_nothing_is_said_and_beyond_it_only_the_kind_of_time():
    def measurement(ratio):
        return Measurement(point(64, 1), None, "green", ratio=ratio)

    assert effect_of(measurement(1.9), MODELLED) is Effect.UNCLEAR
    assert effect_of(measurement(0.6), MODELLED) is Effect.UNCLEAR
    assert effect_of(measurement(2.1), MODELLED) is Effect.HELPS
    assert effect_of(measurement(0.4), MODELLED) is Effect.HURTS


def test_intervals_widen_with_the_number_of_comparisons_and_cover_what_a_process_is_off():
    logs = [math.log(1.05) + 0.001 * (number % 5 - 2) for number in range(40)]
    few, many = corrected_interval(logs, 1), corrected_interval(logs, 50)
    assert many[0] < few[0] and few[2] < many[2]
    assert few[1] == pytest.approx(1.05, abs=0.002)
    assert few[2] / few[0] > 1.03  # 0.8 % scatter of a process, however quiet the blocks
    assert corrected_interval(logs[:3], 1) is None  # three blocks cannot have such an interval


def test_pairs_of_earlier_trials_are_pooled_within_a_group_only(album):
    kernel = album.kernel("axpy")
    compiled = kernel.workload("line").compile_time(kernel)
    from greenfast.search.devices.facts import device

    space = Space(kernel.template("right"), compiled, device("h200"))
    arm = next(arm for arm in arms_of(space, point(128, 1)) if arm.name == "threads=64")
    trials = [
        TimedPoint("s/1", point(128, 1), 1.0, "s"),
        TimedPoint("s/2", point(64, 1), 1.1, "s"),
        TimedPoint("s/3", point(64, 2), 1.2, "s"),
        TimedPoint("t/4", point(128, 2), 1.0, "t"),  # another group: never compared with s/3
    ]
    pooled = pooled_pairs(arm, trials)
    assert (pooled.pairs, pooled.slower, pooled.names) == (1, 1, ("s/2", "s/1"))
    assert pooled.ratio == pytest.approx(1.1)
    assert pooled_pairs(arm, trials[2:]) is None
    tuned = retuned_points(space, arm, [point(64, 4), point(128, 1)], 4, 0)
    assert tuned[0] == point(64, 4) and all(dict(each)["threads"] == 64 for each in tuned)
    assert arm.parameters not in tuned and len(set(tuned)) == len(tuned)
