"""The valid points of a space that were not tried yet: of one that is listed, or of a huge one."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from greenfast.search.errors import SpecError
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.space import Space

DRAWS = 64  # of a huge space before it counts as exhausted, each a new point with near certainty


class NoneLeft(Exception):
    """No untried point of the space was found; `any` is False from now on."""


class Untried(ABC):
    """The untried points of one template's space."""

    @abstractmethod
    def any(self) -> bool:
        """Whether a point is left."""

    @abstractmethod
    def has(self, parameters: Items) -> bool:
        """Whether the point is valid and was never tried."""

    @abstractmethod
    def mark(self, parameters: Items) -> None:
        """Count the point as tried."""

    @abstractmethod
    def drawn(self, rng: random.Random) -> Items:
        """A random point, if `any`. NoneLeft if none is found all the same."""

    @abstractmethod
    def nearest(self, near: Items, rng: random.Random) -> Items:
        """A point near to `near`, which may be invalid; there is at least one."""

    @abstractmethod
    def fresh(self, codes: np.ndarray) -> np.ndarray:
        """[points]: whether each row of positions is a valid point that was never tried."""

    @abstractmethod
    def pool(self, rng: random.Random, most: int, draws: int) -> np.ndarray:
        """Positions of values [points, parameters] of up to `most` points: all, if they are few.

        Of a space that is not listed, as many as `draws` random draws find.
        """


class ListedUntried(Untried):
    """For a space whose points are listed: an exact account."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.mask = np.ones(len(space.points), bool)

    def any(self) -> bool:
        return bool(self.mask.any())

    def has(self, parameters: Items) -> bool:
        position = self.space.points.position(parameters)
        return position is not None and bool(self.mask[position])

    def mark(self, parameters: Items) -> None:
        position = self.space.points.position(parameters)
        if position is not None:
            self.mask[position] = False

    def drawn(self, rng: random.Random) -> Items:
        left = np.flatnonzero(self.mask)
        return self.space.points[int(left[rng.randrange(len(left))])]

    def nearest(self, near: Items, rng: random.Random) -> Items:
        return self.space.nearest(near, self.mask, rng)

    def fresh(self, codes: np.ndarray) -> np.ndarray:
        positions = self.space.points.positions(codes)
        fresh: np.ndarray = (positions >= 0) & self.mask[positions]
        return fresh

    def pool(self, rng: random.Random, most: int, draws: int) -> np.ndarray:
        left = np.flatnonzero(self.mask)
        if len(left) > most:
            dice = np.random.default_rng(rng.getrandbits(64))
            left = np.sort(dice.choice(left, most, replace=False))
        return self.space.points.encoded[left]


class DrawnUntried(Untried):
    """For a space with too many points to list: points are drawn, each valid by construction."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._tried: set[Items] = set()
        self._tried_rows: set[tuple[int, ...]] = set()
        self._walk: Iterator[Items] | None = None  # over all points, when draws find no new one
        self._ahead: Items | None = None  # where the walk is
        self._closed = False
        self._codes = [
            {(type(value), value): code for code, value in enumerate(parameter.values)}
            for parameter in space.template.parameters
        ]

    def any(self) -> bool:
        return not self._closed

    def has(self, parameters: Items) -> bool:
        if parameters in self._tried or len(parameters) != len(self._codes):
            return False
        known = all(
            (type(value), value) in codes
            for codes, (_, value) in zip(self._codes, parameters, strict=True)
        )
        return known and self.space.is_valid(parameters)

    def mark(self, parameters: Items) -> None:
        self._tried.add(parameters)
        with suppress(KeyError, ValueError):  # a baseline may have values that the space lacks
            self._tried_rows.add(tuple(self.encoded(parameters)))

    def drawn(self, rng: random.Random) -> Items:
        for _ in range(DRAWS if self._walk is None else 0):
            point = self._point(rng)
            if point is None:
                break
            if point not in self._tried:
                return point
        return self._walked()

    def _point(self, rng: random.Random, near: Items = ()) -> Items | None:
        """A random valid point; None if none is found in a space that has some."""
        try:
            return self.space.drawn(rng, near)
        except SpecError as error:
            if error.code == "no_valid_point" and self._tried:
                return None
            raise

    def nearest(self, near: Items, rng: random.Random) -> Items:
        point = self._point(rng, near)
        for _ in range(DRAWS):
            if point is None:
                break
            if point not in self._tried:
                return point
            place = rng.randrange(len(near))
            name = near[place][0]
            moved = list(point)
            moved[place] = (name, rng.choice(self.space.template.parameter(name).values))
            point = self._point(rng, tuple(moved))
        return self.drawn(rng)

    def fresh(self, codes: np.ndarray) -> np.ndarray:
        rows = [tuple(row) not in self._tried_rows for row in codes.tolist()]
        fresh: np.ndarray = np.array(rows, bool) & self.space.are_valid(codes)
        return fresh

    def pool(self, rng: random.Random, most: int, draws: int) -> np.ndarray:
        points = dict.fromkeys(self._point(rng) for _ in range(draws))
        rows = [self.encoded(point) for point in points if point and point not in self._tried]
        return np.array(rows, np.int64).reshape(-1, len(self._codes))

    def encoded(self, point: Items) -> list[int]:
        return [
            codes[type(value), value] for codes, (_, value) in zip(self._codes, point, strict=True)
        ]

    def _walked(self) -> Items:
        """The next untried point of a walk: few are left that random draws reach.

        The walk continues where it stopped. NoneLeft after its last point, or after as many steps
        as a walk of a space may take.
        """
        if self._walk is None:
            self._walk = self.space.each_point()
        try:
            while self._ahead is None or self._ahead in self._tried:
                self._ahead = next(self._walk)
            return self._ahead
        except (StopIteration, SpecError) as error:
            if isinstance(error, SpecError) and error.code != "space_too_large":
                raise
            self._closed = True
            raise NoneLeft from error


def untried_of(space: Space) -> Untried:
    return ListedUntried(space) if space.is_listed else DrawnUntried(space)
