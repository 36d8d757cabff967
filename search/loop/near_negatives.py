"""Proposals next to known negatives come later: a prior that works for every strategy.

A proposal that differs from known wrong or slower candidates in a single parameter, and from fewer
correct ones, is likely to fail for the same reason. It is held back while the strategy has
others, and is asked for after them. Nothing is lost: what is held back comes before the search
ends for want of candidates, and a search that is resumed may propose it again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, OriginKind
from greenfast.search.strategies.base import Proposal

MOST_IN_A_ROW = 4  # postponed proposals; then the first of them is tried
MOST_HELD = 64
# A person or a preset asked for these by name.
NAMED = (OriginKind.PRESET, OriginKind.SEEDED)


class NearNegatives:
    """Known candidates, counted under each way to leave one parameter out."""

    def __init__(self) -> None:
        self._wrong: dict[tuple[str, str, Items], int] = defaultdict(int)
        self._correct: dict[tuple[str, str, Items], int] = defaultdict(int)
        self._known: set[tuple[str, Items]] = set()

    def add(self, template: str, parameters: Items, *, negative: bool) -> None:
        counts = self._wrong if negative else self._correct
        for key in _keys(template, parameters):
            counts[key] += 1
        self._known.add((template, parameters))

    def discourages(self, candidate: Candidate) -> bool:
        """Whether more negatives than correct candidates are one parameter away.

        A candidate that is known itself costs nothing, so it is never discouraged.
        """
        if (candidate.template, candidate.parameters) in self._known:
            return False
        keys = _keys(candidate.template, candidate.parameters)
        wrong = sum(self._wrong.get(key, 0) for key in keys)
        return wrong > sum(self._correct.get(key, 0) for key in keys)


def _keys(template: str, parameters: Items) -> list[tuple[str, str, Items]]:
    return [
        (template, name, (*parameters[:at], *parameters[at + 1 :]))
        for at, (name, _) in enumerate(parameters)
    ]


class NearNegativesLast:
    """Stands between a strategy's `ask` and the loop."""

    def __init__(
        self, ask: Callable[[], Proposal | None], discourages: Callable[[Candidate], bool]
    ) -> None:
        self._ask, self._discourages = ask, discourages
        self._held: deque[Proposal] = deque()

    def __call__(self) -> Proposal | None:
        for _ in range(MOST_IN_A_ROW):
            proposal = self._ask()
            if proposal is None:
                break
            if len(self._held) == MOST_HELD or not self._is_later(proposal.candidate):
                return proposal
            self._held.append(proposal)
        return self._held.popleft() if self._held else self._ask()

    def _is_later(self, candidate: Candidate) -> bool:
        return candidate.origin.kind not in NAMED and self._discourages(candidate)
