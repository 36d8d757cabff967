"""Random valid points of a space that is too large to list.

Parameters get values one after another, in random order of values; a rule is evaluated as soon as
its names have values, and a value after which none fits is taken back. So each point is valid by
construction. Points are not equally likely: a value after which few points remain is drawn as often
as its neighbours.

The parameters of the first rule come first, then those of the second, and so on: a rule whose
parameters lie apart in the template is not found broken after everything between them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.lattice import Fits, Level, launch_names

STEPS = 2_000  # values tried in one attempt; after a dead end deep down another start is cheaper
ATTEMPTS = 50
Order = Callable[[Parameter], Sequence[Value]]


class _TooManySteps(Exception):
    """This attempt is lost in a dead end."""


def drawn_point(
    levels: Sequence[Level], known: Items, fits: Fits, rng: random.Random, near: Mapping[str, Value]
) -> Items | None:
    """A valid point: a random one, or one that keeps the values of `near` where they fit.

    None when none is found.
    """

    def order(parameter: Parameter) -> Sequence[Value]:
        if parameter.name in near:
            return by_distance(parameter, near[parameter.name], rng)
        return _Shuffled(parameter.values, rng)

    for _ in range(ATTEMPTS):
        steps = iter(range(STEPS))
        try:
            return next(_below(levels, 0, dict(known), fits, order, steps))
        except _TooManySteps:
            continue
        except StopIteration:
            break
    return None


class _Shuffled(Sequence[Value]):
    """Values in random order, each drawn when it is needed: mostly only the first is."""

    def __init__(self, values: tuple[Value, ...], rng: random.Random) -> None:
        self._values, self._rng = values, rng

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: int) -> Value:  # type: ignore[override]  # no slices
        return self._values[place]

    def __iter__(self) -> Iterator[Value]:
        first = int(self._rng.random() * len(self._values))
        yield self._values[first]
        others = [*self._values[:first], *self._values[first + 1 :]]
        yield from self._rng.sample(others, len(others))


def draw_order(template: TemplateSpec) -> TemplateSpec:
    """The template with its parameters in the order in which rules use them."""
    parameters = {parameter.name: parameter for parameter in template.parameters}
    local_names = {name: local.names for name, local in template.locals}
    order: dict[str, Parameter] = {}

    def add(names: frozenset[str]) -> None:
        for name in (*parameters, *local_names):
            if name in names and name not in order:
                parameter = parameters.get(name)
                if parameter is None:
                    add(local_names[name])
                    continue
                add(parameter.when.names if parameter.when is not None else frozenset())
                order[name] = parameter

    for constraint in template.constraints:
        add(constraint.expression.names)
    add(launch_names(template))
    add(frozenset(parameters))
    return replace(template, parameters=tuple(order.values()))


def no_valid_point(template: TemplateSpec) -> SpecError:
    return SpecError(
        f"template {template.name} of kernel {template.kernel}: no point that satisfies the "
        f"constraints was found in {ATTEMPTS * STEPS:,} steps",
        code="no_valid_point",
        mend="write constraints over fewer parameters, or a preset that satisfies them",
    )


def by_distance(parameter: Parameter, wanted: Value, rng: random.Random) -> list[Value]:
    """The values, those near to `wanted` first; ties in random order."""
    values = rng.sample(parameter.values, len(parameter.values))
    if wanted not in parameter.values:
        return values
    if parameter.type != "int":
        return sorted(values, key=lambda value: value != wanted)
    place = {value: position for position, value in enumerate(parameter.values)}
    return sorted(values, key=lambda value: abs(place[value] - place[wanted]))


def _below(
    levels: Sequence[Level],
    depth: int,
    values: dict[str, Value],
    fits: Fits,
    order: Order,
    steps: Iterator[int],
) -> Iterator[Items]:
    if depth == len(levels):
        yield tuple((level.parameter.name, values[level.parameter.name]) for level in levels)
        return
    level = levels[depth]
    parameter = level.parameter
    active = parameter.when is None or parameter.when(values)
    for value in order(parameter) if active else (parameter.default,):
        if next(steps, None) is None:
            raise _TooManySteps
        here = {**values, parameter.name: value}
        for name, local in level.locals:
            here[name] = local(here)
        if all(constraint(here) for constraint in level.constraints) and (
            not level.launches_are_known or fits(here)
        ):
            yield from _below(levels, depth + 1, here, fits, order, steps)
