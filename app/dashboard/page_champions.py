"""`/champions`: the champion matrix, a table a kernel, device and toolchain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.confirmations import champion_out
from greenfast.app.views.schemas import ChampionOut
from greenfast.db.store import Store
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.spec import KernelSpec

MOST = 500
MOST_FORMER = 25

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class Cell:
    """One row: workloads with their compile-time values, and their champion if there is one."""

    workloads: tuple[str, ...]
    values: dict[str, Any]
    champion: ChampionOut | None
    outdated: bool  # of a kernel whose files have changed since


@dataclass(frozen=True)
class Matrix:
    """The champions of one kernel on one device with one toolchain."""

    kernel: str
    device: str
    toolchain: str
    names: tuple[str, ...]  # of compile-time values
    cells: tuple[Cell, ...]


@router.get("/champions")
def champions_page(request: Request) -> Response:
    services = services_of(request)
    rows = services.store.champions(replaced=True, limit=MOST).items
    return render(
        "champions.html",
        {
            "matrices": matrices(services.store, services.catalogue),
            "former": [
                champion_out(row, services.catalogue) for row in rows if row.replaced_at is not None
            ][:MOST_FORMER],
        },
    )


def matrices(store: Store, catalogue: Catalogue) -> list[Matrix]:
    """One matrix for each kernel, device and toolchain that has champions."""
    groups: dict[tuple[str, str, str], list[ChampionOut]] = {}
    for row in store.champions(limit=MOST).items:
        champion = champion_out(row, catalogue)
        scope = champion.scope
        groups.setdefault((scope.kernel, scope.device, scope.toolchain), []).append(champion)
    kernels = (
        {kernel.name: kernel for kernel in catalogue.kernels() if isinstance(kernel, KernelSpec)}
        if groups
        else {}
    )
    return [_matrix(where, groups[where], kernels.get(where[0])) for where in sorted(groups)]


def _matrix(
    where: tuple[str, str, str], champions: list[ChampionOut], kernel: KernelSpec | None
) -> Matrix:
    present = kernel_identity(kernel) if kernel else ""
    by_workloads: dict[tuple[str, ...], ChampionOut] = {}
    for champion in champions:  # the newest first; champions of the present files before others
        names = tuple(champion.scope.workloads)
        known = by_workloads.get(names)
        if known is None or champion.scope.kernel_digest == present != known.scope.kernel_digest:
            by_workloads[names] = champion
    cells = []
    if kernel is not None:
        for workload in kernel.workloads:
            winner = by_workloads.pop((workload.name,), None)
            outdated = winner is not None and winner.scope.kernel_digest != present
            values = dict(workload.compile_time(kernel))
            cells.append(Cell((workload.name,), values, winner, outdated))
    cells += [
        Cell(names, winner.scope.values, winner, winner.scope.kernel_digest != present)
        for names, winner in sorted(by_workloads.items())
    ]
    columns = tuple(dict.fromkeys(name for cell in cells for name in cell.values))
    return Matrix(*where, columns, tuple(cells))
