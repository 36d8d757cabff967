"""Measured times against what must come out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spins import spin

from greenfast.search.acceptance import measured_decision
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.timing import LOOKS, SCREEN_BLOCKS, Decision
from greenfast.search.verdict import Green, Outcome, Reason, Rejected, TimeKind, performance_of


def timing_of(verdict):
    return performance_of(verdict).timings[0]


@pytest.mark.parametrize("cycles", [20000, 100000, 2000000, 25000000])
def test_a_known_spin_takes_its_cycles_at_the_clock_of_the_gpu(cycles, gpu, bench_of):
    timing = timing_of(evaluate(spin(cycles), bench_of()).verdict)
    assert timing.time_kind is TimeKind.MEASURED
    least = cycles / gpu.device.clock_max_mhz
    assert 0.99 * least <= timing.time_median_us <= 1.02 * least + 1.5, timing


def test_known_bytes_move_at_less_than_the_peak_and_more_than_half_of_it(gpu, bench_of):
    timing = timing_of(evaluate(spin(0), bench_of("large")).verdict)
    rate = 8 * 2**24 / timing.time_median_us
    assert 0.5 * gpu.device.dram_bytes_per_us < rate < gpu.device.dram_bytes_per_us, (
        rate,
        timing.note,
    )
    assert timing.note.startswith("cold")


def test_a_small_workload_that_is_asked_for_cold_is_timed_over_a_ring_beyond_the_l2(bench_of):
    hot, cold = (
        timing_of(evaluate(spin(0), replace(bench_of(), mode=mode)).verdict)
        for mode in ("hot", "cold")
    )
    assert hot.note.startswith("hot, ring of 1,") and cold.note.startswith("cold, ring of ")
    assert dict(cold.detail)["nodes"] >= dict(cold.detail)["sets"] > 1


def compared(context, candidate):
    baseline = evaluate(context.baseline, context).verdict
    assert isinstance(baseline, Green) and baseline.gates[2].outcome is Outcome.UNAVAILABLE
    return evaluate(candidate, context, lambda: performance_of(baseline).timings).verdict


def test_a_3_percent_slower_twin_is_slower_and_the_samples_say_so(bench_of):
    verdict = compared(bench_of(), spin(103000))
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.SLOWER, verdict.sentence
    evidence = performance_of(verdict)
    assert 1.02 < evidence.ratio_to_baseline < 1.04
    decision, interval = measured_decision(evidence.timings)
    assert decision is Decision.SLOWER and interval.ratios[::2] == evidence.ratio_interval


def test_a_much_slower_one_is_let_go_by_the_screen(bench_of):
    verdict = compared(bench_of(), spin(200000))
    assert verdict.reason is Reason.SLOWER and len(timing_of(verdict).samples) == 2 * SCREEN_BLOCKS
    assert "at least" in verdict.sentence


def test_an_equal_twin_is_not_rewarded(bench_of):
    verdict = compared(bench_of(), spin(100000, twin=1))
    assert isinstance(verdict, Rejected) and verdict.reason in (
        Reason.SAME,
        Reason.AMBIGUOUS,
        Reason.SLOWER,
    ), verdict


def test_a_clearly_faster_one_is_not_timed_to_the_end(bench_of):
    verdict = compared(bench_of(), spin(80000))
    assert verdict.gates[2].outcome is Outcome.PASSED
    assert 2 * LOOKS[0] <= len(timing_of(verdict).samples) < 2 * LOOKS[-1]


def test_a_faster_one_passes_the_gate_and_stays_green_until_safety_is_known(bench_of):
    verdict = compared(bench_of(baseline_cycles=103000, min_gain=0.01), spin(100000))
    assert isinstance(verdict, Green), verdict
    assert (
        verdict.gates[2].outcome is Outcome.PASSED
        and verdict.gates[3].outcome is Outcome.UNAVAILABLE
    )
    assert len(timing_of(verdict).samples) == 2 * LOOKS[-1]


def test_a_faster_one_below_the_asked_gain_does_not_pass(bench_of):
    verdict = compared(bench_of(baseline_cycles=103000, min_gain=0.1), spin(100000))
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.SAME
    assert "by less than the required 10.0%" in verdict.sentence
