"""Parameter values as numbers for a model: ordered values keep their order, others are apart."""

from __future__ import annotations

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


def _table(parameter: Parameter) -> np.ndarray:
    """[values, columns]: ordered values side by side in 0 to 1, others all at the distance 1."""
    count = len(parameter.values)
    if is_ordered(parameter) or count == 2:
        ordered: np.ndarray = np.linspace(0.0, 1.0, count)[:, None]
        return ordered
    apart: np.ndarray = np.eye(count) / np.sqrt(2.0)
    return apart
