"""`exhaustive`: every valid point once, in the order of the space."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.strategies.base import Proposal, Strategy


class Exhaustive(Strategy):
    """Tries the templates in turn, each from its first point to its last."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._walks: dict[str, Iterator[Items]] = {}

    def propose(self, template: str, rng: random.Random) -> Proposal:
        walk = self._walks.setdefault(template, iter(self.spaces[template].points))
        point = next(point for point in walk if self.is_unseen(template, point))
        return Proposal(Candidate(self.kernel, template, point, Origin(OriginKind.SAMPLED)))

    def _choose_template(self, names: list[str], rng: random.Random) -> str:
        return names[self._proposal_count % len(names)]
