"""`cmaes` begins at the best of its first, random generation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from greenfast.search.kernels.spec import Parameter
from greenfast.search.strategies.cmaes import Distribution
from greenfast.search.strategies.features import Encoding


@pytest.fixture
def distribution():
    values = tuple(range(9))
    parameters = [Parameter(name, "int", values, 0, "", False, None) for name in ("x", "y")]
    return Distribution(Encoding(parameters), np.array([0.05, 0.05]), population=4)


def _generation(distribution, logs):
    for place, log_ratio in enumerate(logs):
        distribution.learn(np.array([place / 8, 1.0]), log_ratio)


def test_it_begins_at_the_best_candidate_of_the_first_generation(distribution):
    _generation(distribution, [0.3, 0.1, math.inf])
    assert not distribution.begun
    distribution.learn(np.array([1.0, 0.5]), 0.2)
    assert distribution.begun and distribution.mean.tolist() == [1 / 8, 1.0]


def test_a_generation_of_wrong_candidates_begins_nothing(distribution):
    _generation(distribution, [math.inf] * 4)
    assert not distribution.begun
    _generation(distribution, [math.inf, math.inf, 0.0, math.inf])
    assert distribution.begun and distribution.mean.tolist() == [2 / 8, 1.0]
