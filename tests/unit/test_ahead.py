"""How many candidates a search on GPUs keeps in flight."""

from __future__ import annotations

import pytest

from greenfast.search.loop.ahead import FIRST, SPARE, Ahead

QUICK = (("render", 0.1), ("compile", 2.0), ("ptxas", 0.0), ("correctness", 0.1))


def learnt(count, gpus=1, seconds=QUICK, window=32):
    ahead = Ahead(window, gpus, is_large=True)
    for _ in range(count):
        ahead.learn(seconds)
    return ahead


@pytest.mark.parametrize(("window", "gpus", "room"), [(32, 1, FIRST), (32, 2, 16), (4, 2, 4)])
def test_a_search_of_a_large_workload_begins_with_a_few_for_each_gpu(window, gpus, room):
    assert Ahead(window, gpus, is_large=True).room(0.0) == room
    assert Ahead(window, gpus, is_large=False).room(0.0) == window


def test_kernels_of_microseconds_get_the_whole_window():
    assert learnt(10).room(10 * 0.057) == 32


def test_kernels_that_keep_the_gpu_for_seconds_get_a_few():
    assert learnt(10).room(10 * 2.0) == 3 + SPARE
    assert learnt(10, gpus=4).room(10 * 2.0) == 9 + 4 * SPARE


def test_candidates_that_spill_tell_nothing_of_the_gpu():
    ahead = learnt(3, seconds=QUICK[:3])
    assert ahead.room(0.0) == FIRST and ahead.cores_are_scarce(0.0) is None
    ahead.learn(QUICK)
    assert ahead.room(4.0) == 5 + SPARE


def test_what_was_not_compiled_says_nothing():
    ahead = learnt(5, seconds=(("render", 0.2),))
    assert ahead.room(100.0) == FIRST
    ahead.learn(QUICK)
    assert ahead.room(1.0) == 5 + SPARE


def test_the_mean_follows_the_latest_candidates():
    ahead = learnt(20, seconds=(("compile", 1.0), ("correctness", 0.1)))
    for _ in range(40):
        ahead.learn((("compile", 4.0), ("correctness", 0.1)))
    assert ahead.room(60 * 2.0) == 4 + SPARE


def test_room_never_exceeds_the_window():
    assert learnt(10, window=6).room(1.0) == 6


def test_cores_are_scarce_while_the_gpus_could_take_more():
    assert Ahead(32, 1, is_large=False).cores_are_scarce(0.0) is None
    assert learnt(10).cores_are_scarce(10 * 0.057) is True
    assert learnt(10).cores_are_scarce(10 * 2.0) is False
