"""A complete sub-lattice of a template's space: every valid point of the chosen values, the other parameters fixed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod

from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, TemplateSpec
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space

Lattice = tuple[tuple[str, tuple[Value, ...]], ...]
ALL = "all"
LARGEST_LATTICE = 500_000  # points before constraints


def lattice_of(
    template: TemplateSpec, settings: Sequence[str], start: Mapping[str, Value] | None = None
) -> Lattice:
    """From texts `tile_m=32,64`, `warps_m=all`, `depth=2`; a parameter that none names keeps its value of `start`, or
    its default. UsageError for unknown names and values."""
    chosen: dict[str, tuple[Value, ...]] = {}
    for text in settings:
        name, separator, values = text.partition("=")
        if not separator or not values.strip():
            raise UsageError(
                f"{text!r} sets nothing",
                code="bad_setting",
                mend="write NAME=VALUE,VALUE or NAME=all",
            )
        parameter = template.parameter(name.strip())
        if parameter.name in chosen:
            raise UsageError(f"{parameter.name} is set twice", code="bad_setting")
        found = (
            parameter.values
            if values.strip() == ALL
            else tuple(map(parameter.parse, values.split(",")))
        )
        chosen[parameter.name] = tuple(value for value in parameter.values if value in found)
    fixed = {one.name: one.default for one in template.parameters} | dict(start or {})
    return tuple(
        (one.name, chosen.get(one.name, (fixed[one.name],))) for one in template.parameters
    )


def lattice_points(space: Space, lattice: Lattice) -> tuple[Items, ...]:
    """Every valid point once, tiles changing slowest; what a condition switches off takes its default."""
    size = prod(len(values) for _, values in lattice)
    if size > LARGEST_LATTICE:
        raise UsageError(
            f"the chosen values make {size} points before constraints",
            code="lattice_too_large",
            mend=f"{LARGEST_LATTICE} are the most; choose fewer values",
        )
    names = [name for name, _ in lattice]
    found: dict[Items, None] = {}
    for values in itertools.product(*(values for _, values in lattice)):
        point = complete_parameters(space.template, dict(zip(names, values)), space.compiled)
        if point not in found and space.why_not(point) is None:
            found[point] = None
    if not found:
        raise UsageError(
            f"no valid point of template {space.template.name} has these values",
            code="empty_space",
            mend="see its constraints with `greenfast templates`",
        )
    return tuple(found)
