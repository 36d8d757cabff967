"""All points of a template at once, as columns: a rule is asked once for each combination of the values it needs.

A space of half a million points has some thousand such combinations, so this takes a second where asking every
rule of every point takes a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, TemplateSpec
from greenfast.search.space import lattice
from greenfast.search.space.lattice import Level, levels_of, too_large
from greenfast.search.space.points import position_type

LARGEST_TABLE = 2**22  # combinations that are looked up in a table; more are sorted
Rule = Callable[[Mapping[str, Value]], Any]


@dataclass(frozen=True)
class Column:
    """One value a row: `codes` [rows] are positions in `values`, which are distinct."""

    codes: np.ndarray
    values: tuple[Any, ...]

    def kept(self, rows: np.ndarray) -> Column:
        return Column(self.codes[rows], self.values)


Columns = dict[str, Column]


def encoded_points(
    template: TemplateSpec, compiled: Items, fits: Rule, fits_needs: frozenset[str]
) -> np.ndarray:
    """[points, parameters]: positions of values, in the order of `combinations`. No `when` may look ahead.

    `fits` judges the launches by the names in `fits_needs`. SpecError when the walk is too long.
    """
    columns: Columns = {name: Column(np.zeros(1, np.uint8), (value,)) for name, value in compiled}
    tried, levels = 0, levels_of(template)
    for number, level in enumerate(levels):
        columns = _with_parameter(columns, level)
        tried += len(_first(columns))
        if tried > lattice.LARGEST_WALK:
            raise too_large(template)
        for name, local in level.locals:
            columns[name] = _computed(columns, sorted(local.names), local)
        for constraint in level.constraints:
            columns = _where(columns, _computed(columns, sorted(constraint.names), constraint))
        if level.launches_are_known:
            columns = _where(columns, _computed(columns, sorted(fits_needs), fits))
        columns = _needed_below(columns, levels, number, fits_needs)
    position = position_type(template.parameters)
    return np.stack(
        [columns[parameter.name].codes.astype(position) for parameter in template.parameters],
        axis=1,
    )


def _first(columns: Columns) -> np.ndarray:
    return next(iter(columns.values())).codes


def _with_parameter(columns: Columns, level: Level) -> Columns:
    """Every row once for each value of the parameter; only with its default where its `when` does not hold."""
    parameter, rows = level.parameter, len(_first(columns))
    count = len(parameter.values)
    codes = np.tile(np.arange(count, dtype=position_type((parameter,))), rows)
    wanted = np.ones(rows * count, bool)
    if parameter.when is not None:
        active = _truth(_computed(columns, sorted(parameter.when.names), parameter.when))
        wanted = np.repeat(active, count) | (codes == parameter.values.index(parameter.default))
    source = np.repeat(np.arange(rows), count)[wanted]
    return {
        **{name: one.kept(source) for name, one in columns.items()},
        parameter.name: Column(codes[wanted], parameter.values),
    }


def _where(columns: Columns, condition: Column) -> Columns:
    rows = _truth(condition)
    return columns if rows.all() else {name: one.kept(rows) for name, one in columns.items()}


def _truth(condition: Column) -> np.ndarray:
    return np.array([bool(value) for value in condition.values], bool)[condition.codes]


def _computed(columns: Columns, names: Sequence[str], rule: Rule) -> Column:
    """The rule's value for each row."""
    key, size = np.zeros(len(_first(columns)), np.int64), 1
    for name in names:
        if size > LARGEST_TABLE:  # before it can pass the range of the key
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max(initial=0)) + 1
        key = key * len(columns[name].values) + columns[name].codes
        size *= len(columns[name].values)
    rows, which = _distinct(key, size)
    codes: dict[tuple[type, Any], int] = {}
    found = [
        codes.setdefault((type(value), value), len(codes))
        for value in (rule(_row(columns, names, row)) for row in rows)
    ]
    return Column(np.array(found, np.int32)[which], tuple(value for _, value in codes))


def _distinct(key: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A row of each distinct key, all below `size`, and which of these keys each row has."""
    if size > LARGEST_TABLE:
        _, rows, which = np.unique(key, return_index=True, return_inverse=True)
        return rows, which
    table = np.full(size, -1, np.int32)
    table[key] = np.arange(len(key))
    there = np.flatnonzero(table >= 0)
    rows = table[there]
    table[there] = np.arange(len(there))
    return rows, table[key]


def _row(columns: Columns, names: Sequence[str], row: int) -> dict[str, Value]:
    return {name: columns[name].values[columns[name].codes[row]] for name in names}


def _needed_below(
    columns: Columns, levels: Sequence[Level], number: int, fits_needs: frozenset[str]
) -> Columns:
    """Without the locals that no later rule reads."""
    needed = set(fits_needs) | {one.parameter.name for one in levels}
    for level in levels[number + 1 :]:
        for one in (
            *(local for _, local in level.locals),
            *level.constraints,
            *([level.parameter.when] if level.parameter.when is not None else []),
        ):
            needed |= one.names
    return {name: one for name, one in columns.items() if name in needed}
