"""A point is found where it stands, and what is not among the points is not found."""

from __future__ import annotations

import random

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.kernels.spec import Parameter
from greenfast.search.space.points import Points
from greenfast.search.space.space import Space


def parameters(count, values=(0, 1, 2, 3)):
    return tuple(
        Parameter(f"p{number}", "int", values, values[0], "", False, None)
        for number in range(count)
    )


def point(of, values):
    return tuple((parameter.name, value) for parameter, value in zip(of, values, strict=True))


def test_every_point_of_a_real_space_is_where_it_is_found(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    points = Space(kernel.template("wmma"), compiled, device("h200")).points
    for position in random.Random(1).sample(range(len(points)), 200):
        assert points.position(points[position]) == position


def test_what_is_not_among_the_points_has_no_position():
    of = parameters(3)
    points = Points(of, [point(of, (0, 1, 2)), point(of, (3, 3, 3))])
    assert points.position(point(of, (3, 3, 3))) == 1
    assert (
        points.position(point(of, (3, 3, 2))) is None
        and points.position(point(of, (0, 0, 0))) is None
    )
    assert points.position(point(of, (9, 3, 3))) is None, "a value that the parameter does not have"
    assert Points(of, []).position(point(of, (0, 1, 2))) is None


@pytest.mark.parametrize("count", [32, 33, 40])
def test_points_of_more_combinations_than_a_number_tells_apart_are_told_apart(count):
    of = parameters(count)
    rows = [(first, *(0,) * (count - 2), last) for first in range(4) for last in range(4)]
    random.Random(2).shuffle(rows)
    points = Points(of, [point(of, row) for row in rows[:-1]])
    assert [points.position(point(of, row)) for row in rows] == [*range(15), None]


@pytest.mark.parametrize("template", ["wmma", "mma", "scalar"])
def test_distances_are_steps_between_ordered_values_and_one_for_each_other_difference(
    catalogue, template
):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    points, rng = (
        Space(kernel.template(template), compiled, device("h200")).points,
        random.Random(3),
    )
    for _ in range(3):
        drawn = tuple(
            (parameter.name, rng.choice(parameter.values)) for parameter in points.parameters
        )  # mostly no valid point
        distances = points.distances(drawn)
        assert len(distances) == len(points)
        for position in rng.sample(range(len(points)), min(100, len(points))):
            assert distances[position] == sum(
                abs(parameter.values.index(have) - parameter.values.index(want))
                if parameter.type == "int"
                else have != want
                for parameter, (_, have), (_, want) in zip(
                    points.parameters, points[position], drawn, strict=False
                )
            )


@pytest.mark.parametrize("count", [256, 257, 70_000])
def test_every_position_of_a_value_has_room(count):
    of = parameters(2, tuple(range(count)))
    rows = [(first, last) for first in (0, 255, count - 1) for last in (0, 255, count - 1)]
    rows = list(dict.fromkeys(rows))
    points = Points(of, [point(of, row) for row in rows])
    assert list(points) == [point(of, row) for row in rows]
    assert [points.position(point) for point in points] == list(range(len(rows)))
    assert points.distances(point(of, (0, 0))).tolist() == [sum(row) for row in rows]
    assert points.distances(point(of, (count - 1, 0))).min() >= 0


def test_distances_of_many_parameters_and_of_no_points():
    of = parameters(20)  # 4^20 combinations: three tables
    rows = [tuple(random.Random(seed).choices(range(4), k=20)) for seed in range(50)]
    points = Points(of, [point(of, row) for row in rows])
    assert points.distances(point(of, (0,) * 20)).tolist() == [sum(row) for row in rows]
    assert Points(of, []).distances(point(of, (0,) * 20)).tolist() == []
