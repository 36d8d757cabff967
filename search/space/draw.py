"""Random valid points of a space that is too large to list.

Parameters get values one after another, in random order of values; a rule is evaluated as soon as
its names have values, and a value after which none fits is taken back. So each point is valid by
construction. Points are not equally likely: a value after which few points remain is drawn as often
as its neighbours.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.lattice import Fits, Level

STEPS = 2_000  # values tried in one attempt; after a dead end deep down another start is cheaper
ATTEMPTS = 50
Order = Callable[[Parameter], Sequence[Value]]


class _TooManySteps(Exception):
    """This attempt is lost in a dead end."""


def drawn_point(
    levels: Sequence[Level], known: Items, fits: Fits, rng: random.Random, near: Mapping[str, Value]
) -> Items:
    """A valid point: a random one, or one that keeps the values of `near` where they fit.

    SpecError when none is found.
    """

    def order(parameter: Parameter) -> Sequence[Value]:
        if parameter.name in near:
            return by_distance(parameter, near[parameter.name], rng)
        return rng.sample(parameter.values, len(parameter.values))

    for _ in range(ATTEMPTS):
        steps = iter(range(STEPS))
        try:
            return next(_below(levels, 0, dict(known), fits, order, steps))
        except _TooManySteps:
            continue
        except StopIteration:
            break
    raise no_valid_point()


def no_valid_point() -> SpecError:
    return SpecError(
        "no point that satisfies the constraints was found",
        code="no_valid_point",
        mend="order the parameters so that constraints use neighbouring ones",
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
    active = parameter.when is None or not level.when_is_known or parameter.when(values)
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
