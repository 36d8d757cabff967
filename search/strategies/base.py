"""The seam to whatever chooses the next candidate, and what all strategies share: seeds first, no duplicates."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greenfast.search.kernels.spec import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space


@dataclass(frozen=True)
class Objective:
    """A right candidate: the logarithm of its time ratio to the baseline; lower is better."""

    log_ratio: float


@dataclass(frozen=True)
class Infeasible:
    """A wrong candidate. A fault of ours is neither: nothing is told."""


Told = Objective | Infeasible


@dataclass(frozen=True)
class Proposal:
    """What to try next; `sampler` is stored with the trial and given back by `restore`."""

    candidate: Candidate
    sampler: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Past:
    """A stored trial, for rebuilding a strategy. `told` is None for a fault."""

    candidate: Candidate
    sampler: dict[str, Any]
    told: Told | None


class Strategy(ABC):
    """Chooses candidates from valid spaces. Every choice follows from the seed and what was told."""

    def __init__(
        self, kernel: str, spaces: Mapping[str, Space], seeds: Sequence[Candidate], seed: int
    ) -> None:
        self.kernel, self.spaces, self.seed = kernel, dict(spaces), seed
        self._seeds = deque(seeds)
        self._unseen = {name: np.ones(len(space.points), bool) for name, space in spaces.items()}
        self._best: dict[str, float] = {}
        self._asked = 0

    def ask(self) -> Proposal | None:
        """The next candidate, never one that was asked or told before; None when no valid point is left."""
        self._asked += 1
        while self._seeds:
            candidate = self._seeds.popleft()
            if self._is_new(candidate):
                return self._take(Proposal(candidate))
        rng = random.Random(f"{self.seed}/{self._asked}")
        open_templates = [name for name, unseen in self._unseen.items() if unseen.any()]
        if not open_templates:
            return None
        return self._take(self.propose(self._choose_template(open_templates, rng), rng))

    def tell(self, proposal: Proposal, told: Told) -> None:
        """The only way back. Never called for a fault."""
        self._note(proposal.candidate, told)
        if proposal.candidate.template in self.spaces:  # a baseline may be of another template
            self.learn(proposal, told)

    def restore(self, past: Sequence[Past]) -> None:
        """Rebuild from stored trials, in order: what was tried is not tried again, what was told is known."""
        for one in past:
            self._asked += 1
            self._mark(one.candidate)
            if one.told is not None:
                self._note(one.candidate, one.told)
                if one.candidate.template in self.spaces:
                    self.relearn(Proposal(one.candidate, one.sampler), one.told)

    @abstractmethod
    def propose(self, template: str, rng: random.Random) -> Proposal:
        """A new valid point of `template`, which has one left."""

    def learn(self, proposal: Proposal, told: Told) -> None:
        """Take in an outcome; nothing to do for strategies without a model."""

    def relearn(self, proposal: Proposal, told: Told) -> None:
        """Take in a stored outcome while being rebuilt."""
        self.learn(proposal, told)

    def is_unseen(self, template: str, parameters: Items) -> bool:
        """A valid point that was neither asked nor told."""
        position = self.spaces[template].points.position(parameters)
        return position is not None and bool(self._unseen[template][position])

    def random_unseen(self, template: str, rng: random.Random) -> Candidate:
        """A valid point that was not tried yet; there is one."""
        unseen = np.flatnonzero(self._unseen[template])
        position = int(unseen[rng.randrange(len(unseen))])
        return Candidate(
            self.kernel,
            template,
            self.spaces[template].points[position],
            Origin(OriginKind.SAMPLED),
        )

    def nearest_unseen(
        self, template: str, near: Items, rng: random.Random, parents: tuple[str, ...] = ()
    ) -> Candidate:
        """The untried valid point that differs least from `near`; there is one."""
        parameters = self.spaces[template].nearest(near, self._unseen[template], rng)
        replaced = tuple(item for item, kept in zip(near, parameters, strict=True) if item != kept)
        return Candidate(
            self.kernel, template, parameters, Origin(OriginKind.REPAIRED, parents, wanted=replaced)
        )

    def _choose_template(self, names: list[str], rng: random.Random) -> str:
        """Mostly the template with the best candidate so far; every fourth time any: bests can change."""
        ranked = sorted(
            (name for name in names if name in self._best), key=lambda name: self._best[name]
        )
        untried = [name for name in names if name not in self._best]
        if not ranked or rng.random() < 0.25:
            return rng.choice(names)
        return rng.choice(untried) if untried and rng.random() < 0.25 else ranked[0]

    def _is_new(self, candidate: Candidate) -> bool:
        return candidate.template in self.spaces and self.is_unseen(
            candidate.template, candidate.parameters
        )

    def _take(self, proposal: Proposal) -> Proposal:
        self._mark(proposal.candidate)
        return proposal

    def _note(self, candidate: Candidate, told: Told) -> None:
        self._mark(candidate)
        if candidate.template in self.spaces and isinstance(told, Objective):
            best = self._best.get(candidate.template, told.log_ratio)
            self._best[candidate.template] = min(best, told.log_ratio)

    def _mark(self, candidate: Candidate) -> None:
        """Tried from now on. The baseline may lie outside the templates that are searched."""
        if candidate.template in self.spaces:
            position = self.spaces[candidate.template].points.position(candidate.parameters)
            if position is not None:
                self._unseen[candidate.template][position] = False
