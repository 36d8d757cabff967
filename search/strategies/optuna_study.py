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
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import Objective, Proposal, Strategy, Told

FULL_AT = 1.5  # times `kept`: a study that has so many trials is made smaller
INFEASIBLE_LOG_RATIO = 10.0  # e^10 times the baseline: worse than any correct candidate
INFEASIBLE = 1e9  # another objective
CONSTRAINT = "right"
CANDIDATE = "greenfast:candidate"  # attribute of a study's trial: the candidate's digest

optuna.logging.set_verbosity(optuna.logging.WARNING)


class OptunaStrategy(Strategy):
    """Base of the strategies that use an Optuna sampler."""

    kept: int | None = None  # outcomes of a study that the sampler reads; None: all

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._studies: dict[str, optuna.Study] = {}

    @abstractmethod
    def sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """A new sampler."""

    def reseed(self, study: optuna.Study, seed: int) -> None:
        """Let the study's next suggestion follow from `seed` and its trials alone.

        Each proposal has a seed of its own, so a resumed search draws what it would have drawn.
        """
        study.sampler = self.sampler(seed)

    def propose(self, template: str, rng: random.Random) -> Proposal:
        """The sampler's point, or the valid untried point nearest to it.

        The sampler suggests only once. It does not know the constraints, so a second suggestion
        costs as much and is mostly invalid again.
        """
        study, space = self._study(template), self.spaces[template]
        self.reseed(study, crc32(f"{self.seed}/{template}/{self._proposal_count}".encode()))
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
        self._make_room(template.name)
        feasible = isinstance(told, Objective)
        self._study(proposal.candidate.template).add_trial(
            optuna.trial.create_trial(
                values=self._values(told),
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

    def _values(self, told: Told) -> list[float]:
        """The objectives; a wrong candidate is worse than any correct one in all of them."""
        if isinstance(told, Objective):
            return list(told.values)
        return [INFEASIBLE_LOG_RATIO] + [INFEASIBLE] * (self.options.objectives - 1)

    def unlearn(self, proposal: Proposal) -> None:
        template, digest = proposal.candidate.template, proposal.candidate.digest
        self._replace(
            template,
            [
                trial
                for trial in self._study(template).get_trials(deepcopy=False)
                if trial.system_attrs.get(CANDIDATE) != digest
            ],
        )

    def _make_room(self, template: str) -> None:
        """Let a study that has become too large for its sampler keep a part of its trials.

        What is kept follows from the trials alone, so a resumed search keeps the same.
        """
        if self.kept is None:
            return
        trials = self._study(template).get_trials(deepcopy=False)
        known = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        if len(known) >= self.kept * FULL_AT:
            self._replace(template, kept_trials(known, self.kept))

    def _replace(self, template: str, trials: Sequence[FrozenTrial]) -> None:
        """A study forgets nothing, so another one takes its sampler and these trials."""
        study = optuna.create_study(
            sampler=self._study(template).sampler,
            directions=["minimize"] * self.options.objectives,
        )
        study.add_trials(trials)
        self._studies[template] = study

    def _study(self, template: str) -> optuna.Study:
        if template not in self._studies:
            self._studies[template] = optuna.create_study(
                sampler=self.sampler(0),  # gets a new seed for each proposal
                directions=["minimize"] * self.options.objectives,
            )
        return self._studies[template]

    def origin(self, sampler: optuna.samplers.BaseSampler) -> Origin:
        """The origin of the point that `sampler` suggested last."""
        return Origin(OriginKind.SAMPLED)


def kept_trials(trials: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    """`count` of the trials in their order: the best, the last, and random others."""
    if len(trials) <= count:
        return list(trials)
    places = range(len(trials))
    best = sorted(places, key=lambda place: (trials[place].values[0], place))[: count // 4]
    kept = {*best, *places[-count // 4 :]}
    others = [place for place in places if place not in kept]
    kept.update(random.Random(len(others)).sample(others, count - len(kept)))
    return [trials[place] for place in sorted(kept)]


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


def varied_distributions(study: optuna.Study) -> dict[str, BaseDistribution]:
    """The distributions that a sampler uses once a trial is known, without a walk over all trials.

    Every trial of a study has every parameter. Optuna's samplers intersect those of all trials,
    sort them by name, and leave out parameters of a single value.
    """
    for trial in study.get_trials(deepcopy=False):
        if trial.state is TrialState.COMPLETE:
            return {
                name: distribution
                for name, distribution in sorted(trial.distributions.items())
                if not distribution.single()
            }
    return {}


def _sampler_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes that a sampler needs again for its trial, as JSON data."""
    kept: dict[str, Any] = {
        key: value
        for key, value in attributes.items()
        if not key.startswith(("constraints", "tpe:", "fixed_params"))
    }
    copied: dict[str, Any] = json.loads(json.dumps(kept))
    return copied
