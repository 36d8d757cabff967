"""The shortcuts of `evolution`'s model, against the long way."""

from __future__ import annotations

import numpy as np
import pytest

from greenfast.search.strategies.evolution import PROBED, first_place, first_places, preferred
from greenfast.search.strategies.ranker import Outcomes, Ranker, _nearness, standardised

COLUMNS, KNOWN, PENDING, POINTS = 5, 90, 40, 700


@pytest.fixture(params=range(4))
def dice(request):
    return np.random.default_rng(request.param)


@pytest.fixture
def expected(dice):
    ranker = Ranker(np.arange(COLUMNS))
    known = Outcomes(dice.random((KNOWN, COLUMNS)), dice.normal(size=KNOWN))
    return ranker.expected(
        known, dice.random((PENDING, COLUMNS)), dice.random((POINTS, COLUMNS)), steps=3
    )


def test_no_point_is_expected_to_improve_more_than_its_bound(expected):
    improvement = expected.improvement(np.arange(POINTS))
    assert (improvement <= expected.most() * 1.0001).all()
    assert (improvement < expected.most() * 0.9).any(), "the bound would tell nothing"


@pytest.mark.parametrize("least", [0.0, 0.5, 0.99, 1.5])
def test_the_first_of_few_points_is_the_first_of_all(expected, dice, least):
    chances = dice.random(POINTS)
    looked_at = []

    def merit(rows):
        looked_at.append(len(rows))
        return expected.improvement(rows) * chances[rows] * preferred(chances[rows], least)

    place = first_place(expected.most(), merit, lambda rows: chances[rows].max() >= least)
    merits = merit(np.arange(POINTS))
    assert merits[place] == pytest.approx(merits.max(), rel=1e-4)
    assert least > 0.9 or max(looked_at[:-1]) < POINTS, "all points were looked at"


def test_the_first_of_equal_points_is_taken():
    most = np.full(3 * PROBED, 0.5)
    assert first_place(most, lambda rows: most[rows]) == 0


def test_a_point_beside_another_is_ranked_as_if_that_one_was_pending(dice):
    ranker = Ranker(np.arange(COLUMNS))
    known = Outcomes(dice.random((KNOWN, COLUMNS)), dice.normal(size=KNOWN))
    pending, points = dice.random((PENDING, COLUMNS)), dice.random((POINTS, COLUMNS))
    everything, row = np.arange(POINTS), 17
    beside = ranker.expected(known, pending, points, steps=0).beside(row)
    long_way = ranker.expected(known, np.vstack([pending, points[row]]), points, steps=0)
    scale = np.sqrt(beside.scale / long_way.scale)  # one more point is known
    assert scale * long_way.deviations(everything) == pytest.approx(
        beside.deviations(everything), rel=1e-3
    )
    assert beside.best == pytest.approx(long_way.best, abs=1e-5)


def test_each_next_choice_is_another_point_and_of_little_less_merit(expected):
    first, second, third = first_places(expected, 3)
    assert len({first, second, third}) == 3
    assert first == first_place(expected.most(), expected.improvement)
    others = np.delete(np.arange(POINTS), first)
    best = expected.beside(first).improvement(others).max()
    assert expected.beside(first).improvement(np.array([second]))[0] > 0.95 * best


def test_pending_points_count_as_if_they_had_come_out_as_expected(dice):
    ranker = Ranker(np.arange(COLUMNS))
    places, pending = dice.random((KNOWN, COLUMNS)), dice.random((PENDING, COLUMNS))
    points, everything = dice.random((POINTS, COLUMNS)), np.arange(POINTS)
    known = Outcomes(places, standardised(dice.normal(size=KNOWN)))
    expected = ranker.expected(known, pending, points, steps=0)
    outcomes = ranker.expected(known, np.empty((0, COLUMNS)), pending, steps=0).means
    whole = ranker._factor(np.vstack([places, pending]), np.append(known.logs, outcomes))
    near = _nearness(ranker._scaled(np.vstack([places, pending])), ranker._scaled(points))
    assert np.allclose(whole.means(near), expected.means, atol=1e-4)
    assert whole.scale == pytest.approx(expected.scale)
    deviations = np.sqrt(whole.scale * (1 - ((whole.root @ near) ** 2).sum(0)))
    assert np.allclose(deviations, expected.deviations(everything), atol=1e-3)
    assert expected.best == pytest.approx(min(known.logs.min(), outcomes.min()), abs=1e-5)
