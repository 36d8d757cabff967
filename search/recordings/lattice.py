"""A complete sub-lattice of a template's space: every valid point of the given values.

The other parameters are fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod

from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space

Lattice = tuple[tuple[str, tuple[Value, ...]], ...]
ALL = "all"
LARGEST_LATTICE = 500_000  # points before constraints


def lattice_of(
    template: TemplateSpec, settings: Sequence[str], start: Mapping[str, Value] | None = None
) -> Lattice:
    """The lattice of settings such as `tile_m=32,64`, `warps_m=all` and `depth=2`.

    A parameter without a setting keeps its value in `start`, or its default.
    UsageError for unknown names and values.
    """
    lattice: dict[str, tuple[Value, ...]] = {}
    for text in settings:
        name, separator, values = text.partition("=")
        if not separator or not values.strip():
            raise UsageError(
                f"{text!r} sets nothing",
                code="bad_setting",
                mend="write NAME=VALUE,VALUE or NAME=all",
            )
        parameter = template.parameter(name.strip())
        if parameter.name in lattice:
            raise UsageError(f"{parameter.name} is set twice", code="bad_setting")
        listed = (
            parameter.values
            if values.strip() == ALL
            else tuple(map(parameter.parse, values.split(",")))
        )
        lattice[parameter.name] = tuple(value for value in parameter.values if value in listed)
    fixed = {parameter.name: parameter.default for parameter in template.parameters}
    fixed |= dict(start or {})
    return tuple(
        (parameter.name, lattice.get(parameter.name, (fixed[parameter.name],)))
        for parameter in template.parameters
    )


def lattice_points(space: Space, lattice: Lattice) -> tuple[Items, ...]:
    """Every valid point once, with the tiles changing slowest.

    A parameter that a condition switches off takes its default. UsageError for an empty lattice
    and for one that is too large.
    """
    size = prod(len(values) for _, values in lattice)
    if size > LARGEST_LATTICE:
        raise UsageError(
            f"these values give {size} points before constraints",
            code="lattice_too_large",
            mend=f"choose fewer values: at most {LARGEST_LATTICE} points",
        )
    names = [name for name, _ in lattice]
    points: dict[Items, None] = {}
    for values in itertools.product(*(values for _, values in lattice)):
        point = complete_parameters(
            space.template, dict(zip(names, values, strict=True)), space.compiled
        )
        if point not in points and space.why_not(point) is None:
            points[point] = None
    if not points:
        raise UsageError(
            f"no valid point of template {space.template.name} has these values",
            code="empty_space",
            mend="see its constraints with `greenfast templates`",
        )
    return tuple(points)
