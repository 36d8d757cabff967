"""Walking a template's parameters: each rule is evaluated as soon as its names have values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.kernels.spec import Parameter, TemplateSpec
from greenfast.search.kernels.workloads import Items

LARGEST_WALK = 7_000_000  # values tried
Fits = Callable[[dict[str, Value]], bool]


@dataclass(frozen=True)
class Level:
    """A parameter, and the rules that can be computed once it and those before it have values."""

    parameter: Parameter
    locals: tuple[tuple[str, Expression], ...]
    constraints: tuple[Expression, ...]
    launches_are_known: bool


def combinations(template: TemplateSpec, known: Items, fits: Fits) -> Iterator[Items]:
    """Values of all parameters in a fixed order, for which the constraints and `fits` hold.

    No `when` may use a later parameter (`TemplateSpec.by_need`). `known` has the values that no
    parameter decides. `fits` judges the launches. It is called once for all points that differ
    only in values that no launch uses. Raises SpecError when the walk is too long.
    """
    budget = iter(range(LARGEST_WALK))
    yield from _below(levels_of(template), 0, dict(known), fits, budget)
    if next(budget, None) is None:
        raise too_large(template)


def too_large(template: TemplateSpec) -> SpecError:
    return SpecError(
        f"the space of template {template.name} of kernel {template.kernel} is too large: walking "
        f"it takes more than {LARGEST_WALK:,} steps",
        code="space_too_large",
        mend="give its parameters fewer values, or constraints that use only the first parameters",
    )


def _below(
    levels: list[Level], depth: int, values: dict[str, Value], fits: Fits, budget: Iterator[int]
) -> Iterator[Items]:
    if depth == len(levels):
        yield tuple((level.parameter.name, values[level.parameter.name]) for level in levels)
        return
    level = levels[depth]
    for value in _choices(level, values):
        if next(budget, None) is None:
            return
        here = {**values, level.parameter.name: value}
        for name, local in level.locals:
            here[name] = local(here)
        if all(constraint(here) for constraint in level.constraints) and (
            not level.launches_are_known or fits(here)
        ):
            yield from _below(levels, depth + 1, here, fits, budget)


def _choices(level: Level, values: dict[str, Value]) -> tuple[Value, ...]:
    parameter = level.parameter
    if parameter.when is None or parameter.when(values):
        return parameter.values
    return (parameter.default,)


def levels_of(template: TemplateSpec) -> list[Level]:
    """The levels of a walk, one for each parameter.

    A constraint is never evaluated before an earlier one, which may guard it.
    """
    known = _Known(template)
    depth, constraints = 0, []
    for constraint in template.constraints:
        depth = max(depth, known.at(constraint.expression.names))
        constraints.append((depth, constraint.expression))
    launches = max(depth, known.at(launch_names(template)))
    return [
        Level(
            parameter,
            tuple(local for local in template.locals if known.level[local[0]] == number),
            tuple(constraint for level, constraint in constraints if level == number),
            launches == number,
        )
        for number, parameter in enumerate(template.parameters)
    ]


def launch_names(template: TemplateSpec) -> frozenset[str]:
    """Names from which blocks, clusters, shared memory, `when` and tensor maps are computed."""
    return _map_names(template).union(
        *(
            expression.names
            for launch in template.launches
            for expression in (
                *launch.block,
                *launch.cluster,
                launch.smem_dynamic_bytes,
                *([launch.when] if launch.when else []),
            )
        )
    )


def _map_names(template: TemplateSpec) -> frozenset[str]:
    """Names from which the boxes of the tensor maps and their `when` are computed."""
    names = frozenset[str]()
    for spec in template.tensor_maps:
        names |= {"dtype"} if spec.dtype == "dtype" else set()
        for number in (*spec.box, spec.swizzle_bytes, spec.l2_promotion_bytes, spec.when):
            names |= number.names if number is not None else set()
    return names


class _Known:
    """The level at which each name has its value."""

    def __init__(self, template: TemplateSpec) -> None:
        self.level: dict[str, int] = {}
        for number, parameter in enumerate(template.parameters):
            self.level[parameter.name] = number
        for name, local in template.locals:
            self.level[name] = self.at(local.names)

    def at(self, names: frozenset[str]) -> int:
        """The level at which all these names have values; 0 if no parameter decides them."""
        return max((self.level.get(name, 0) for name in names), default=0)
