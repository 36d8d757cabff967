"""Many points of a template, held as positions of values: a space of 150,000 points takes 2 MB and not 250."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from greenfast.search.kernels.spec import Items, Parameter

LARGEST_GROUP = 2**16  # combinations of values that a table of distances has a place for


def position_type(parameters: Sequence[Parameter]) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type with room for the position of every value of these parameters."""
    largest = max((len(parameter.values) for parameter in parameters), default=1) - 1
    return next(one for one in (np.uint8, np.uint16, np.uint32) if largest <= np.iinfo(one).max)


class Points(Sequence[Items]):
    """Points in a fixed order; each is made when it is asked for."""

    def __init__(
        self, parameters: tuple[Parameter, ...], points: Iterable[Items] | np.ndarray
    ) -> None:
        """`points`: each one's parameters, or already [points, parameters] positions of values."""
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

    def __getitem__(self, position):
        if isinstance(position, slice):
            return tuple(self._point(row) for row in self.encoded[position])
        return self._point(self.encoded[position])

    def position(self, parameters: Items) -> int | None:
        """Where a point stands; None when it is not among these. A search asks several times a trial."""
        try:
            row = self._row(parameters)
        except KeyError:
            return None  # a value that the template does not have
        key = self._key(np.frombuffer(row, self._type).reshape(-1, 1))[0]
        first, end = (
            np.searchsorted(self._keys, key, "left"),
            np.searchsorted(self._keys, key, "right"),
        )
        return next(
            (int(at) for at in self._order[first:end] if self.encoded[at].tobytes() == row), None
        )

    def encode(self, parameters: Items) -> np.ndarray:
        """[parameters]: positions of values."""
        return np.frombuffer(self._row(parameters), self._type)

    def distances(self, parameters: Items) -> np.ndarray:
        """[points], of whole numbers: steps between ordered values and 1 for each different unordered one, from any values of the template.

        Looked up in a few tables: one step a parameter would be sixty, each of which lets other threads in between.
        """
        wanted, found = self.encode(parameters), np.zeros(len(self), self._distance_type)
        for places, digits in self._groups:
            table = np.zeros(1, self._distance_type)
            for place in places:
                one, code = self.parameters[place], int(wanted[place])
                values = np.arange(len(self._codes[place]))
                steps = np.abs(values - code) if one.type == "int" else values != code
                table = (table[:, None] + steps.astype(self._distance_type)).ravel()
            found += table.take(digits, mode="clip")
        return found

    @property
    def _distance_type(self) -> type[np.signedinteger[Any]]:
        """Has room for the largest distance, and for one more that stands for `not allowed`."""
        largest = sum(len(codes) for codes in self._codes)
        return np.int16 if largest < np.iinfo(np.int16).max else np.int32

    @cached_property
    def _groups(self) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """(places of parameters, [points]): positions of their values as digits of one number, as many as a table has room for."""
        found: list[tuple[tuple[int, ...], np.ndarray]] = []
        places, digits, size = (), np.zeros(len(self), np.intp), 1
        for place, codes in enumerate(self._codes):
            if size * len(codes) > LARGEST_GROUP:
                found.append((places, digits))
                places, digits, size = (), np.zeros(len(self), np.intp), 1
            digits = digits * len(codes) + self.columns[place]
            places, size = (*places, place), size * len(codes)
        return [*found, (places, digits)]

    @cached_property
    def columns(self) -> np.ndarray:
        """[parameters, points]: positions of values, a parameter's next to each other."""
        return np.ascontiguousarray(self.encoded.T)

    @cached_property
    def _order(self) -> np.ndarray:
        """[points]: positions in the order of their keys."""
        return np.argsort(self._key(self.columns)).astype(np.int32)

    @cached_property
    def _keys(self) -> np.ndarray:
        """[points]: sorted."""
        return self._key(self.columns)[self._order]

    def _key(self, columns: np.ndarray) -> np.ndarray:
        """One number a point, of [parameters, points] positions of values: these are its digits. Beyond 2^64 points may share one."""
        found = np.zeros(columns.shape[1], np.uint64)
        for column, codes in zip(columns, self._codes):
            found *= np.uint64(len(codes))
            found += column
        return found

    def _row(self, point: Items) -> bytes:
        positions = [codes[type(value), value] for codes, (_, value) in zip(self._codes, point)]
        return np.array(positions, self._type).tobytes()

    def _point(self, row: np.ndarray) -> Items:
        return tuple(
            (one.name, one.values[code]) for one, code in zip(self.parameters, row.tolist())
        )
