"""Games with time and place against a GPU's timing: the real measuring child on host memory."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import standin_cupy

from greenfast.search.devices.facts import device
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    POISON,
    LaunchPlan,
    Problem,
    Scalar,
    Tensor,
    WorkspaceMemory,
)
from greenfast.search.targets.base import Failure
from greenfast.search.targets.cuda import driver
from greenfast.search.targets.cuda.target import CudaTarget, Program
from greenfast.search.verdict import Reason

HERE = Path(__file__).parent
COUNT = 256
RIGHT = ("honest", "honest_in_steps")
# Each game, and what shows it: what the timed launches leave, or those that are repeated.
GAMES = {
    "first_launches": "timed",
    "every_other": "outputs",
    "known_address": "outputs",
    "first_address": "outputs",
    "known_content": "times",
    "some_content": "times",
    "in_the_workspace": "outputs",
    "there_already": "times",
    "in_a_row": "outputs",
    "in_a_row_at_one_address": "times",
    "late_in_a_row_at_one_address": "times",
    "known_in_a_row": "times",
    "until_a_pause": "timed",
    "sampled": "timed",
}


def problem(seed: int, mode: str) -> Problem:
    def tensor(name: str, role: str, image: np.ndarray) -> Tensor:
        return Tensor(name, role, np.dtype(np.float32), (COUNT,), (1,), image)

    values = np.random.default_rng(seed).normal(size=COUNT).astype(np.float32)
    x = tensor("x", "input", values.view(np.uint8).copy())
    y = tensor("y", "output", np.full(4 * COUNT, POISON, np.uint8))
    w = WorkspaceMemory("w", 4 * COUNT, False)
    return replace(
        Problem(
            Case(f"seed{seed}", (), (), "normal", "contiguous", 0, ()),
            (x, y),
            (w,),
            (x, y, w, Scalar("int32", COUNT)),
            (LaunchPlan("entry", (1, 1, 1), (32, 1, 1), 0),),
            0.0,
            0.0,
        ),
        mode=mode,
    )


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(HERE)]))
        small_l2 = replace(device("h200"), l2_bytes=2**15)
        patch.setattr(driver, "device_of", lambda number: small_l2)
        patch.setattr(driver, "gpu_uuid", lambda number: "0123")
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("locks")))
        patch.setattr(CudaTarget, "measurer", "standin_cupy")
        opened = CudaTarget("0", tmp_path_factory.mktemp("cuda"), 3.0)
        yield opened
        opened.close()


def program_of(target: CudaTarget, kernel: str) -> Program:
    return target.load(None, SimpleNamespace(code=kernel.encode()))


def outcome(target: CudaTarget, kernel: str, mode: str) -> str:
    """The first thing that is wrong with a kernel after its timing."""
    program = program_of(target, kernel)
    timed, fresh = problem(1, mode), problem(2, mode)

    def wrong(execution):
        expected = 2 * execution.problem.tensors[0].image.view(np.float32)
        is_right = np.array_equal(execution.outputs["y"].view(np.float32), expected)
        return None if is_right else Failure(Reason.UNWRITTEN, "after its timing")

    timings = target.measure(program, None, (timed,), inspect=wrong)
    if isinstance(timings, Failure):
        return "timed"
    assert timings[0].time_median_us > 0
    for execution in target.after_timing(program, timed, fresh):
        assert execution.problem is fresh
        if execution.failure is not None:
            assert execution.failure.reason is Reason.IMPLAUSIBLE, execution.failure
            assert "times as long" in execution.failure.sentence
            return "times"
        if wrong(execution):
            return "outputs"
    return ""


@pytest.mark.parametrize("mode", ["hot", "cold"])
@pytest.mark.parametrize("kernel", RIGHT)
def test_an_honest_kernel_has_right_outputs_and_equal_times(target, kernel, mode):
    assert outcome(target, kernel, mode) == ""


@pytest.mark.parametrize("kernel", GAMES)
def test_a_game_that_timing_alone_would_reward_shows(target, kernel):
    assert outcome(target, kernel, "hot") == GAMES[kernel]


# These know a timing by launches that follow each other within 10 us, which others do not.
IN_A_ROW = {"late_in_a_row_at_one_address"}


@pytest.mark.parametrize("kernel", sorted({*GAMES, "late_one_by_one"} - IN_A_ROW))
def test_a_game_shows_where_launches_are_timed_one_by_one(target, kernel):
    assert outcome(target, f"{kernel} 1000", "hot")


@pytest.mark.parametrize("mode", ["hot", "cold"])
@pytest.mark.parametrize("kernel", [*RIGHT, *sorted(IN_A_ROW)])
def test_a_kernel_that_is_timed_one_by_one_gets_its_own_time(target, kernel, mode):
    assert outcome(target, f"{kernel} 1000", mode) == ""
    (timing,) = target.measure(program_of(target, f"{kernel} 1000"), None, (problem(1, mode),))
    assert timing.note.endswith("launched one by one")
    assert timing.time_median_us >= 1000 * standin_cupy.WORK_US


def test_nothing_is_taken_away_from_an_output_that_a_kernel_adds_to(target):
    posed = problem(1, "hot")
    x, y, *rest = posed.arguments
    sums = replace(y, image=np.zeros(4 * COUNT, np.uint8), filled=True)
    posed = replace(posed, tensors=(x, sums), arguments=(x, sums, *rest))

    def wrong(execution):
        added = execution.outputs["y"].view(np.float32) - 2 * x.image.view(np.float32)
        return Failure(Reason.WRONG_VALUES, "it began with something else") if added.any() else None

    timings = target.measure(program_of(target, "adds 1000"), None, (posed,), inspect=wrong)
    assert not isinstance(timings, Failure), timings


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sorted({*GAMES} - {"in_a_row_at_one_address"}))
def test_a_game_shows_on_a_ring_of_input_sets_too(target, kernel):
    assert outcome(target, kernel, "cold")


def test_a_candidate_that_damages_the_inputs_of_others_costs_them_nothing(target):
    def executed(kernel: str, seed: int):
        program = program_of(target, kernel)
        (execution,) = target.execute(program, (problem(seed, "hot"),))
        return execution

    assert executed("honest", 5).failure is None
    executed("spoils_what_is_kept", 6)
    victim = executed("honest", 5)
    assert victim.failure is None, victim.failure
    expected = 2 * victim.problem.tensors[0].image.view(np.float32)
    assert np.array_equal(victim.outputs["y"].view(np.float32), expected)
    assert executed("writes_its_input", 5).failure.reason is Reason.INPUT_CHANGED
