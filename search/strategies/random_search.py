"""`random`: valid points without repetition. Other strategies are compared with it."""

from __future__ import annotations

import random

from greenfast.search.strategies.base import Proposal, Strategy


class RandomSearch(Strategy):
    """Draws uniformly from the valid untried points of a template."""

    def propose(self, template: str, rng: random.Random) -> Proposal:
        return Proposal(self.random_unseen(template, rng))
