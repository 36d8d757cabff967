"""How many candidates a search on GPUs keeps in flight."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from greenfast.search.loop.ahead import ENOUGH, FIRST, SPARE, Ahead
from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.verdict import Green

RAN = (("render", 0.1), ("compile", 2.0), ("ptxas", 0.0), ("correctness", 0.1))
SPILLS = RAN[:3]


class Clock:
    """GPU seconds that a test spends."""

    def __init__(self):
        self.spent_s = 0.0

    def __call__(self):
        return self.spent_s


def new(window=32, gpus=1, *, is_large=True):
    clock = Clock()
    return Ahead(window, gpus, is_large, clock), clock


def learnt(count, gpu_s, *, gpus=1, seconds=RAN, window=32):
    """After `count` outcomes, each of which took a GPU so long."""
    ahead, clock = new(window, gpus)
    for _ in range(count):
        clock.spent_s += gpu_s
        ahead.learn(seconds)
    return ahead


@pytest.mark.parametrize(("window", "gpus", "room"), [(32, 1, FIRST), (32, 2, 16), (4, 2, 4)])
def test_a_search_of_a_large_workload_begins_with_a_few_for_each_gpu(window, gpus, room):
    assert new(window, gpus)[0].room() == room
    assert new(window, gpus, is_large=False)[0].room() == window


def test_kernels_of_microseconds_get_the_whole_window():
    assert learnt(10, 0.057).room() == 32


def test_kernels_that_keep_the_gpu_for_seconds_get_a_few():
    assert learnt(10, 2.0).room() == 3 + SPARE
    assert learnt(10, 2.0, gpus=4).room() == 9 + 4 * SPARE


def test_a_rate_is_not_known_from_a_few_outcomes():
    ahead = learnt(ENOUGH, 2.0)
    assert ahead.room() == FIRST and ahead.cores_are_scarce() is None
    ahead.gpu_seconds.spent_s += 2.0
    ahead.learn(RAN)
    assert ahead.room() == 3 + SPARE and ahead.cores_are_scarce() is False


def test_what_a_gpu_does_before_the_first_outcome_does_not_count():
    ahead, clock = new()
    clock.spent_s = 60.0  # references, and the baseline
    for _ in range(ENOUGH + 1):
        clock.spent_s += 0.05
        ahead.learn(RAN)
    assert ahead.room() == 32 and ahead.cores_are_scarce() is True


def test_candidates_that_spill_tell_nothing_of_the_gpu():
    ahead = learnt(20, 0.0, seconds=SPILLS)
    assert ahead.room() == FIRST and ahead.cores_are_scarce() is None


def test_candidates_that_spill_count_for_the_rate_once_others_ran():
    ahead, clock = new()
    for number in range(2 * ENOUGH + 1):
        clock.spent_s += 0.0 if number % 2 else 4.0
        ahead.learn(SPILLS if number % 2 else RAN)
    assert ahead.room() == 3 + SPARE  # one in two seconds


def test_what_was_not_compiled_says_nothing():
    ahead = learnt(20, 5.0, seconds=(("render", 0.2),))
    assert ahead.room() == FIRST


def test_a_candidate_counts_while_it_waits_for_its_safety_check_and_only_once():
    ahead, clock = new()
    ahead.learn(RAN)
    for _ in range(ENOUGH):
        clock.spent_s += 2.0
        ahead.hear_timed()
    assert ahead.room() == 3 + SPARE
    for _ in range(ENOUGH):  # the same candidates: more in the same time would need more room
        done: Future[Evaluated] = Future()
        done.set_result(Evaluated(Green(()), None, 2.2, stage_seconds=RAN))
        ahead.hear(done, was_timed=True)
    assert ahead.room() == 3 + SPARE


def test_the_rate_and_the_mean_follow_the_latest_candidates():
    ahead = learnt(20, 0.01, seconds=(("compile", 1.0), ("correctness", 0.1)))
    for _ in range(40):
        ahead.gpu_seconds.spent_s += 2.0
        ahead.learn((("compile", 4.0), ("correctness", 0.1)))
    assert ahead.room() == 4 + SPARE


def test_room_never_exceeds_the_window():
    assert learnt(10, 0.1, window=6).room() == 6


def test_cores_are_scarce_while_the_gpus_could_take_more():
    assert new(is_large=False)[0].cores_are_scarce() is None
    assert learnt(10, 0.057).cores_are_scarce() is True
    assert learnt(10, 2.0).cores_are_scarce() is False
