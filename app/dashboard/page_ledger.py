"""`/searches/{id}/ablation`: what each feature and each number of a winner is worth."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.ablation_schemas import JobOut
from greenfast.app.views.ablations import stored_ablation
from greenfast.app.views.trial_names import TrialName, best_number
from greenfast.app.wiring import Services
from greenfast.search.errors import UsageError

router = APIRouter(route_class=PageRoute)


@router.get("/searches/{search_id}/ablation")
def ablation_page(request: Request, search_id: str, trial: int | None = None) -> Response:
    services = services_of(request)
    store = services.store
    row = store.search(search_id)
    ablation = stored_ablation(store, search_id, trial)
    number = ablation.number if ablation is not None else _number(services, search_id, trial)
    job = _job(services, "ablate", search_id, number)
    return render("ablation.html", {"row": row, "ablation": ablation, "number": number, "job": job})


@router.post("/searches/{search_id}/ablation")
async def start_ablation(request: Request, search_id: str) -> Response:
    services = services_of(request)

    def start() -> int:
        number = best_number(services.store, search_id)
        services.ledger_jobs.start("ablate", str(TrialName(search_id, number)))
        return number

    number = await run_in_threadpool(start)
    return RedirectResponse(f"/searches/{search_id}/ablation?trial={number}", 303)


def _number(services: Services, search_id: str, trial: int | None) -> int | None:
    if trial is not None:
        return services.store.trial(search_id, trial).number
    try:
        return best_number(services.store, search_id)
    except UsageError:
        return None


def _job(services: Services, command: str, search_id: str, number: int | None) -> JobOut | None:
    if number is None or services.ledger_jobs is None:
        return None
    job: Any = services.ledger_jobs.state(command, str(TrialName(search_id, number)))
    return job if isinstance(job, JobOut) else None
