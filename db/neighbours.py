"""The best candidates of neighbouring scopes: other shapes, GPUs and toolchains."""

from __future__ import annotations

from greenfast.db.rows import ChampionRow
from greenfast.db.store import Store
from greenfast.search.loop.plan import Neighbour, SearchPlan
from greenfast.search.space.candidate import Origin, OriginKind

LOOKED_AT = 50  # champions of the kernel, the newest
MOST = 4  # that are tried first


def neighbours_of(store: Store, plan: SearchPlan, device: str) -> tuple[Neighbour, ...]:
    """Up to four champions of the kernel's other scopes: of the same GPU first, then the newest.

    A champion whose template is not searched is left out, and so is a repeated point.
    """
    champions = store.champions(kernel=plan.kernel, limit=LOOKED_AT).items
    near = sorted(champions, key=lambda champion: champion.scope.device != device)
    neighbours: dict[str, Neighbour] = {}
    for champion in near:
        candidate = champion.candidate
        if candidate.template in plan.templates and candidate.digest not in neighbours:
            seeded = type(candidate)(
                candidate.kernel,
                candidate.template,
                candidate.parameters,
                Origin(OriginKind.SEEDED),
            )
            neighbours[candidate.digest] = Neighbour(seeded, _named(champion))
    return tuple(neighbours.values())[:MOST]


def _named(champion: ChampionRow) -> str:
    return f"{', '.join(champion.scope.workloads)} on {champion.scope.device}"
