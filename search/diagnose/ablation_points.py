"""The points of an ablation: the winner with one feature off, or one number a step aside."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.text import written

FEATURE, STEP = "feature", "step"
MOST_ARMS = 60


@dataclass(frozen=True)
class Arm:
    """The winner with another value of one parameter."""

    parameter: str
    before: Value  # the winner's
    after: Value
    kind: str  # FEATURE | STEP
    parameters: Items  # of the whole point
    refused: str = ""  # why no such point exists; empty: it is valid
    along: Items = ()  # another parameter that had to change with it
    tied: str = ""  # the constraint that ties the two

    @property
    def name(self) -> str:
        return f"{self.parameter}={written(self.after)}"


def arms_of(space: Space, winner: Items) -> tuple[Arm, ...]:
    """Each feature switched off, each number at its neighbours, in the template's order.

    A parameter that is not active in the winner has no arm: nothing would change. Where a
    constraint excludes a value with the winner's other values, a second parameter changes along
    with it: the nearest that makes the point valid.
    """
    arms: list[Arm] = []
    for parameter in space.template.parameters:
        before = dict(winner)[parameter.name]
        for after in _others(parameter, before):
            arm = _arm(space, winner, parameter, before, after)
            if arm is not None:
                arms.append(arm)
    return tuple(arms[:MOST_ARMS])


def _others(parameter: Parameter, before: Value) -> Iterator[Value]:
    """The values to compare with: neighbours of a number, the other values of a choice."""
    if parameter.type != "int":
        yield from (value for value in parameter.values if value != before)
        return
    ordered = sorted(value for value in parameter.values if isinstance(value, int))
    at = ordered.index(int(before))
    yield from (ordered[near] for near in (at - 1, at + 1) if 0 <= near < len(ordered))


def _arm(
    space: Space, winner: Items, parameter: Parameter, before: Value, after: Value
) -> Arm | None:
    """None if the value changes nothing, because the parameter is not active."""
    changed = {**dict(winner), parameter.name: after}
    point = complete_parameters(space.template, changed, space.compiled)
    if point == winner or not _same(dict(point)[parameter.name], after):
        return None
    kind = STEP if parameter.type == "int" else FEATURE
    arm = Arm(parameter.name, before, after, kind, point, space.why_not(point) or "")
    return _tied(space, winner, arm) if arm.refused else arm


def _tied(space: Space, winner: Items, arm: Arm) -> Arm:
    """The arm with a second parameter changed by a step, so that it is valid; else the arm."""
    values = dict(arm.parameters)
    for parameter in space.template.parameters:
        if parameter.name == arm.parameter:
            continue
        for value in _others(parameter, values[parameter.name]):
            changed = {**values, parameter.name: value}
            point = complete_parameters(space.template, changed, space.compiled)
            names = differs_in(space.template, point, winner)
            if set(names) != {arm.parameter, parameter.name} or not _holds(point, arm):
                continue
            if space.why_not(point) is None:
                along = ((parameter.name, value),)
                return replace(arm, parameters=point, refused="", along=along, tied=arm.refused)
    return arm


def _same(value: Value, other: Value) -> bool:
    return type(value) is type(other) and value == other


def retuned_points(
    space: Space, arm: Arm, earlier: Iterable[Items], count: int, seed: int
) -> tuple[Items, ...]:
    """At most `count` valid points that keep the arm's value and change something else.

    First those of `earlier` (the fastest known points, best first) that hold the value, then the
    arm's own neighbours in a seeded order.
    """
    chosen: list[Items] = []

    def take(point: Items, most: int) -> None:
        if len(chosen) < most and point != arm.parameters and point not in chosen:
            chosen.append(point)

    for point in earlier:
        if _holds(point, arm) and space.why_not(point) is None:
            take(point, (count + 1) // 2)
    near = list(_neighbours(space, arm))
    random.Random(f"{seed} {arm.name}").shuffle(near)
    for point in near:
        take(point, count)
    return tuple(chosen)


def _holds(point: Items, arm: Arm) -> bool:
    values = dict(point)
    return arm.parameter in values and _same(values[arm.parameter], arm.after)


def _neighbours(space: Space, arm: Arm) -> Iterator[Items]:
    """Valid points that differ from the arm in one other parameter, and keep the arm's value."""
    values = dict(arm.parameters)
    for parameter in space.template.parameters:
        if parameter.name == arm.parameter:
            continue
        for value in _others(parameter, values[parameter.name]):
            point = complete_parameters(
                space.template, {**values, parameter.name: value}, space.compiled
            )
            if point != arm.parameters and _holds(point, arm) and space.why_not(point) is None:
                yield point


def differs_in(template: TemplateSpec, a: Items, b: Items) -> tuple[str, ...]:
    """The names of the parameters in which two points of a template differ."""
    first, second = dict(a), dict(b)
    return tuple(
        parameter.name
        for parameter in template.parameters
        if not _same(first[parameter.name], second[parameter.name])
    )


@dataclass(frozen=True)
class TimedPoint:
    """A correct trial of the scope with its time ratio to the baseline, as it was recorded."""

    name: str  # SEARCH/NUMBER
    parameters: Items
    ratio: float
    group: str  # times of one group may be compared: the same search, or the same baseline


@dataclass(frozen=True)
class Pooled:
    """One-factor pairs: trials that differ in the arm's parameter and in nothing else."""

    pairs: int
    ratio: float  # geometric mean of time with the arm's value / time with the winner's
    slower: int  # pairs in which the arm's value was slower
    names: tuple[str, ...] = ()  # some of the trials


MOST_NAMES = 6


def pooled_pairs(arm: Arm, trials: Sequence[TimedPoint]) -> Pooled | None:
    """The pairs of earlier trials for one arm; None without any."""
    ratios: list[float] = []
    names: list[str] = []
    with_value: dict[object, TimedPoint] = {}
    for trial in trials:
        if _same(dict(trial.parameters).get(arm.parameter, ""), arm.before):
            with_value.setdefault((trial.group, _rest(trial.parameters, arm.parameter)), trial)
    for trial in trials:
        if not _holds(trial.parameters, arm):
            continue
        other = with_value.get((trial.group, _rest(trial.parameters, arm.parameter)))
        if other is not None:
            ratios.append(trial.ratio / other.ratio)
            names += [trial.name, other.name]
    if not ratios:
        return None
    product = 1.0
    for ratio in ratios:
        product *= ratio ** (1 / len(ratios))
    return Pooled(
        len(ratios),
        product,
        sum(ratio > 1 for ratio in ratios),
        tuple(dict.fromkeys(names))[:MOST_NAMES],
    )


def _rest(parameters: Items, name: str) -> Items:
    return tuple(pair for pair in parameters if pair[0] != name)
