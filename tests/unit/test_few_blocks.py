"""What blocks do between two tiles runs in a check: the same launch on few multiprocessors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

import pytest
from changed_subjects import changed_subject

from greenfast.search.errors import SpecError
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.few_blocks import few_blocks_cases
from greenfast.search.gates.safety import ORDERS, SafetyGate, checked_problems
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.verdict import Outcome, Reason

EARLY = "    gf::wgmma_wait<0>();\n    release(*shared.barriers, position, before);\n"
LATE = "    release(*shared.barriers, position, before);\n    gf::wgmma_wait<0>();\n"


@pytest.fixture
def subject(catalogue, emulator):
    """`subject("gemm", "wgmma", "square", {...})`, with a change of its text."""
    return partial(changed_subject, catalogue, emulator)


def few(subject):
    cases = derived_cases(subject.kernel, subject.compiled, subject.point.tiles, subject.seed)
    return few_blocks_cases(subject, cases)


ALL = {"scheduler": "persistent_all"}
SMALL = {"tile_n": 64, "stages": 2, "store_buffers": 1}


@pytest.mark.parametrize(
    ("kernel", "template", "preset", "changes", "count"),
    [
        ("gemm", "wgmma", "square", {}, "1_multiprocessor"),
        ("gemm", "wgmma", "wide", {}, "2_multiprocessors"),  # a cluster needs two
        ("attention", "wgmma", "persistent", {}, "1_multiprocessor"),
        (
            "attention",
            "wgmma",
            "persistent_short",
            {"scheduler": "persistent_all"},
            "1_multiprocessor",
        ),
        ("attention", "wmma", "fused", {"persistent": True}, "1_multiprocessor"),
    ],
)
def test_a_persistent_grid_has_a_case_with_several_tiles_a_block(
    subject, kernel, template, preset, changes, count
):
    made = subject(kernel, template, preset, changes)
    (case, *_), point = few(made)
    assert case.name.endswith(f"_on_{count}")
    problems = checked_problems(made)
    (own, *others) = [problem for problem in problems if problem.case == case]
    assert others == [own] * (ORDERS - 1)
    (whole,) = [
        problem
        for problem in problems
        if problem.case == replace(case, name=case.name.partition("_on_")[0])
    ]
    assert point.values["sm_count"] == int(count.partition("_")[0])
    assert 0 < prod(own.launches[0].grid) < prod(whole.launches[0].grid)


@pytest.mark.parametrize(
    ("kernel", "template", "preset", "changes"),
    [
        ("gemm", "wgmma", "square", {"scheduler": "grid"}),
        ("gemm", "mma", "square", {}),
        ("attention", "scalar", "vec", {}),
        ("attention", "decode", "big_batch", {}),
    ],
)
def test_other_grids_have_none(subject, kernel, template, preset, changes):
    assert few(subject(kernel, template, preset, changes)) is None


@pytest.mark.slow
def test_a_slot_released_too_early_is_seen_at_the_blocks_next_tile(subject):
    """No check had more tiles than an H200 has multiprocessors, and this twin passed both gates."""
    right = subject("gemm", "wgmma", "square", SMALL)
    assert SafetyGate().judge(right).outcome is Outcome.PASSED
    wrong = subject("gemm", "wgmma", "square", SMALL, EARLY, LATE)
    result = SafetyGate().judge(wrong)
    assert result.outcome is Outcome.FAILED and "_on_1_multiprocessor" in result.sentence


@pytest.mark.slow
def test_a_store_that_still_reads_its_place_is_seen_at_the_blocks_next_tile(subject):
    """Three stores a tile and two places: shipped so, and silent as long as blocks had one tile."""
    changes = {"tile_n": 96, "stages": 2, "store_buffers": 2}  # by 32 columns
    right = subject("gemm", "wgmma", "square", changes)
    assert SafetyGate().judge(right).outcome is Outcome.PASSED
    old = "int row, int column, int consumer, int& turn)\n{\n"
    wrong = subject("gemm", "wgmma", "square", changes, old, f"{old}turn = 0;\n")
    result = SafetyGate().judge(wrong)
    assert result.outcome is Outcome.FAILED and "_on_1_multiprocessor" in result.sentence


@pytest.mark.slow
def test_lanes_that_meet_nowhere_in_a_tile_are_seen_at_the_blocks_next_tile(subject):
    """Rows that see no key have no product: a lane freed Q while others still waited for it."""
    compiled = (("D", 64), ("dtype", "bf16"), ("mask", "causal_bottom_right"))
    changes = {"consumers": 1, "tile_n": 64, "stages": 2, "overlap": False, "turns": False}
    changes |= {"scheduler": "persistent", "q_buffers": 1, "epilogue": "direct"}
    of_template = ("attention", "wgmma", "fa3", changes)
    right = subject(*of_template, compiled=compiled)
    assert SafetyGate().judge(right).outcome is Outcome.PASSED
    meets = "        __syncwarp();                            // rows that see no key"
    wrong = subject(*of_template, meets, meets.replace("__syncwarp();", ""), compiled)
    result = SafetyGate().judge(wrong)
    assert result.outcome is Outcome.FAILED and result.reason is Reason.DEADLOCK
    assert "_on_1_multiprocessor" in result.sentence


@pytest.mark.slow
def test_values_of_a_blocks_next_tile_are_compared(subject):
    """The walk's step is wrong: later tiles of a block are taken twice, and others never."""
    old = "index * (gridDim.x / 1)"
    wrong = subject("gemm", "wgmma", "square", SMALL, old, "index * (gridDim.x / 1) * 2")
    result = CorrectnessGate().judge(wrong)
    assert result.outcome is Outcome.FAILED and "_on_1_multiprocessor" in result.sentence


@pytest.mark.slow
def test_warpgroups_in_turns_wait_for_each_other(subject):
    """Without the turn, the second reads what the ring had an even number of turns before.

    It passed both gates, and failed on a GPU: no case had several tiles and turned the ring.
    """
    changes = {"tile_n": 64, "stages": 2, "store_buffers": 1}
    of_template = ("gemm", "wgmma", "turns_128", changes)
    assert CorrectnessGate().judge(subject(*of_template)).outcome is Outcome.PASSED
    wait = "            gf::named_barrier_sync(turn_barrier + consumer, consumers * 128);\n"
    result = CorrectnessGate().judge(subject(*of_template, wait, ""))
    assert result.outcome is Outcome.FAILED and "twice_the_ring_on_1_multi" in result.sentence


def test_a_grid_that_fails_for_a_case_is_no_fault(subject, monkeypatch):
    def refuses(*_):
        raise SpecError("no such grid", code="bad_grid")

    made = subject("gemm", "wgmma", "square", SMALL)
    monkeypatch.setattr("greenfast.search.gates.few_blocks.launches", refuses)
    assert few(made) is None


LAST = (("D", 64), ("dtype", "bf16"), ("mask", "causal_bottom_right"))
BATCH = "const int batch = head / order.heads_of_batch;"
FIRST_BATCH = "const int batch = blockIdx.x / order.row_tiles / order.heads_of_batch;"


def test_where_the_longest_walk_crosses_no_border_a_second_case_does(subject):
    made = subject("attention", "wgmma", "persistent_short", ALL, compiled=LAST)
    cases, _ = few(made)
    assert [min(dict(case.dims)["B"], 2) for case in cases[:2]] == [1, 2]
    short, long = few(subject("gemm", "wgmma", "square"))[0]  # no dim of its grid is 1
    assert dict(short.dims)["K"] < 64 < 512 < dict(long.dims)["K"]


@pytest.mark.slow
def test_a_block_that_keeps_its_first_tiles_batch_is_wrong_at_the_next_batch(subject):
    """With causal_bottom_right the case with most row tiles has one batch."""
    changes = {**ALL, "heads_together": 1}
    wrong = subject("attention", "wgmma", "persistent_short", changes, BATCH, FIRST_BATCH, LAST)
    result = CorrectnessGate().judge(wrong)
    assert result.outcome is Outcome.FAILED and "one_key_on_1_multiprocessor" in result.sentence


@pytest.mark.slow
def test_q_of_the_next_batch_that_comes_before_this_one_is_read_is_a_race(subject):
    """Two places for Q, whose third tile overwrites the first when nobody waits for its readers."""
    wait = "    gf::mbarrier_wait(&shared.barriers->q_empty[loads.q.slot], loads.q.parity ^ 1);\n"
    wrong = subject("attention", "wgmma", "persistent_short", ALL, wait, "", LAST)
    result = SafetyGate().judge(wrong)
    assert result.outcome is Outcome.FAILED and "_on_1_multiprocessor" in result.sentence
