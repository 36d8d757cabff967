"""Times of launches that must do all their work, against those that repeat a launch."""

from __future__ import annotations

import random

import pytest

from greenfast.search.targets.cuda.work_left_out import CHANGED, Ratio

TURNS = 12


def ratio(slow, fast) -> Ratio:
    return Ratio("on other inputs", slow, fast, CHANGED)


def disturbed(rng: random.Random, time_us: float, share: float) -> list[float]:
    """Times on a machine that delays a share of the launches by up to 100 us."""
    return [
        time_us * rng.uniform(1, 1.05) + (rng.uniform(0, 100) if rng.random() < share else 0)
        for _ in range(TURNS)
    ]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_work_that_is_left_out_shows_on_a_busy_machine(share):
    rng = random.Random(0)
    for _ in range(200):
        told = ratio(disturbed(rng, 24.0, share), disturbed(rng, 4.0, share)).suspicion
        assert "on other inputs take" in told and "leave work out" in told


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("time_us", [2.0, 24.0, 600.0])
def test_equal_launches_are_never_suspicious(share, time_us):
    rng = random.Random(0)
    for _ in range(200):
        slow, fast = (disturbed(rng, time_us, share) for _ in range(2))
        assert ratio(slow, fast).suspicion == ""


def test_one_launch_in_twelve_that_leaves_work_out_shows():
    times = [24.0] * TURNS
    told = ratio(times, [*times[1:], 4.0]).suspicion
    assert told.startswith(
        "the shortest launches on other inputs take 6.0 times as long (24.00 us)"
    )


def test_a_microsecond_of_a_short_launch_is_noise():
    assert ratio([3.0] * TURNS, [2.5] * 11 + [1.9]).suspicion == ""
