"""Optuna as a sampler: one in-memory study a template, rebuilt from stored trials, never a store or a queue.

One study a template, because relative samplers use only the intersection of conditional spaces. Within a study all parameters
are always there, those that do not matter with their defaults: a sampler so sees one space, where groups of conditional ones
would cost it twice the time. What is tried enters the study as it is, once its outcome is known; wrong candidates are told as
infeasible, by a constraint, with a value worse than any right one. Where the sampler wants a point that the constraints exclude,
or one that was tried, the nearest valid untried point takes its place.
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

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, Parameter
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import Objective, Proposal, Strategy, Told

INFEASIBLE_LOG_RATIO = 10.0  # e^10 times the baseline: worse than anything right
CONSTRAINT = "right"
CANDIDATE = "greenfast:candidate"  # in a study's trial: the candidate's digest

optuna.logging.set_verbosity(optuna.logging.WARNING)


class OptunaStrategy(Strategy):
    """What the Optuna samplers share."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._studies: dict[str, optuna.Study] = {}

    @abstractmethod
    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """A fresh sampler."""

    def propose(self, template: str, rng: random.Random) -> Proposal:
        """What the sampler wants, or the valid untried point nearest to it.

        The sampler is asked once: it knows no constraints, so a second question costs as much and mostly ends beside the
        space again.
        """
        study, space = self._study(template), self.spaces[template]
        trial = study.ask()
        wanted = _suggest(trial, space)
        attributes = _sampler_attributes(
            study.get_trials(deepcopy=False)[trial.number].system_attrs
        )
        study.tell(trial, state=TrialState.FAIL)
        origin = self.origin(study.sampler)
        if self.is_unseen(template, wanted):
            return Proposal(Candidate(self.kernel, template, wanted, origin), attributes)
        return Proposal(self.nearest_unseen(template, wanted, rng, origin.parents), attributes)

    def learn(self, proposal: Proposal, told: Told) -> None:
        template, values = (
            self.spaces[proposal.candidate.template].template,
            proposal.candidate.values(),
        )
        feasible = isinstance(told, Objective)
        self._study(template.name).add_trial(
            optuna.trial.create_trial(
                value=told.log_ratio if isinstance(told, Objective) else INFEASIBLE_LOG_RATIO,
                params={
                    parameter.name: _encode(parameter, values[parameter.name])
                    for parameter in template.parameters
                },
                distributions={
                    parameter.name: _distribution(parameter) for parameter in template.parameters
                },
                system_attrs={**proposal.sampler, CANDIDATE: proposal.candidate.digest},
                constraints={CONSTRAINT: -1.0 if feasible else 1.0},
            )
        )

    def _study(self, template: str) -> optuna.Study:
        if template not in self._studies:
            # The number of trials already known goes into the seed: a resumed search does not repeat its first draws.
            seed = crc32(f"{self.seed}/{template}/{self._asked}".encode())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._studies[template] = optuna.create_study(sampler=self.sampler(seed))
        return self._studies[template]

    def origin(self, sampler: optuna.samplers.BaseSampler) -> Origin:
        """Where the point that `sampler` suggested last came from."""
        return Origin(OriginKind.SAMPLED)


def _suggest(trial: optuna.Trial, space: Space) -> Items:
    """A value for each parameter; those that do not matter then take their defaults."""
    values: dict[str, Value] = {}
    for parameter in space.template.parameters:
        if isinstance(_distribution(parameter), IntDistribution):
            values[parameter.name] = parameter.values[
                trial.suggest_int(parameter.name, 0, len(parameter.values) - 1)
            ]
        else:
            values[parameter.name] = trial.suggest_categorical(
                parameter.name, list(parameter.values)
            )
    return complete_parameters(space.template, values, space.compiled)


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Ordered values are sampled by their position, so that a sampler knows which are close."""
    if parameter.type == "int":
        return IntDistribution(0, len(parameter.values) - 1)
    return CategoricalDistribution(parameter.values)


def _encode(parameter: Parameter, value: Value) -> Value:
    return parameter.values.index(value) if parameter.type == "int" else value


def _sampler_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """What a sampler keeps with a trial and needs again: JSON data only; its own scratch notes stay out."""
    kept = {
        key: value
        for key, value in attributes.items()
        if not key.startswith(("constraints", "tpe:", "fixed_params"))
    }
    return json.loads(json.dumps(kept))
