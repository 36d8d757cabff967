"""Neighbouring scopes, of other shapes, GPUs and toolchains: their best candidates and outcomes."""

from __future__ import annotations

from greenfast.db.rows import ChampionRow
from greenfast.db.store import Store
from greenfast.search.loop.plan import Neighbour, SearchPlan
from greenfast.search.space.candidate import Origin, OriginKind
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.prior import History

LOOKED_AT = 50  # champions of the kernel, the newest
MOST = 4  # that are tried first
OUTCOMES = 64  # of each scope: the better half are the best, the others are spread over the rest


def neighbours_of(store: Store, plan: SearchPlan, device: str) -> tuple[Neighbour, ...]:
    """Up to four champions of the kernel's other scopes: of the same GPU first, then the newest.

    A champion whose template is not searched is left out, and so is a repeated point. Each has
    outcomes of the champion's search, if the strategy learns from them.
    """
    champions = store.champions(kernel=plan.kernel, limit=LOOKED_AT).items
    near = sorted(champions, key=lambda champion: champion.scope.device != device)
    neighbours: dict[str, Neighbour] = {}
    learns = STRATEGIES[plan.strategy].uses_history
    for champion in near:
        candidate = champion.candidate
        if candidate.template in plan.templates and candidate.digest not in neighbours:
            seeded = type(candidate)(
                candidate.kernel,
                candidate.template,
                candidate.parameters,
                Origin(OriginKind.SEEDED),
            )
            outcomes = _outcomes(store, champion) if learns else ""
            neighbours[candidate.digest] = Neighbour(seeded, _named(champion), outcomes)
            if len(neighbours) == MOST:
                break
    return tuple(neighbours.values())


def _outcomes(store: Store, champion: ChampionRow) -> str:
    """Times of the champion's template in its search, as text; empty if it has none."""
    template = champion.candidate.template
    times = store.spread_of_times(champion.trial.search_id, template, OUTCOMES)
    points = [(candidate.parameters, time_us) for candidate, time_us in times]
    return History.of_times(template, points).text() if points else ""


def _named(champion: ChampionRow) -> str:
    return f"{', '.join(champion.scope.workloads)} on {champion.scope.device}"
