"""Optuna as a sampler, never as a store or a queue: in-memory studies, rebuilt from stored trials.

Each template has its own study, because relative samplers use only the intersection of conditional
spaces. Within a study all parameters are always present, and inactive ones have their defaults. The
sampler thus sees one space; groups of conditional ones would take twice the time. A candidate
enters the study when its outcome is known. Wrong candidates are infeasible by a constraint, with a
value worse than any correct one. Where the sampler suggests an invalid point, or one that was
tried, the nearest valid untried point takes its place.
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
from greenfast.search.kernels.spec import Parameter
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import Objective, Proposal, Strategy, Told

INFEASIBLE_LOG_RATIO = 10.0  # e^10 times the baseline: worse than any correct candidate
CONSTRAINT = "right"
CANDIDATE = "greenfast:candidate"  # attribute of a study's trial: the candidate's digest

optuna.logging.set_verbosity(optuna.logging.WARNING)


class OptunaStrategy(Strategy):
    """Base of the strategies that use an Optuna sampler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._studies: dict[str, optuna.Study] = {}

    @abstractmethod
    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """A new sampler."""

    def propose(self, template: str, rng: random.Random) -> Proposal:
        """The sampler's point, or the valid untried point nearest to it.

        The sampler suggests only once. It does not know the constraints, so a second suggestion
        costs as much and is mostly invalid again.
        """
        study, space = self._study(template), self.spaces[template]
        trial = study.ask()
        suggested = _suggest(trial, space)
        attributes = _sampler_attributes(
            study.get_trials(deepcopy=False)[trial.number].system_attrs
        )
        study.tell(trial, state=TrialState.FAIL)
        origin = self.origin(study.sampler)
        if self.is_unseen(template, suggested):
            return Proposal(Candidate(self.kernel, template, suggested, origin), attributes)
        return Proposal(self.nearest_unseen(template, suggested, rng, origin.parents), attributes)

    def learn(self, proposal: Proposal, told: Told) -> None:
        template, values = (
            self.spaces[proposal.candidate.template].template,
            proposal.candidate.values(),
        )
        feasible = isinstance(told, Objective)
        self._study(proposal.candidate.template).add_trial(
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

    def unlearn(self, proposal: Proposal) -> None:
        """A study forgets nothing, so another one takes its trials and its sampler."""
        known = self._study(proposal.candidate.template)
        digest = proposal.candidate.digest
        study = optuna.create_study(sampler=known.sampler)
        study.add_trials(
            [
                trial
                for trial in known.get_trials(deepcopy=False)
                if trial.system_attrs.get(CANDIDATE) != digest
            ]
        )
        self._studies[proposal.candidate.template] = study

    def _study(self, template: str) -> optuna.Study:
        if template not in self._studies:
            # The seed includes the number of known trials, so that a resumed search does not repeat
            # its first draws.
            seed = crc32(f"{self.seed}/{template}/{self._proposal_count}".encode())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._studies[template] = optuna.create_study(sampler=self.sampler(seed))
        return self._studies[template]

    def origin(self, sampler: optuna.samplers.BaseSampler) -> Origin:
        """The origin of the point that `sampler` suggested last."""
        return Origin(OriginKind.SAMPLED)


def _suggest(trial: optuna.Trial, space: Space) -> Items:
    """The suggested value of each parameter; inactive ones have their defaults."""
    values: dict[str, Value] = {}
    for parameter in space.template.parameters:
        if isinstance(_distribution(parameter), IntDistribution):
            values[parameter.name] = parameter.values[
                trial.suggest_int(parameter.name, 0, len(parameter.values) - 1)
            ]
        else:
            choice = trial.suggest_categorical(parameter.name, list(parameter.values))
            assert choice is not None, "no parameter has the value None"
            values[parameter.name] = choice
    return complete_parameters(space.template, values, space.compiled)


def _distribution(parameter: Parameter) -> BaseDistribution:
    """Ordered values are sampled by position, so that the sampler knows which are close."""
    if parameter.type == "int":
        return IntDistribution(0, len(parameter.values) - 1)
    return CategoricalDistribution(parameter.values)


def _encode(parameter: Parameter, value: Value) -> Value:
    return parameter.values.index(value) if parameter.type == "int" else value


def _sampler_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes that a sampler needs again for its trial, as JSON data."""
    kept: dict[str, Any] = {
        key: value
        for key, value in attributes.items()
        if not key.startswith(("constraints", "tpe:", "fixed_params"))
    }
    copied: dict[str, Any] = json.loads(json.dumps(kept))
    return copied
