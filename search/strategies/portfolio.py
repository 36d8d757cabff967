"""`portfolio`: chooses among other strategies while it runs.

Every strategy of the portfolio learns every outcome, and the strategy whose candidates did best
lately proposes the next one. A candidate earns the share of earlier correct candidates that it
beats; a wrong one earns nothing. Earnings fade with time. The strategy with the highest upper bound
of its mean earnings is chosen, because one with few proposals may be better than its mean.

Source: Auer et al., "Finite-time Analysis of the Multiarmed Bandit Problem", 2002.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenfast.search.strategies.base import (
    ModelledTime,
    Objective,
    Proposal,
    Strategy,
    Told,
)
from greenfast.search.strategies.cmaes import CmaEs
from greenfast.search.strategies.evolution import Evolution
from greenfast.search.strategies.nsga2 import Nsga2

MEMBERS: dict[str, type[Strategy]] = {"evolution": Evolution, "cmaes": CmaEs, "nsga2": Nsga2}
MEMBER, SAMPLER = "member", "sampler"  # of a proposal: who made it, and its own attributes
FADING = 0.97  # of earnings, with each outcome
HOPE = 0.25  # weight of unknown outcomes


@dataclass
class Earnings:
    """Discounted sums for one strategy: the gains of its candidates, and their number."""

    sum: float = 0.0
    count: float = 0.0


class Portfolio(Strategy):
    """Asks the member that earns most."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._members = {
            name: member(self.kernel, self.spaces, [], self.seed)
            for name, member in MEMBERS.items()
        }
        for member in self._members.values():
            member.untried = self.untried
        self._earnings = {name: Earnings() for name in MEMBERS}
        self._logs: list[float] = []

    def propose(self, template: str, rng: random.Random) -> Proposal:
        name = self._chosen()
        proposal = self._members[name].proposed_as(self._proposal_count, template, rng)
        return replace(proposal, sampler={MEMBER: name, SAMPLER: proposal.sampler})

    def started(self, proposal: Proposal) -> None:
        for name, member in self._members.items():
            member.started(_own(proposal, name))

    def learn(self, proposal: Proposal, told: Told) -> None:
        author = proposal.sampler.get(MEMBER)
        for earnings in self._earnings.values():
            earnings.sum, earnings.count = earnings.sum * FADING, earnings.count * FADING
        if author in self._earnings:
            self._earnings[author].count += 1
            self._earnings[author].sum += self._earned(told)
        if isinstance(told, Objective):
            self._logs.append(told.log_ratio)
        for name, member in self._members.items():
            member.learn(_own(proposal, name), told)

    def learn_modelled(self, times: Sequence[ModelledTime]) -> None:
        for member in self._members.values():
            member.learn_modelled(times)

    def unlearn(self, proposal: Proposal) -> None:
        """The members forget; what the candidate earned fades by itself."""
        for name, member in self._members.items():
            member.unlearn(_own(proposal, name))

    def _earned(self, told: Told) -> float:
        if not isinstance(told, Objective):
            return 0.0
        beaten = sum(told.log_ratio < log_ratio for log_ratio in self._logs)
        return beaten / max(1, len(self._logs))

    def _chosen(self) -> str:
        """The member with the highest upper bound of its mean earnings."""
        total = sum(earnings.count for earnings in self._earnings.values())

        def bound(name: str) -> float:
            earnings = self._earnings[name]
            if earnings.count < 1e-3:
                return math.inf
            mean = earnings.sum / earnings.count
            return mean + HOPE * math.sqrt(2 * math.log(max(total, 1.0)) / earnings.count)

        return max(MEMBERS, key=bound)


def _own(proposal: Proposal, name: str) -> Proposal:
    """The proposal as a member sees it: with its own attributes, or as another's."""
    own = proposal.sampler.get(SAMPLER, {}) if proposal.sampler.get(MEMBER) == name else {}
    return Proposal(proposal.candidate, own)
