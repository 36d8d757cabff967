"""`nsga2`: an evolutionary search: a population, crossover, mutation, elitist selection.

Source: Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II", 2002; Optuna's NSGAIISampler.
"""

from __future__ import annotations

from typing import Any

import optuna

from search.candidate import Origin, OriginKind
from search.strategies.optuna_study import OptunaStrategy

POPULATION = 12                      # kernel budgets are tens to thousands of trials, so generations must be short


class Nsga2(OptunaStrategy):
    """Breeds the next candidates from the best right ones."""

    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=POPULATION)

    def _origin(self, attributes: dict[str, Any]) -> Origin:
        generation = next((value for key, value in attributes.items() if key.endswith("generation")), 0)
        return Origin(OriginKind.CROSSED if generation else OriginKind.SAMPLED)
