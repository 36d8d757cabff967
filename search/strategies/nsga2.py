"""`nsga2`: an evolutionary search with a population, crossover, mutation and elitist selection.

Sources: Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II", 2002; Optuna's
NSGAIISampler.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial

from greenfast.search.space.candidate import Origin, OriginKind
from greenfast.search.strategies.objectives import Values, dominates
from greenfast.search.strategies.optuna_study import CANDIDATE, OptunaStrategy

POPULATION = 12  # budgets are tens to thousands of trials, so generations must be short
CROSSOVER_PROBABILITY = 0.9
SWAPPING_PROBABILITY = 0.5


class Nsga2(OptunaStrategy):
    """Breeds candidates from the best correct ones."""

    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return BreedingSampler(seed, self.options.population or POPULATION)

    def origin(self, sampler: optuna.samplers.BaseSampler) -> Origin:
        parents = sampler.breeding.parents if isinstance(sampler, BreedingSampler) else ()
        kind = {0: OriginKind.SAMPLED, 1: OriginKind.MUTATED}.get(len(parents), OriginKind.CROSSED)
        return Origin(kind, parents)


class BreedingSampler(optuna.samplers.NSGAIISampler):
    """Optuna's sampler; `breeding.parents` are the parents of the point suggested last."""

    def __init__(self, seed: int, population: int = POPULATION) -> None:
        self.breeding = Breeding(seed)
        super().__init__(
            seed=seed, population_size=population, child_generation_strategy=self.breeding
        )

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self.breeding.parents = ()  # the first generation has none
        return super().sample_relative(study, trial, search_space)


class Breeding:
    """Creates children as Optuna does by default, draw for draw, and remembers their parents.

    Optuna does not expose the parents of a child. Parameters that a child lacks are mutations,
    which Optuna samples.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.RandomState(seed)
        self.parents: tuple[str, ...] = ()

    def __call__(
        self, study: optuna.Study, space: dict[str, BaseDistribution], population: list[FrozenTrial]
    ) -> dict[str, Any]:
        if self._rng.rand() < CROSSOVER_PROBABILITY:
            mother = self._select(population)
            parents = [
                mother,
                self._select([trial for trial in population if trial.number != mother.number]),
            ]
            child = self._cross(parents, space)
        else:
            parents = [population[self._rng.choice(len(population))]]
            child = {name: parents[0].params[name] for name in space}
        self.parents = tuple(trial.system_attrs[CANDIDATE] for trial in parents)
        mutation_probability = 1.0 / max(1.0, len(child))
        return {
            name: value for name, value in child.items() if self._rng.rand() >= mutation_probability
        }

    def _select(self, population: list[FrozenTrial]) -> FrozenTrial:
        """The first of two random trials if it dominates the other, else the other."""
        first, second = (population[self._rng.choice(len(population))] for _ in range(2))
        return first if _rank_dominates(_rank(first), _rank(second)) else second

    def _cross(
        self, parents: list[FrozenTrial], space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Each parameter from either parent; Optuna draws for categories first."""
        categories = [
            name
            for name, distribution in space.items()
            if isinstance(distribution, CategoricalDistribution)
        ]
        numbers = [name for name in space if name not in categories]
        child: dict[str, Any] = {}
        for names in filter(None, (categories, numbers)):
            swapped = self._rng.rand(len(names)) >= SWAPPING_PROBABILITY
            child.update(
                {
                    name: parents[int(swap)].params[name]
                    for name, swap in zip(names, swapped, strict=True)
                }
            )
        return child


def _rank(trial: FrozenTrial) -> tuple[bool, Values]:
    """Whether a candidate is wrong, and its objectives; lower is better."""
    return any(value > 0 for value in trial.constraints.values()), tuple(trial.values)


def _rank_dominates(first: tuple[bool, Values], second: tuple[bool, Values]) -> bool:
    """Any correct candidate dominates any wrong one."""
    if first[0] != second[0]:
        return second[0]
    return dominates(first[1], second[1])
