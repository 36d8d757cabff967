"""Parameter values as numbers for a model: ordered values keep their order, others are apart.

A model of times also gets products of parameters that act together: `block_x` and `block_y`, whose
product is the size of a block, and the parameters of an axis, such as `tile_m` and `warps_m`.
Another column is the number of factors of two, since such numbers fit warps and memory better. A
column without information costs little, because the model learns how much each column matters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter


def is_number(text: Value) -> bool:
    """Whether a choice names a number, as an imported space's fractions do."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_ordered(parameter: Parameter) -> bool:
    """Whether neighbouring values are alike: numbers, also where they are written as choices."""
    if parameter.type == "int":
        return True
    return parameter.type == "choice" and all(map(is_number, parameter.values))


_AXIS_LAST = re.compile(r"(.+?)_?([xyzmnk]|\d)$")  # block_size_x, tile_m, vwn
_AXIS_FIRST = re.compile(r"([mnk])_?(.{2,})$")  # mwg, ndimc
LARGEST_PRODUCT = 3  # parameters


class Encoding:
    """Columns for each parameter that has several values."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._count = len(parameters)
        tables: list[np.ndarray] = []
        groups: list[int] = []
        places: list[int] = []
        for place, parameter in enumerate(parameters):
            if len(parameter.values) > 1:
                table = _table(parameter)
                groups += [len(tables)] * table.shape[1]
                tables.append(table)
                places.append(place)
        self.places = places
        self._tables = tables
        self.groups = np.array(groups, np.intp)  # [columns]: which parameter each belongs to

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """[points, columns] of positions of values [points, parameters]."""
        columns = [
            table[codes[:, place]] for place, table in zip(self.places, self._tables, strict=True)
        ]
        joined: np.ndarray = np.concatenate(columns, axis=1)
        return joined

    def nearest(self, point: np.ndarray) -> list[int]:
        """[parameters]: the positions of the values nearest to a point of [columns]."""
        codes = [0] * self._count
        for number, (place, table) in enumerate(zip(self.places, self._tables, strict=True)):
            own = point[self.groups == number]
            codes[place] = int(((table - own) ** 2).sum(axis=1).argmin())
        return codes


class Features(Encoding):
    """These columns, products of parameters that belong together, and shares of factors of two."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        super().__init__(parameters)
        self._derived: list[list[tuple[int, np.ndarray]]] = []  # of each column: sums of tables
        for places in _related(parameters):
            tables = [np.log2(np.array(parameters[place].values, float)) for place in places]
            self._derive(places, tables)
        for place, parameter in enumerate(parameters):
            if _is_positive(parameter) and len(parameter.values) > 2:
                twos = np.array([_twos(int(value)) for value in parameter.values], float)
                if len(set(twos.tolist())) < len(twos):  # else it says the same as the values
                    self._derive((place,), [twos])
        first = int(self.groups.max(initial=-1)) + 1
        added = np.arange(first, first + len(self._derived))
        self.groups = np.append(self.groups, added).astype(np.intp)

    def _derive(self, places: Sequence[int], tables: Sequence[np.ndarray]) -> None:
        """A column of sums, from 0 to 1; none where all are equal."""
        width = sum(float(np.ptp(table)) for table in tables)
        if width > 0:
            scaled = [(table - table.min()) / width for table in tables]
            self._derived.append(list(zip(places, scaled, strict=True)))

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        derived = [
            np.sum([table[codes[:, place]] for place, table in column], axis=0)
            for column in self._derived
        ]
        columns: np.ndarray = np.column_stack([super().__call__(codes), *derived])
        return columns


def _related(parameters: Sequence[Parameter]) -> list[tuple[int, ...]]:
    """The places of parameters whose names differ in an axis only, or share one."""
    groups: dict[str, list[int]] = {}
    for place, parameter in enumerate(parameters):
        if not _is_positive(parameter):
            continue
        if last := _AXIS_LAST.match(parameter.name):
            groups.setdefault(f"name {last[1]}", []).append(place)
            groups.setdefault(f"axis {last[2]}", []).append(place)
        if first := _AXIS_FIRST.match(parameter.name):
            groups.setdefault(f"rest {first[2]}", []).append(place)
    related = (tuple(places) for places in groups.values() if 2 <= len(places) <= LARGEST_PRODUCT)
    return list(dict.fromkeys(related))


def _is_positive(parameter: Parameter) -> bool:
    """Whether it has several values, all whole numbers above 0."""
    return (
        parameter.type == "int"
        and len(parameter.values) > 1
        and all(isinstance(value, int) and value > 0 for value in parameter.values)
    )


def _twos(value: int) -> int:
    """How often 2 divides the value."""
    return (value & -value).bit_length() - 1


def _table(parameter: Parameter) -> np.ndarray:
    """[values, columns]: ordered values side by side in 0 to 1, others all at the distance 1."""
    count = len(parameter.values)
    if is_ordered(parameter) or count == 2:
        ordered: np.ndarray = np.linspace(0.0, 1.0, count)[:, None]
        return ordered
    apart: np.ndarray = np.eye(count) / np.sqrt(2.0)
    return apart
