"""The interface of strategies, and their common part: seeds first, no duplicates."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies.objectives import Front, Values
from greenfast.search.strategies.prior import History
from greenfast.search.strategies.untried import NoneLeft, untried_of


@dataclass(frozen=True)
class Objective:
    """A correct candidate: the logarithm of its time ratio to the baseline; lower is better."""

    log_ratio: float
    # Bins of figures such as registers and occupancy; equal ones behave alike. Empty: unknown.
    behaviour: tuple[int, ...] = ()
    others: Values = ()  # of a search with several objectives: those after the time

    @property
    def values(self) -> Values:
        return (self.log_ratio, *self.others)


@dataclass(frozen=True)
class Infeasible:
    """A wrong candidate. Strategies never learn of a fault."""


Told = Objective | Infeasible


@dataclass(frozen=True)
class Proposal:
    """A candidate to try next; `sampler` is stored with its trial and returned to `restore`."""

    candidate: Candidate
    sampler: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Past:
    """A stored trial, from which a strategy is rebuilt; `told` is None for a fault."""

    candidate: Candidate
    sampler: dict[str, Any]
    told: Told | None
    is_open: bool = False  # nothing is known of the candidate, and it may be tried again


@dataclass(frozen=True)
class ModelledTime:
    """The time of a point by the emulator's model, as a logarithm in any unit."""

    template: str
    parameters: Items
    log_time: float


MODELLED_TIMES = "modelled"  # in a proposal's `sampler`: the modelled times that came before it


@dataclass(frozen=True)
class Options:
    """Requirements of a search on its strategy. Every strategy can do what the defaults need."""

    objectives: int = 1  # the time, and as many others as outcomes have
    population: int | None = None  # None: the strategy's own
    histories: tuple[History, ...] = ()  # of other scopes; most strategies ignore them


class Strategy(ABC):
    """Chooses candidates from spaces; each choice follows from the seed and earlier outcomes."""

    uses_history = False  # it learns from outcomes of other scopes
    in_haste = False  # more questions wait than it can answer: a quick answer is better

    def __init__(
        self,
        kernel: str,
        spaces: Mapping[str, Space],
        seeds: Sequence[Candidate],
        seed: int,
        options: Options = Options(),
    ) -> None:
        self.kernel, self.spaces, self.seed = kernel, dict(spaces), seed
        self.options = options
        self._seeds = deque(seeds)
        self.untried = {name: untried_of(space) for name, space in spaces.items()}
        self._known: dict[str, dict[Items, Values]] = {}  # by template and point: the objectives
        self._best: dict[str, float] = {}  # by template
        self._front = Front()  # of several objectives: templates of the candidates on it
        self._proposal_count = 0
        self._modelled: list[ModelledTime] = []  # that came since the last proposal
        self.modelled_count: dict[str, int] = {}  # by template: the times that were heard

    def ask(self) -> Proposal | None:
        """The next candidate, always a new one; None when no valid point is left."""
        self._proposal_count += 1
        came, self._modelled = self._modelled, []
        if came:
            self.learn_modelled(came)
        proposal = self._next()
        if proposal is None or not came:
            return proposal
        return replace(proposal, sampler={**proposal.sampler, MODELLED_TIMES: _stored(came)})

    def _next(self) -> Proposal | None:
        while self._seeds:
            candidate = self._seeds.popleft()
            if self._is_new(candidate):
                return self._take(Proposal(candidate))
        rng = random.Random(f"{self.seed}/{self._proposal_count}")
        while names := [name for name, untried in self.untried.items() if untried.any()]:
            with suppress(NoneLeft):  # a huge space is known to be exhausted when a point is drawn
                return self._take(self.propose(self._choose_template(names, rng), rng))
        return None

    def tell(self, proposal: Proposal, told: Told) -> None:
        """Report a candidate's outcome; never called for a fault."""
        self._note(proposal.candidate, told)
        if proposal.candidate.template in self.spaces:  # a baseline may be of another template
            self.learn(proposal, told)

    def correct(self, proposal: Proposal, told: Told) -> None:
        """Replace the reported outcome of a candidate, for example if it proved unsafe."""
        candidate = proposal.candidate
        if candidate.template not in self.spaces:
            return
        known = self._known.setdefault(candidate.template, {})
        known.pop(candidate.parameters, None)
        self._best.pop(candidate.template, None)
        if known:
            self._best[candidate.template] = min(values[0] for values in known.values())
        self._front = Front()
        if self.options.objectives > 1:
            for template, points in self._known.items():
                for values in points.values():
                    self._front.add(values, template)
        self._note(candidate, told)
        self.unlearn(proposal)
        self.learn(proposal, told)

    def hear_modelled(self, times: Sequence[ModelledTime]) -> None:
        """Take modelled times, which the next proposal knows. They are stored with it."""
        known = [each for each in times if each.template in self.spaces]
        self._modelled += known
        self._count(known)

    def is_seed(self, candidate: Candidate) -> bool:
        """Whether the candidate is among the seeds that were not asked for yet."""
        return any(seed.digest == candidate.digest for seed in self._seeds)

    def restore(self, past: Sequence[Past]) -> None:
        """Rebuild the strategy from stored trials, in order."""
        for trial in past:
            self._proposal_count += 1
            if rows := trial.sampler.get(MODELLED_TIMES):
                restored = self._restored(rows)
                self._count(restored)
                self.learn_modelled(restored)
            if trial.is_open:
                continue
            self._mark(trial.candidate)
            if trial.candidate.template in self.spaces:
                self.started(Proposal(trial.candidate, trial.sampler))
            if trial.told is not None:
                self._note(trial.candidate, trial.told)
                if trial.candidate.template in self.spaces:
                    self.learn(Proposal(trial.candidate, trial.sampler), trial.told)

    @abstractmethod
    def propose(self, template: str, rng: random.Random) -> Proposal:
        """A new valid point of `template`, which has at least one."""

    def proposed_as(self, number: int, template: str, rng: random.Random) -> Proposal:
        """The result of `propose` for proposal `number` of a search."""
        self._proposal_count = number
        return self.propose(template, rng)

    def started(self, proposal: Proposal) -> None:  # noqa: B027  optional
        """Note a candidate that is tried from now on, or was in a search that is resumed."""

    def learn(self, proposal: Proposal, told: Told) -> None:  # noqa: B027  optional
        """Learn an outcome; strategies without a model do nothing."""

    def learn_modelled(self, times: Sequence[ModelledTime]) -> None:  # noqa: B027  optional
        """Learn modelled times; strategies without a model do nothing."""

    def unlearn(self, proposal: Proposal) -> None:  # noqa: B027  optional
        """Forget the outcome of a candidate, if the strategy's model can."""

    def is_unseen(self, template: str, parameters: Items) -> bool:
        """Whether the point is valid and was never tried."""
        return self.untried[template].has(parameters)

    def random_unseen(self, template: str, rng: random.Random) -> Candidate:
        """A random valid untried point of `template`, which has at least one."""
        return Candidate(
            self.kernel,
            template,
            self.untried[template].drawn(rng),
            Origin(OriginKind.SAMPLED),
        )

    def nearest_unseen(
        self, template: str, near: Items, rng: random.Random, parents: tuple[str, ...] = ()
    ) -> Candidate:
        """The valid untried point nearest to `near`; `template` has at least one."""
        parameters = self.untried[template].nearest(near, rng)
        replaced = tuple(item for item, kept in zip(near, parameters, strict=True) if item != kept)
        return Candidate(
            self.kernel, template, parameters, Origin(OriginKind.REPAIRED, parents, wanted=replaced)
        )

    def _count(self, times: Sequence[ModelledTime]) -> None:
        for each in times:
            self.modelled_count[each.template] = self.modelled_count.get(each.template, 0) + 1

    def _restored(self, rows: Sequence[Sequence[Any]]) -> list[ModelledTime]:
        names = {
            name: [parameter.name for parameter in space.template.parameters]
            for name, space in self.spaces.items()
        }
        return [
            ModelledTime(template, tuple(zip(names[template], values, strict=True)), log_time)
            for template, values, log_time in rows
            if template in names
        ]

    def _choose_template(self, names: list[str], rng: random.Random) -> str:
        """Mostly the template of the best candidate; every fourth time a random one."""
        ranked = sorted(
            (name for name in names if name in self._best), key=lambda name: self._best[name]
        )
        untried = [name for name in names if name not in self._best]
        if self.options.objectives > 1:
            ranked = [rng.choice(on_front)] if (on_front := self._on_front(names)) else []
        if not ranked or rng.random() < 0.25:
            return rng.choice(names)
        return rng.choice(untried) if untried and rng.random() < 0.25 else ranked[0]

    def _on_front(self, names: list[str]) -> list[str]:
        """The template of each candidate on the front, as far as it is open."""
        return [template for _, template in self._front.members if template in names]

    def _is_new(self, candidate: Candidate) -> bool:
        return candidate.template in self.spaces and self.is_unseen(
            candidate.template, candidate.parameters
        )

    def _take(self, proposal: Proposal) -> Proposal:
        self._mark(proposal.candidate)
        self.started(proposal)
        return proposal

    def _note(self, candidate: Candidate, told: Told) -> None:
        self._mark(candidate)
        if candidate.template in self.spaces and isinstance(told, Objective):
            self._known.setdefault(candidate.template, {})[candidate.parameters] = told.values
            best = self._best.get(candidate.template, told.log_ratio)
            self._best[candidate.template] = min(best, told.log_ratio)
            if self.options.objectives > 1:
                self._front.add(told.values, candidate.template)

    def _mark(self, candidate: Candidate) -> None:
        """Mark a candidate as tried; a baseline may be of a template that is not searched."""
        if candidate.template in self.spaces:
            self.untried[candidate.template].mark(candidate.parameters)


def _stored(times: Sequence[ModelledTime]) -> list[list[Any]]:
    """Of each: its template, the values of its parameters, and the logarithm."""
    return [
        [each.template, [value for _, value in each.parameters], each.log_time] for each in times
    ]
