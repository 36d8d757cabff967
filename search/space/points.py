"""Many points of a template, stored as positions of values.

A space of 150,000 points takes 2 MB this way, instead of 250 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from greenfast.search.kernels.spec import Parameter
from greenfast.search.kernels.workloads import Items

LARGEST_GROUP = 2**16  # entries of a table of distances: combinations of values


def position_type(parameters: Sequence[Parameter]) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that holds the positions of all values of these parameters."""
    largest = max((len(parameter.values) for parameter in parameters), default=1) - 1
    return next(
        unsigned
        for unsigned in (np.uint8, np.uint16, np.uint32)
        if largest <= np.iinfo(unsigned).max
    )


class Points(Sequence[Items]):
    """Points in a fixed order; each is created when it is used."""

    def __init__(
        self, parameters: tuple[Parameter, ...], points: Iterable[Items] | np.ndarray
    ) -> None:
        """`points`: parameters of each point, or positions of values [points, parameters]."""
        self.parameters = parameters
        self._codes = [
            {(type(value), value): code for code, value in enumerate(parameter.values)}
            for parameter in parameters
        ]
        self._type = position_type(parameters)
        if not isinstance(points, np.ndarray):
            points = np.frombuffer(b"".join(self._row(point) for point in points), self._type)
        self.encoded = points.reshape(-1, len(parameters))

    def __len__(self) -> int:
        return len(self.encoded)

    @overload
    def __getitem__(self, position: int) -> Items: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Items, ...]: ...

    def __getitem__(self, position: int | slice) -> Items | tuple[Items, ...]:
        if isinstance(position, slice):
            return tuple(self._point(row) for row in self.encoded[position])
        return self._point(self.encoded[position])

    def position(self, parameters: Items) -> int | None:
        """The position of a point; None when it is not among these."""
        try:
            row = self._row(parameters)
        except (KeyError, ValueError):
            return None  # the template has no such value, or other parameters
        key = self._key(np.frombuffer(row, self._type).reshape(-1, 1))[0]
        first, end = (
            np.searchsorted(self._keys, key, "left"),
            np.searchsorted(self._keys, key, "right"),
        )
        return next(
            (int(at) for at in self._order[first:end] if self.encoded[at].tobytes() == row), None
        )

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """[rows]: the position of each row of positions of values; -1 where it is not here."""
        if not len(self) or not len(rows):
            return np.full(len(rows), -1, np.intp)
        keys = self._key(np.ascontiguousarray(rows.T))
        at = np.searchsorted(self._keys, keys, "left")
        last = np.searchsorted(self._keys, keys, "right")
        places = self._order[np.minimum(at, len(self) - 1)]
        same = (at < last) & (self.encoded[places] == rows).all(1)
        for row in np.flatnonzero((at + 1 < last) & ~same):  # several points share the number
            shared = self._order[at[row] : last[row]]
            equal = shared[(self.encoded[shared] == rows[row]).all(1)]
            if len(equal):
                places[row], same[row] = equal[0], True
        known: np.ndarray = np.where(same, places, -1)
        return known

    def encode(self, parameters: Items) -> np.ndarray:
        """Positions of a point's values: [parameters]."""
        return np.frombuffer(self._row(parameters), self._type)

    def distances(self, parameters: Items) -> np.ndarray:
        """The distance of each point from `parameters`: [points], whole numbers.

        It is the sum of steps between ordered values, and 1 for each different unordered value.
        Distances are looked up in a few tables. One operation for each parameter would be sixty,
        and other threads could take the global lock between any two.
        """
        codes, distances = self.encode(parameters), np.zeros(len(self), self._distance_type)
        for places, digits in self._groups:
            table = np.zeros(1, self._distance_type)
            for place in places:
                code, values = int(codes[place]), np.arange(len(self._codes[place]))
                ordered = self.parameters[place].type == "int"
                steps = np.abs(values - code) if ordered else values != code
                table = (table[:, None] + steps.astype(self._distance_type)).ravel()
            distances += table.take(digits, mode="clip")
        return distances

    @property
    def _distance_type(self) -> type[np.signedinteger[Any]]:
        """A type that holds the largest distance, and one more for points that are not allowed."""
        largest = sum(len(codes) for codes in self._codes)
        return np.int16 if largest < np.iinfo(np.int16).max else np.int32

    @cached_property
    def _groups(self) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Groups of parameters: (their places, [points] numbers).

        The digits of a number are the positions of the values of the group's parameters. A group is
        as large as a table allows.
        """
        groups: list[tuple[tuple[int, ...], np.ndarray]] = []
        places: tuple[int, ...] = ()
        digits, size = np.zeros(len(self), np.intp), 1
        for place, codes in enumerate(self._codes):
            if size * len(codes) > LARGEST_GROUP:
                groups.append((places, digits))
                places, digits, size = (), np.zeros(len(self), np.intp), 1
            digits = digits * len(codes) + self.columns[place]
            places, size = (*places, place), size * len(codes)
        return [*groups, (places, digits)]

    @cached_property
    def columns(self) -> np.ndarray:
        """[parameters, points]: positions of values; each parameter's are contiguous."""
        return np.ascontiguousarray(self.encoded.T)

    @cached_property
    def _order(self) -> np.ndarray:
        """[points]: positions of the points in the order of their keys."""
        return np.argsort(self._key(self.columns)).astype(np.int32)

    @cached_property
    def _keys(self) -> np.ndarray:
        """[points]: the sorted keys."""
        keys: np.ndarray = self._key(self.columns)[self._order]
        return keys

    def _key(self, columns: np.ndarray) -> np.ndarray:
        """A number for each point, from [parameters, points] positions of values.

        The positions are its digits. Points of a space larger than 2^64 may share a number.
        """
        keys = np.zeros(columns.shape[1], np.uint64)
        for column, codes in zip(columns, self._codes, strict=True):
            keys *= np.uint64(len(codes))
            keys += column.astype(np.uint64)
        return keys

    def _row(self, point: Items) -> bytes:
        positions = [
            codes[type(value), value] for codes, (_, value) in zip(self._codes, point, strict=True)
        ]
        return np.array(positions, self._type).tobytes()

    def _point(self, row: np.ndarray) -> Items:
        return tuple(
            (parameter.name, parameter.values[code])
            for parameter, code in zip(self.parameters, row.tolist(), strict=True)
        )
