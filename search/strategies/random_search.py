"""`random`: valid points without repetition. The yardstick for every other strategy."""

from __future__ import annotations

import random

from greenfast.search.strategies.base import Proposal, Strategy


class RandomSearch(Strategy):
    """Uniform over the valid points that were not tried."""

    def propose(self, template: str, rng: random.Random) -> Proposal:
        return Proposal(self.random_unseen(template, rng))
