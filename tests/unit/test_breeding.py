"""What `evolution` breeds is the same in every process."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.space.space import Space
from greenfast.search.strategies.breeding import Breeder, numbers, parameter_groups
from greenfast.search.strategies.evolution import first_rows


@dataclass(frozen=True)
class Named:
    names: tuple[str, ...]  # in an order that a set of names may have


@dataclass(frozen=True)
class Parameter:
    name: str
    when: Named | None = None
    group: str = ""


def test_groups_have_the_same_numbers_in_any_order_of_names():
    for names in (("a", "b"), ("b", "a")):
        parameters = [Parameter(name) for name in "axby"] + [Parameter("c", Named(names))]
        assert parameter_groups(parameters).tolist() == [0, 1, 0, 2, 0]


def test_named_groups_stay_apart_though_a_condition_uses_both():
    parameters = [
        Parameter("tile_m", group="tile"),
        Parameter("stages", group="pipeline"),
        Parameter("tile_n", group="tile"),
        Parameter("walk", Named(("tile_m", "stages")), "pipeline"),
        Parameter("hint", Named(("walk",))),  # names none, so it joins its condition
        Parameter("swizzle"),
    ]
    assert parameter_groups(parameters).tolist() == [0, 1, 0, 1, 1, 2]


def test_a_child_takes_a_named_group_from_one_parent():
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    space = Space(
        kernel.template("mma"), kernel.workload("mission").compile_time(kernel), device("h200")
    )
    parameters = space.template.parameters
    groups = parameter_groups(parameters)
    assert 4 <= groups.max() < len(parameters) - 1
    parents = np.array([[0] * len(parameters), [len(each.values) - 1 for each in parameters]])
    crossed = Breeder(space)._crossed(
        np.repeat(parents[:1], 40, 0), np.repeat(parents[1:], 40, 0), np.random.default_rng(1)
    )
    taken = crossed == parents[1]
    for group in range(groups.max() + 1):
        own = taken[:, groups == group]
        assert (own == own[:, :1]).all()
    assert len(np.unique(crossed, axis=0)) > 10


def test_children_without_their_condition_have_defaults_and_are_different():
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    space = Space(kernel.template("mma"), compiled, device("h200"))
    parameters = space.template.parameters
    rows = []
    for _ in range(3):
        point = space.drawn(random.Random(len(rows)))
        rows.append(
            [each.values.index(value) for each, (_, value) in zip(parameters, point, strict=True)]
        )
    codes = Breeder(space).children(np.array(rows), np.random.default_rng(1), 60).codes
    assert len(np.unique(codes, axis=0)) == len(codes) > 20
    for row in codes.tolist():
        values = dict(compiled) | {
            each.name: each.values[code] for each, code in zip(parameters, row, strict=True)
        }
        for each in parameters:
            if each.when is not None and not each.when(values):
                assert values[each.name] == each.default


def test_a_point_of_any_space_has_a_number():
    codes = np.array([[0, 2], [1, 0], [0, 2], [1, 1]])
    assert numbers(codes, np.array([2, 3])).tolist() == [2, 3, 2, 4]
    assert numbers(codes, np.array([2**40, 2**40])).tolist() == [0, 1, 0, 2]
    assert numbers(np.zeros((3, 0), np.int64), np.zeros(0, np.int64)).tolist() == [0, 0, 0]


def test_the_first_row_of_each_value_of_each_column_is_found():
    dice = np.random.default_rng(0)
    for _ in range(50):
        codes = dice.integers(0, dice.integers(1, 9), (dice.integers(1, 200), dice.integers(1, 9)))
        first = {np.flatnonzero(column == value)[0] for column in codes.T for value in column}
        assert set(first_rows(codes).tolist()) == first
