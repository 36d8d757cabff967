"""Importances recover known effects, credit no bystander, and say when they know nothing."""

from __future__ import annotations

import itertools
import math
import random

from greenfast.app.views.importances import FEWEST_TRIALS, _sentence, fit


def test_a_known_effect_is_found_and_the_others_get_next_to_nothing():
    points = [
        {"tile": tile, "stages": stages, "swizzle": swizzle}
        for tile, stages, swizzle in itertools.product((16, 32, 64), (1, 2), (True, False))
    ]
    logs = [math.log(point["tile"]) + 0.1 * point["stages"] for point in points]
    shares = fit(points, logs)
    assert shares.by_name["tile"] > 0.95 and shares.by_name["swizzle"] < 1e-6
    assert shares.by_name["tile"] > shares.by_name["stages"] > shares.by_name["swizzle"]
    assert math.isclose(sum(shares.by_name.values()), 1.0) and shares.explained > 0.5


def test_a_value_that_only_travels_with_another_is_not_credited_with_all_of_it():
    choose = random.Random(3)
    points, logs = [], []
    for _ in range(200):
        tile = choose.choice((16, 64))
        bystander = tile == 64 if choose.random() < 0.8 else choose.random() < 0.5
        points.append({"tile": tile, "bystander": bystander})
        logs.append(math.log(tile) + choose.gauss(0, 0.05))
    shares = fit(points, logs)
    assert shares.by_name["tile"] > 0.97


def test_noise_explains_nothing():
    choose = random.Random(5)
    points = [{"a": choose.choice((1, 2, 3)), "b": choose.random() < 0.5} for _ in range(120)]
    shares = fit(points, [choose.gauss(0, 1) for _ in points])
    assert shares.explained < 0.1


def test_true_and_one_are_different_values_and_absent_is_one_too():
    points = [{"a": True} if turn % 2 else {"a": 1} for turn in range(20)]
    logs = [float(turn % 2) for turn in range(20)]
    assert fit(points, logs).by_name == {"a": 1.0}
    assert fit([{"a": 1} if turn % 2 else {} for turn in range(20)], logs).by_name == {"a": 1.0}


def test_too_few_trials_and_nothing_that_varies():
    assert fit([{"a": 1}] * (FEWEST_TRIALS - 1), [0.0] * (FEWEST_TRIALS - 1)) is None
    assert fit([{"a": 1}] * 20, list(range(20))).by_name == {}
    assert fit([{"a": turn} for turn in range(20)], [2.0] * 20).by_name == {}


def test_a_constant_time_is_not_called_a_lack_of_values():
    shares = fit([{"a": turn % 2} for turn in range(20)], [0.5] * 20)
    assert "have the same time" in _sentence(20, shares, 1)
