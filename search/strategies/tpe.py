"""`tpe`: tree-structured Parzen estimator, multivariate.

Sources: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; Optuna's
TPESampler.
"""

from __future__ import annotations

import optuna

from greenfast.search.strategies.optuna_study import OptunaStrategy


class Tpe(OptunaStrategy):
    """Models good candidates and the others separately, and draws where the ratio is high."""

    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=8)
