"""Children of the best points, before any is tried: selection, crossover and mutation on arrays.

A point is a row of positions of values. A child takes groups of parameters from two parents, or
changes a few values of one. A template names groups of parameters, such as the sizes of a tile. A
parameter without a group joins those that its `when` uses: a feature moves together with its
settings. Ordered values change mostly to a neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greenfast.search.kernels.spec import Parameter
from greenfast.search.space.space import Space
from greenfast.search.strategies.features import is_ordered

Codes = np.ndarray  # [points, parameters]: positions of values
CROSSED = 0.5  # of the children have two parents
ALSO_MUTATED = 0.3  # of those
NEIGHBOUR = 0.7  # of the changes of an ordered value go one step
CHANGES = (1, 1, 1, 2, 2, 3)  # values that a mutation changes, equally likely


@dataclass(frozen=True)
class Children:
    """Rows of positions; `mothers` and `fathers` are rows of the parents, equal for a mutant."""

    codes: Codes
    mothers: np.ndarray
    fathers: np.ndarray

    def kept(self, rows: np.ndarray) -> Children:
        return Children(self.codes[rows], self.mothers[rows], self.fathers[rows])


class Breeder:
    """Breeds points of one space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        parameters = space.template.parameters
        self._counts = np.array([len(parameter.values) for parameter in parameters], np.int64)
        self._ordered = np.array([is_ordered(parameter) for parameter in parameters], bool)
        self._varied = np.flatnonzero(self._counts > 1)
        self._group_of = parameter_groups(parameters)
        self._conditions = [
            Condition(space, place)
            for place, parameter in enumerate(parameters)
            if parameter.when is not None
        ]

    def children(self, parents: Codes, rng: np.random.Generator, count: int) -> Children:
        """Different children of `parents`, the better ones first; some may be invalid or known."""
        mothers, fathers = _tournament(len(parents), rng, count), np.empty(0, np.intp)
        fathers = np.where(
            rng.random(count) < CROSSED, _tournament(len(parents), rng, count), mothers
        )
        codes = self._crossed(parents[mothers], parents[fathers], rng)
        mutants = (fathers == mothers) | (rng.random(count) < ALSO_MUTATED)
        codes[mutants] = self._mutated(codes[mutants], rng)
        codes = self._completed(codes)
        _, first = np.unique(numbers(codes, self._counts), return_index=True)
        return Children(codes, mothers, fathers).kept(np.sort(first))

    def _crossed(self, mothers: Codes, fathers: Codes, rng: np.random.Generator) -> Codes:
        """Each group of parameters from either parent."""
        taken = rng.random((len(mothers), int(self._group_of.max(initial=0)) + 1)) < 0.5
        crossed: Codes = np.where(taken[:, self._group_of], fathers, mothers)
        return crossed

    def _mutated(self, codes: Codes, rng: np.random.Generator) -> Codes:
        codes, rows = codes.copy(), np.arange(len(codes))
        order = self._varied[np.argsort(rng.random((len(codes), len(self._varied))), axis=1)]
        changes = np.minimum(rng.choice(CHANGES, len(codes)), len(self._varied))
        for number in range(int(changes.max(initial=0))):
            active = rows[changes > number]
            places = order[active, number]
            codes[active, places] = self._moved(codes[active, places], places, rng)
        return codes

    def _moved(self, codes: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Another position for each value of the parameters at `places`."""
        counts = self._counts[places]
        step = np.where(rng.random(len(codes)) < 0.5, 1, -1)
        step = np.where((codes + step < 0) | (codes + step >= counts), -step, step)
        anywhere = (codes + rng.integers(1, counts)) % counts
        near = self._ordered[places] & (rng.random(len(codes)) < NEIGHBOUR)
        moved: np.ndarray = np.where(near, codes + step, anywhere)
        return moved

    def _completed(self, codes: Codes) -> Codes:
        """The rows with the default of each parameter whose `when` does not hold."""
        for condition in self._conditions:
            codes[~condition.holds(codes), condition.place] = condition.default
        return codes


class Condition:
    """The `when` of a parameter on rows of positions; each combination is evaluated once."""

    def __init__(self, space: Space, place: int) -> None:
        parameters = space.template.parameters
        parameter = parameters[place]
        assert parameter.when is not None, "the parameter has no condition"
        self.place, self.default = place, parameter.values.index(parameter.default)
        self._when, self._compiled = parameter.when, dict(space.compiled)
        self._places = [
            at for at, each in enumerate(parameters) if each.name in parameter.when.names
        ]
        self._parameters = [parameters[at] for at in self._places]
        self._counts = np.array([len(parameter.values) for parameter in self._parameters], np.int64)
        self._known: dict[int, bool] = {}

    def holds(self, codes: Codes) -> np.ndarray:
        """[rows]: whether it holds."""
        rows = codes[:, self._places]
        combinations, first, kind = np.unique(
            numbers(rows, self._counts), return_index=True, return_inverse=True
        )
        for number, row in zip(combinations.tolist(), first.tolist(), strict=True):
            if number not in self._known:
                self._known[number] = self._asked(rows[row].tolist())
        known = [self._known[number] for number in combinations.tolist()]
        return np.array(known, bool)[kind.reshape(-1)]

    def _asked(self, row: list[int]) -> bool:
        values = dict(self._compiled)
        for parameter, code in zip(self._parameters, row, strict=True):
            values[parameter.name] = parameter.values[code]
        return bool(self._when(values))


def numbers(codes: Codes, counts: np.ndarray) -> np.ndarray:
    """[points]: a number of each, equal for equal points; `counts` of values in each column.

    A point of too many combinations for 64 bits becomes a number by its order.
    """
    if math.prod(counts.tolist()) >= 2**63:
        return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
    steps = np.append(np.cumprod(counts[:0:-1])[::-1], 1) if len(counts) else counts
    return codes @ steps.astype(np.int64)


def parameter_groups(parameters: Sequence[Parameter]) -> np.ndarray:
    """[parameters]: the number of each one's group."""
    places = {parameter.name: place for place, parameter in enumerate(parameters)}
    groups = list(range(len(parameters)))
    first: dict[str, int] = {}  # place of the first parameter of each named group

    def join(place: int, other: int) -> None:
        # The lowest number stays: names come in another order in each process.
        kept, joined = sorted((groups[place], groups[other]))
        groups[:] = [kept if group == joined else group for group in groups]

    for place, parameter in enumerate(parameters):
        if parameter.group:
            join(place, first.setdefault(parameter.group, place))
        elif parameter.when is not None:
            for name in parameter.when.names:
                if name in places:
                    join(place, places[name])
    return np.unique(groups, return_inverse=True)[1].reshape(-1)


def _tournament(parents: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """[count]: the better of two random parents."""
    pairs: np.ndarray = rng.integers(0, parents, (2, count)).min(axis=0)
    return pairs
