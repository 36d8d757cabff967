"""Children of the best points, bred in thought: selection, crossover and mutation on arrays.

A point is a row of positions of values. A child takes groups of parameters from two parents, or
changes a few values of one. A group is a parameter with those that exist only under its condition:
a feature moves together with its settings. Ordered values change mostly to a neighbour.
"""

from __future__ import annotations

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
        _, first = np.unique(codes, axis=0, return_index=True)
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
        parameters = self._space.template.parameters
        places = {parameter.name: place for place, parameter in enumerate(parameters)}
        for place, parameter in enumerate(parameters):
            if parameter.when is None:
                continue
            names = [name for name in sorted(parameter.when.names) if name in places]
            rows, kind = np.unique(
                codes[:, [places[name] for name in names]], axis=0, return_inverse=True
            )
            active = []
            for row in rows.tolist():
                values = dict(self._space.compiled)
                for name, code in zip(names, row, strict=True):
                    values[name] = parameters[places[name]].values[code]
                active.append(bool(parameter.when(values)))
            inactive = ~np.array(active, bool)[kind.reshape(-1)]
            codes[inactive, place] = parameter.values.index(parameter.default)
        return codes


def parameter_groups(parameters: Sequence[Parameter]) -> np.ndarray:
    """[parameters]: the number of each one's group."""
    places = {parameter.name: place for place, parameter in enumerate(parameters)}
    groups = list(range(len(parameters)))
    for place, parameter in enumerate(parameters):
        condition = [] if parameter.when is None else parameter.when.names
        for name in condition:
            if name in places:
                joined, kept = groups[place], groups[places[name]]
                groups = [kept if group == joined else group for group in groups]
    return np.unique(groups, return_inverse=True)[1].reshape(-1)


def _tournament(parents: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """[count]: the better of two random parents."""
    pairs: np.ndarray = rng.integers(0, parents, (2, count)).min(axis=0)
    return pairs
