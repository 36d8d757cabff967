"""Checks of no seeds: too large to compare, `safety` runs their first and last blocks."""

from __future__ import annotations

import pytest
from changed_subjects import changed_subject

from greenfast.search.devices.facts import device
from greenfast.search.gates.safety import SafetyGate, checked_problems, uncompared_problems
from greenfast.search.oracle.cases import derived_cases, uncompared_cases
from greenfast.search.targets.emulator.problem_run import emulated_run
from greenfast.search.verdict import Outcome, Reason

CAUSAL = (("D", 64), ("dtype", "fp16"), ("mask", "causal_top_left"))
SMALL = {"consumers": 2, "tile_n": 64, "stages": 2, "scheduler": "grid"}
FOUR_WARPS_EACH = "gf::mbarrier_init(&barriers.k_empty[i], 4 * consumers);"


@pytest.fixture
def subject(catalogue, emulator):
    """`subject("wgmma", "fa3", {...})` of attention, with a change of its text."""

    def make(template, preset, changes, old="", new="", compiled=CAUSAL):
        return changed_subject(
            catalogue, emulator, "attention", template, preset, changes, old, new, compiled
        )

    return make


def test_only_the_ends_of_a_causal_walk_over_five_rings_run(subject):
    made = subject("wgmma", "fa3", SMALL)
    (problem,) = uncompared_problems(made)
    assert dict(problem.case.dims)["S_q"] == dict(problem.case.dims)["S_kv"] == 5 * 2 * 64 + 1
    ((launch),) = emulated_run(
        problem, "forward", "name", device=device("h200"), check=True
    ).launches
    assert launch.grid == (6, 1, 1) and launch.sample == (0, 5)
    assert problem.case.name in [each.case.name for each in checked_problems(made)]
    compared = derived_cases(made.kernel, made.compiled, made.point.tiles, 0)
    assert problem.case.name not in {case.name for case in compared}


def test_other_masks_compare_a_walk_of_five_rings_and_need_no_other(subject):
    compiled = (("D", 64), ("dtype", "fp16"), ("mask", "none"))
    assert not uncompared_problems(subject("wgmma", "fa3", SMALL, compiled=compiled))


def test_where_blocks_depend_on_each_other_there_is_none(subject):
    """A second kernel would read partial results that blocks outside of the ends never wrote."""
    made = subject("mma", "split", {"combine": "second_kernel"})
    assert uncompared_cases(made.kernel, made.compiled, made.point.tiles, 0)
    assert not uncompared_problems(made)


@pytest.mark.slow
def test_an_arrival_too_few_is_seen_in_the_long_walk(subject):
    """A slot is free too early only after some turns of the ring: this twin passed both gates."""
    assert SafetyGate().judge(subject("wgmma", "fa3", SMALL)).outcome is Outcome.PASSED
    fewer = FOUR_WARPS_EACH.replace("consumers)", "consumers - 1)")
    result = SafetyGate().judge(subject("wgmma", "fa3", SMALL, FOUR_WARPS_EACH, fewer))
    assert result.outcome is Outcome.FAILED and result.reason in (
        Reason.RACE,
        Reason.DEADLOCK,
        Reason.IN_FLIGHT_READ,
    )
    assert result.sentence.startswith("long_walk")
