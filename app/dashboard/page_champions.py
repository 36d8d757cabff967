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
    """By kernel, device and toolchain; a kernel without champions has none."""
    found: dict[tuple[str, str, str], list[ChampionOut]] = {}
    for row in store.champions(limit=MOST).items:
        one = champion_out(row, catalogue)
        found.setdefault((one.scope.kernel, one.scope.device, one.scope.toolchain), []).append(one)
    kernels = (
        {kernel.name: kernel for kernel in catalogue.kernels() if isinstance(kernel, KernelSpec)}
        if found
        else {}
    )
    return [_matrix(where, found[where], kernels.get(where[0])) for where in sorted(found)]


def _matrix(
    where: tuple[str, str, str], champions: list[ChampionOut], kernel: KernelSpec | None
) -> Matrix:
    present = kernel_identity(kernel) if kernel else ""
    by_workloads: dict[tuple[str, ...], ChampionOut] = {}
    for champion in champions:  # the newest first; of the present files before all others
        at = tuple(champion.scope.workloads)
        if (
            at not in by_workloads
            or champion.scope.kernel_digest == present != by_workloads[at].scope.kernel_digest
        ):
            by_workloads[at] = champion
    cells = [
        Cell(
            (workload.name,),
            dict(workload.compile_time(kernel)),
            found := by_workloads.pop((workload.name,), None),
            found is not None and found.scope.kernel_digest != present,
        )
        for workload in (kernel.workloads if kernel else ())
    ]
    cells += [
        Cell(at, one.scope.values, one, one.scope.kernel_digest != present)
        for at, one in sorted(by_workloads.items())
    ]
    names = tuple(dict.fromkeys(name for cell in cells for name in cell.values))
    return Matrix(*where, names, tuple(cells))
