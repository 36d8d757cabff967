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
from greenfast.search.strategies.optuna_study import (
    CANDIDATE,
    OptunaStrategy,
    varied_distributions,
)

POPULATION = 12  # budgets are tens to thousands of trials, so generations must be short
CROSSOVER_PROBABILITY = 0.9
SWAPPING_PROBABILITY = 0.5
GENERATION = "greenfast:generation"  # attribute of a study: the last whose parents are known


class Nsga2(OptunaStrategy):
    """Breeds candidates from the best correct ones."""

    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return BreedingSampler(seed, self.options.population or POPULATION)

    def reseed(self, study: optuna.Study, seed: int) -> None:
        if isinstance(study.sampler, BreedingSampler):
            study.sampler.reseed(seed)
        else:
            super().reseed(study, seed)

    def origin(self, sampler: optuna.samplers.BaseSampler) -> Origin:
        parents = sampler.breeding.parents if isinstance(sampler, BreedingSampler) else ()
        kind = {0: OriginKind.SAMPLED, 1: OriginKind.MUTATED}.get(len(parents), OriginKind.CROSSED)
        return Origin(kind, parents)


class OrderedParents(optuna.samplers.NSGAIISampler):
    """Optuna's sampler, whose choice follows from the seed and the study's trials alone.

    Optuna returns the parents of a generation by rank the first time, and in the order of trials
    later, when it has stored them. Here they always have the order of trials, as a resumed study
    does not know which time it is.
    """

    def get_parent_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        ready: int = study.user_attrs.get(GENERATION, 0)
        for earlier in range(ready + 1, generation):  # one calls for the one before: no recursion
            super().get_parent_population(study, earlier)
        if generation > ready:
            study.set_user_attr(GENERATION, generation)
        parents = super().get_parent_population(study, generation)
        return sorted(parents, key=lambda trial: trial.number)


class BreedingSampler(OrderedParents):
    """`breeding.parents` are the parents of the point suggested last."""

    def __init__(self, seed: int, population: int = POPULATION) -> None:
        self.breeding = Breeding(seed)
        self.values = optuna.samplers.RandomSampler(seed)
        super().__init__(
            seed=seed, population_size=population, child_generation_strategy=self.breeding
        )

    def reseed(self, seed: int) -> None:
        self.breeding.reseed(seed)
        self.values = optuna.samplers.RandomSampler(seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return varied_distributions(study)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self.breeding.parents = ()  # the first generation has none
        return super().sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self.values.sample_independent(study, trial, param_name, param_distribution)


class Breeding:
    """Creates children as Optuna does by default, draw for draw, and remembers their parents.

    Optuna does not expose the parents of a child. Parameters that a child lacks are mutations,
    which Optuna samples.
    """

    def __init__(self, seed: int) -> None:
        self.parents: tuple[str, ...] = ()
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        self._rng = np.random.RandomState(seed)

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
