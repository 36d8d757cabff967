"""docs/search.md says what the result says, and the score is what the methodology defines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.pages.search_page import PAGE, pages
from bench.speed.search_quality_figures import best_after, evaluations_to, random_best


def test_the_page_is_up_to_date():
    (text,) = pages().values()
    assert PAGE.read_text() == text, "run `python -m bench.pages.search_page --save`"


def test_random_search_is_computed_exactly():
    times = np.array([3.0, 1.0, np.inf, 7.0, 2.0])
    for number, expected in enumerate(random_best(times, 5), 1):
        drawn = [min(each) for each in itertools.combinations([3.0, 1.0, 7.0, 7.0, 2.0], number)]
        assert expected == pytest.approx(np.mean(drawn))


def test_a_curve_tells_when_a_time_was_reached():
    curve = [[2, 9.0], [5, 4.0]]
    assert evaluations_to(curve, 5.0) == 5 and evaluations_to(curve, 1.0) == float("inf")
    assert best_after(curve, 6, 10.0).tolist() == [10.0, 9.0, 9.0, 9.0, 4.0, 4.0]
