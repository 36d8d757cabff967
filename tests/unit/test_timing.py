"""The timing protocol's statistics on synthetic times, and the arena that runs lie in."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from bench.results import read_result
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    POISON,
    LaunchPlan,
    Problem,
    Scalar,
    Tensor,
    WorkspaceMemory,
)
from greenfast.search.targets.cuda.arena import (
    CANARY_BYTES,
    damage,
    describe,
    lay_out,
    outputs,
    starting_bytes,
)
from greenfast.search.targets.cuda.driver import device_facts
from greenfast.search.timing import (
    LARGEST_RING,
    LOOKS,
    SCREEN_BLOCKS,
    Decision,
    block_log_ratios,
    combined,
    decide,
    default_mode,
    floor_us,
    graph_nodes,
    median_interval,
    race,
    ring_sets,
    screened,
)


def synthetic(rng, time_us, noise, drift, clock):
    """Times with launch noise, some outliers, and a drift that both kernels share."""

    def time_one():
        clock[0] += 1
        slow = rng.uniform(1.0, 1.3) if rng.random() < 0.03 else 1.0
        return time_us * slow * math.exp(rng.gauss(0, noise)) * (1 + drift * clock[0])

    return time_one


def decisions(ratio, count=100, noise=0.01, drift=2e-4, seed=1):
    results = []
    for number in range(count):
        rng, clock = random.Random(seed * 1000 + number), [0]
        first, other = (
            synthetic(rng, time_us, noise, drift, clock) for time_us in (5.0 * ratio, 5.0)
        )
        samples, others = race(first, other, number, screen=True)
        results.append((decide(block_log_ratios(samples, others))[0], len(samples) // 2))
    return results


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_two_equal_kernels_are_called_faster_or_slower_in_at_most_5_of_100(noise, seed):
    called = [decision for decision, _ in decisions(1.0, noise=noise, seed=seed)]
    assert sum(decision in (Decision.FASTER, Decision.SLOWER) for decision in called) <= 5


def test_a_3_percent_slower_twin_is_called_slower_in_at_least_90_of_100():
    assert sum(decision is Decision.SLOWER for decision, _ in decisions(1.03)) >= 90


def test_a_3_percent_faster_twin_is_called_faster_in_at_least_90_of_100():
    assert sum(decision is Decision.FASTER for decision, _ in decisions(1 / 1.03)) >= 90


def test_what_is_clear_ends_early_and_what_is_close_gets_all_blocks():
    assert {blocks for _, blocks in decisions(1.2, count=20)} == {LOOKS[0]}
    assert {blocks for _, blocks in decisions(0.7, count=20)} == {LOOKS[0]}
    assert {blocks for _, blocks in decisions(0.97, count=20)} == {LOOKS[-1]}
    assert {decision for decision, _ in decisions(0.7, count=20)} == {Decision.FASTER}


def test_a_screen_lets_go_what_was_much_slower_in_each_of_few_blocks_and_says_slower():
    results = decisions(1.5, count=20)
    assert set(results) == {(Decision.SLOWER, SCREEN_BLOCKS)}
    assert screened([0.3] * SCREEN_BLOCKS) and not screened([0.3] * 3 + [0.2])
    assert not screened([0.3] * (SCREEN_BLOCKS - 1)) and not screened([0.3] * LOOKS[0])


def test_a_screen_ends_a_race_with_a_baseline_that_is_far_slower():
    assert set(decisions(0.4, count=20)) == {(Decision.FASTER, SCREEN_BLOCKS)}
    assert set(decisions(0.6, count=20)) == {(Decision.FASTER, LOOKS[0])}
    assert screened([-0.7] * SCREEN_BLOCKS) is Decision.FASTER
    assert screened([-0.7] * 3 + [-0.6]) is None
    decision, interval = decide([-0.9, -0.8, -0.75, -0.7])
    assert decision is Decision.FASTER and (interval.low, interval.high) == (-0.9, -0.7)


def test_a_screen_is_asked_for():
    samples, _ = race(lambda: 2.0, lambda: 1.0, 0)
    assert len(samples) == 2 * LOOKS[0]
    samples, _ = race(lambda: 2.0, lambda: 1.0, 0, looks=LOOKS[-1:])
    assert len(samples) == 2 * LOOKS[-1]


def test_noise_does_not_make_an_equal_kernel_fail_the_screen():
    assert not [
        decision
        for decision in decisions(1.0, count=300, noise=0.05)
        if decision[1] == SCREEN_BLOCKS
    ]


def test_a_cold_graph_uses_every_set_of_the_ring():
    assert (
        graph_nodes(10.0, 75) == 75 and graph_nodes(1.0, 75) == 200 and graph_nodes(500.0, 75) == 0
    )
    assert (
        ring_sets(2 << 20, 50 << 20, "cold") == 75
        and ring_sets(1024, 50 << 20, "cold") == LARGEST_RING
    )


def test_equal_quiet_kernels_are_called_the_same_and_noisy_ones_too_noisy():
    assert sum(decision is Decision.SAME for decision, _ in decisions(1.0, noise=0.003)) >= 95
    assert sum(decision is Decision.TOO_NOISY for decision, _ in decisions(1.0, noise=0.5)) >= 90


def test_a_linear_drift_cancels_inside_a_block():
    clock = [0]

    def time_one():
        clock[0] += 1
        return 100.0 + 5.0 * clock[0]

    samples, others = race(time_one, time_one, 3)
    assert abs(decide(block_log_ratios(samples, others))[1].median) < 1e-3


def test_the_order_of_blocks_is_random_and_repeats_with_the_seed():
    def letters(seed):
        letters_called = []
        race(
            lambda: letters_called.append("a") or 1.0,
            lambda: letters_called.append("b") or 1.0,
            seed,
        )
        return "".join(letters_called)

    assert letters(1) == letters(1) != letters(2)
    blocks = {letters(1)[start : start + 4] for start in range(0, len(letters(1)), 4)}
    assert blocks == {"abba", "baab"}


def test_a_race_that_runs_out_of_time_ends_at_a_look():
    samples, others = race(lambda: 1.0, lambda: 1.0, 0, lambda: False)
    assert len(samples) == len(others) == 2 * LOOKS[0]


def test_the_interval_of_a_median_holds_it_as_often_as_it_says():
    rng = random.Random(7)
    inside = 0
    for _ in range(1000):
        interval = median_interval([rng.expovariate(1.0) for _ in range(20)], 0.95)
        inside += interval.low <= math.log(2) <= interval.high
    assert inside >= 940


@pytest.mark.parametrize(("count", "finite"), [(1, False), (7, False), (8, True), (40, True)])
def test_too_few_blocks_bound_nothing(count, finite):
    interval = median_interval([float(index) for index in range(count)])
    assert math.isfinite(interval.low) is math.isfinite(interval.high) is finite
    if not finite:
        assert decide([-0.5] * count)[0] is Decision.TOO_NOISY


def test_workloads_are_combined_block_by_block():
    assert combined([(0.1, 0.2, 0.3), (-0.1, 0.0)]) == (0.0, 0.1)


def test_how_often_how_many_and_how_cold():
    assert [graph_nodes(time_us) for time_us in (4.0, 199.0, 200.0, 4000.0)] == [50, 2, 0, 0]
    assert ring_sets(1 << 20, 60 << 20, "hot") == 1 and ring_sets(40 << 20, 60 << 20, "cold") == 5
    assert default_mode(31 << 20, 60 << 20) == "cold" and default_mode(30 << 20, 60 << 20) == "hot"
    assert floor_us(1000.0, 500.0, 100.0, 0.0) == 10.0 and floor_us(1000.0, 500.0, 0.0, 0.0) == 0.0


def small_problem() -> Problem:
    def tensor(name, role, fill):
        return Tensor(name, role, np.dtype(np.float32), (10,), (1,), np.full(40, fill, np.uint8))

    x, y, ticket = (
        tensor("x", "input", 1),
        tensor("y", "output", POISON),
        WorkspaceMemory("ticket", 12, True),
    )
    case = Case("case", (), (), "normal", "contiguous", 0, ())
    return Problem(
        case,
        (x, y),
        (ticket,),
        (x, y, Scalar("int32", 3), None, ticket),
        (LaunchPlan("entry", (1, 1, 1), (32, 1, 1), 64),),
        0.0,
        0.0,
    )


def test_an_arena_keeps_buffers_apart_and_starts_them_as_the_problem_says(tmp_path):
    described = describe(small_problem(), tmp_path / "images")
    arena = lay_out(described)
    memory = starting_bytes(described, arena)
    ends = [start + size for start, size in arena.offsets.values()]
    assert all(
        start % 256 == 0 and start - end >= CANARY_BYTES
        for (start, _), end in zip(arena.offsets.values(), [0, *ends[:-1]], strict=True)
    )
    assert [set(memory[start : start + size]) for start, size in arena.offsets.values()] == [
        {1},
        {POISON},
        {0},
    ]
    assert described["launches"][0]["arguments"] == [
        {"buffer": "x"},
        {"buffer": "y"},
        {"scalar": "int32", "value": 3},
        {"scalar": "uint64", "value": 0},
        {"buffer": "ticket"},
    ]
    assert damage(described, arena, memory, memory) is None
    assert [output.tolist() for output in outputs(described, arena, memory)] == [[POISON] * 40]


@pytest.mark.parametrize(
    ("where", "reason", "says"),
    [
        (("x", -1), "out_of_bounds", "x, up to 1 bytes before its start"),
        (("x", 40), "out_of_bounds", "x, from 1 bytes past its end"),
        (("ticket", 12), "out_of_bounds", "ticket, from 1 bytes past"),
        (("y", -8), "out_of_bounds", "y, up to 8 bytes before"),
        (("x", 5), "input_changed", "the input x was written"),
        (("y", 5), None, ""),
        (("ticket", 5), None, ""),
    ],
)
def test_what_a_run_may_not_write_is_seen(where, reason, says, tmp_path):
    described = describe(small_problem(), tmp_path / "images")
    arena = lay_out(described)
    before = starting_bytes(described, arena)
    after = before.copy()
    after[arena.offsets[where[0]][0] + where[1]] ^= 0x5A
    finding = damage(described, arena, before, after)
    assert (finding[0] if finding else None) == reason and says in (finding[1] if finding else "")


def test_an_unknown_gpu_has_its_own_limits_and_no_peaks():
    values = {
        "threads_per_block": 1024,
        "registers_per_block": 65536,
        "clock_khz": 1410000,
        "multiprocessors": 108,
        "memory_clock_khz": 1215000,
        "memory_bus_bits": 5120,
        "l2_bytes": 40 << 20,
        "threads_per_sm": 2048,
        "major": 8,
        "minor": 0,
        "smem_per_sm_bytes": 167936,
        "registers_per_sm": 65536,
        "smem_per_block_bytes": 166912,
        "blocks_per_sm": 32,
        "smem_reserved_bytes": 1024,
    }
    facts = device_facts("NVIDIA A100-SXM4-40GB", values)
    assert (facts.arch, facts.multiprocessors, facts.clock_max_mhz) == ("sm_80", 108, 1410)
    assert (
        facts.dram_bytes_per_us == pytest.approx(1.555e6, rel=1e-3)
        and facts.tensor_fp16_flop_per_cycle_per_sm == 0
    )
    hopper = values | {"major": 9, "multiprocessors": 132}
    assert device_facts("NVIDIA H200", hopper).name == "h200"
    assert device_facts("NVIDIA H200", hopper | {"multiprocessors": 60}).name == "nvidia-h200"


def test_every_verdict_of_the_search_on_the_h200_follows_from_its_stored_samples():
    rows = read_result("h200/gpu_target")["rows"]
    (search,) = (row for row in rows if row["what"] == "search")
    judged = [trial for trial in search["trials"] if trial["baseline_samples"]]
    assert len(judged) >= 100
    for measured in judged:
        decision, interval = decide(
            block_log_ratios(measured["samples"], measured["baseline_samples"])
        )
        assert decision == ("faster" if measured["verdict"] == "green" else measured["reason"])
        assert interval.ratios == pytest.approx(
            (measured["interval"][0], measured["ratio"], measured["interval"][1]), rel=1e-4
        )
