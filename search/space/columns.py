"""All points of a template at once, as columns.

Each rule is evaluated once for each combination of the values it uses. A space of half a million
points has about a thousand such combinations, so this takes a second, where evaluating every rule
for every point takes a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space import lattice
from greenfast.search.space.lattice import Level, levels_of, too_large
from greenfast.search.space.points import position_type

LARGEST_TABLE = 2**22  # combinations that are looked up in a table; more are sorted
LARGEST_LEVEL = 50_000_000  # rows before `when` takes some away
Rule = Callable[[Mapping[str, Value]], Any]


@dataclass(frozen=True)
class Column:
    """A value for each row: `codes` [rows] are positions in `values`, which are distinct."""

    codes: np.ndarray
    values: tuple[Any, ...]

    def kept(self, rows: np.ndarray) -> Column:
        return Column(self.codes.take(rows), self.values)


Columns = dict[str, Column]


def encoded_points(
    template: TemplateSpec, known: Items, fits: Rule, fits_needs: frozenset[str]
) -> np.ndarray:
    """[points, parameters]: positions of values, in the order of `combinations`.

    `known` has the values that no parameter decides. No `when` may use a later parameter.
    `fits` judges the
    launches by the names in `fits_needs`. Raises SpecError when the walk is too long.
    """
    columns: Columns = {name: Column(np.zeros(1, np.uint8), (value,)) for name, value in known}
    tried, levels = 0, levels_of(template)
    for number, level in enumerate(levels):
        if len(_first(columns)) * len(level.parameter.values) > LARGEST_LEVEL:
            raise too_large(template)  # before memory is allocated for it
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
    """Each row, repeated for each value of the parameter.

    Where the parameter's `when` does not hold, only with its default.
    """
    parameter, rows = level.parameter, len(_first(columns))
    count = len(parameter.values)
    codes = np.tile(np.arange(count, dtype=position_type((parameter,))), rows)
    selected = np.ones(rows * count, bool)
    if parameter.when is not None:
        active = _truth(_computed(columns, sorted(parameter.when.names), parameter.when))
        selected = np.repeat(active, count) | (codes == parameter.values.index(parameter.default))
    source = np.repeat(np.arange(rows), count)[selected]
    return {
        **{name: column.kept(source) for name, column in columns.items()},
        parameter.name: Column(codes[selected], parameter.values),
    }


def _where(columns: Columns, condition: Column) -> Columns:
    truth = _truth(condition)
    if truth.all():
        return columns
    rows = np.flatnonzero(truth)
    return {name: column.kept(rows) for name, column in columns.items()}


def _truth(condition: Column) -> np.ndarray:
    truth = np.array([bool(value) for value in condition.values], bool)
    rows: np.ndarray = truth[condition.codes]
    return rows


def _computed(columns: Columns, names: Sequence[str], rule: Rule) -> Column:
    """The rule's value for each row."""
    key, size = np.zeros(len(_first(columns)), np.int64), 1
    for name in names:
        if size > LARGEST_TABLE:  # before it can pass the range of the key
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max(initial=0)) + 1
        key = key * len(columns[name].values) + columns[name].codes
        size *= len(columns[name].values)
    rows, group = _distinct(key, size)
    codes: dict[tuple[type, Any], int] = {}
    group_codes = [
        codes.setdefault((type(value), value), len(codes))
        for value in (rule(_row(columns, names, row)) for row in rows)
    ]
    return Column(np.array(group_codes, np.int32)[group], tuple(value for _, value in codes))


def _distinct(key: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A row for each distinct key, and for each row the number of its key.

    All keys are below `size`.
    """
    if size > LARGEST_TABLE:
        _, rows, group = np.unique(key, return_index=True, return_inverse=True)
        return rows, group
    table = np.full(size, -1, np.int32)
    table[key] = np.arange(len(key))
    present = np.flatnonzero(table >= 0)
    last_rows = table[present]
    table[present] = np.arange(len(present))
    return last_rows, table[key]


def _row(columns: Columns, names: Sequence[str], row: int) -> dict[str, Value]:
    return {name: columns[name].values[columns[name].codes[row]] for name in names}


def _needed_below(
    columns: Columns, levels: Sequence[Level], number: int, fits_needs: frozenset[str]
) -> Columns:
    """The columns without the locals that no later rule uses."""
    needed = set(fits_needs) | {level.parameter.name for level in levels}
    for level in levels[number + 1 :]:
        for rule in (
            *(local for _, local in level.locals),
            *level.constraints,
            *([level.parameter.when] if level.parameter.when is not None else []),
        ):
            needed |= rule.names
    return {name: column for name, column in columns.items() if name in needed}
