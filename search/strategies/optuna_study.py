"""Optuna as a sampler: one in-memory study a template, rebuilt from stored trials, never a store or a queue.

One study a template, because relative samplers use only the intersection of conditional spaces. Wrong candidates are
told as infeasible, by a constraint, with a value worse than any right one. A point that the constraints exclude or that
was tried is not told at all: the nearest valid untried point takes its place, and enters the study as itself.
"""

from __future__ import annotations

import json
import random
import warnings
from abc import abstractmethod
from typing import Any
from zlib import crc32

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from search.candidate import Candidate, Origin, OriginKind, complete_parameters
from search.expressions import Value
from search.space import Space
from search.spec import Items, Parameter
from search.strategies.base import Infeasible, Objective, Proposal, Strategy, Told

INFEASIBLE_LOG_RATIO = 10.0          # e^10 times the baseline: worse than anything right
CONSTRAINT = "right"

optuna.logging.set_verbosity(optuna.logging.WARNING)


class OptunaStrategy(Strategy):
    """What the Optuna samplers share."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._studies: dict[str, optuna.Study] = {}
        self._running: dict[str, int] = {}       # candidate digest -> number of its trial in the study

    @abstractmethod
    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """A fresh sampler."""

    def propose(self, template: str, rng: random.Random) -> Proposal:
        """What the sampler wants, or the valid untried point nearest to it.

        The sampler is asked once: it knows no constraints, and a second question costs as much as all else that the loop does
        for a trial (30 ms with 300 told) and mostly ends beside the space again.
        """
        study = self._study(template)
        trial = study.ask()
        wanted = _suggest(trial, self.spaces[template])
        attributes = _sampler_attributes(study.get_trials(deepcopy=False)[trial.number].system_attrs)
        if not self.is_unseen(template, wanted):
            study.tell(trial, state=TrialState.FAIL)
            return Proposal(self.nearest_unseen(template, wanted, rng), attributes)
        candidate = Candidate(self.kernel, template, wanted, self._origin(attributes))
        self._running[candidate.digest] = trial.number
        return Proposal(candidate, attributes)

    def learn(self, proposal: Proposal, told: Told) -> None:
        study = self._study(proposal.candidate.template)
        number = self._running.pop(proposal.candidate.digest, None)
        value = told.log_ratio if isinstance(told, Objective) else INFEASIBLE_LOG_RATIO
        if number is None:
            self.relearn(proposal, told)
            return
        trial = optuna.trial.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
        trial.set_constraint(CONSTRAINT, 1.0 if isinstance(told, Infeasible) else -1.0)
        study.tell(number, value)

    def relearn(self, proposal: Proposal, told: Told) -> None:
        space = self.spaces[proposal.candidate.template]
        values = proposal.candidate.values()
        active = [one for one in space.template.parameters if _is_active(one, space, values)]
        feasible = isinstance(told, Objective)
        self._study(space.template.name).add_trial(optuna.trial.create_trial(
            value=told.log_ratio if isinstance(told, Objective) else INFEASIBLE_LOG_RATIO,
            params={one.name: _encode(one, values[one.name]) for one in active},
            distributions={one.name: _distribution(one) for one in active},
            system_attrs=dict(proposal.sampler), constraints={CONSTRAINT: -1.0 if feasible else 1.0}))

    def _study(self, template: str) -> optuna.Study:
        if template not in self._studies:
            # The number of trials already known goes into the seed: a resumed search does not repeat its first draws.
            seed = crc32(f"{self.seed}/{template}/{self._asked}".encode())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._studies[template] = optuna.create_study(sampler=self.sampler(seed))
        return self._studies[template]

    def _origin(self, attributes: dict[str, Any]) -> Origin:
        return Origin(OriginKind.SAMPLED)


def _suggest(trial: optuna.Trial, space: Space) -> Items:
    """Values for the active parameters; those with a condition come after those without."""
    values: dict[str, Value] = {one.name: one.default for one in space.template.parameters}
    for one in sorted(space.template.parameters, key=lambda parameter: parameter.when is not None):
        if _is_active(one, space, values):
            if isinstance(_distribution(one), IntDistribution):
                values[one.name] = one.values[trial.suggest_int(one.name, 0, len(one.values) - 1)]
            else:
                values[one.name] = trial.suggest_categorical(one.name, list(one.values))
    return complete_parameters(space.template, values, space.compiled)


def _is_active(parameter: Parameter, space: Space, values: dict[str, Value]) -> bool:
    return parameter.when is None or bool(parameter.when({**dict(space.compiled), **values}))


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Ordered values are sampled by their position, so that a sampler knows which are close."""
    if parameter.type == "int":
        return IntDistribution(0, len(parameter.values) - 1)
    return CategoricalDistribution(parameter.values)


def _encode(parameter: Parameter, value: Value) -> Value:
    return parameter.values.index(value) if parameter.type == "int" else value


def _sampler_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """What a sampler keeps with a trial and needs again: JSON data only; its own scratch notes stay out."""
    kept = {key: value for key, value in attributes.items()
            if not key.startswith(("constraints", "tpe:", "fixed_params"))}
    return json.loads(json.dumps(kept))
