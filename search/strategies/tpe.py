"""`tpe`: tree-structured Parzen estimator, multivariate.

Sources: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; Optuna's
TPESampler.
"""

from __future__ import annotations

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from greenfast.search.strategies.optuna_study import OptunaStrategy, varied_distributions


class Tpe(OptunaStrategy):
    """Models good candidates and the others separately, and draws where the ratio is high.

    A proposal takes longer with each outcome in the model. If there are many, only a part of them
    is modelled. It holds the best ones, of which the sampler counts 25 as good from 250 on.
    """

    kept = 256

    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return _Sampler(seed=seed, multivariate=True, n_startup_trials=8)


class _Sampler(optuna.samplers.TPESampler):
    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return varied_distributions(study)
