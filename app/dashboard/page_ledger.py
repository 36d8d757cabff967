"""Pages of the ledger: the ablation of a winner, and why a trial is wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.ablation_schemas import JobOut
from greenfast.app.views.ablations import stored_ablation
from greenfast.app.views.explanations import can_explain, stored_explanation
from greenfast.app.views.ledger_memory import origin_of, reused_trials
from greenfast.app.views.negatives import near_negatives
from greenfast.app.views.rechecks import stored_recheck
from greenfast.app.views.trial_names import TrialName, best_number
from greenfast.app.wiring import Services
from greenfast.db.rows import SearchRow, TrialRow
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


@router.post("/searches/{search_id}/trials/{number}/explain")
async def start_explanation(request: Request, search_id: str, number: int) -> Response:
    services = services_of(request)

    def start() -> None:
        search, trial = services.store.search(search_id), services.store.trial(search_id, number)
        if can_explain(search, trial):
            services.ledger_jobs.start("explain", str(TrialName(search_id, number)))

    await run_in_threadpool(start)
    return RedirectResponse(f"/searches/{search_id}/trials/{number}#explanation", 303)


def known_of(services: Services, trial: TrialRow) -> dict[str, Any]:
    """The ledger's knowledge about a trial, apart from its own record."""
    store, search = services.store, trial.search_id
    repeated = reused_trials(store, search).get(trial.number)
    return {
        "repeats": origin_of(store, repeated) if repeated is not None else None,
        "near": near_negatives(store, search, trial) if trial.verdict is not None else [],
        "rechecked": stored_recheck(store, search, trial.number),
    }


def explanation_of(services: Services, search: SearchRow, trial: TrialRow) -> dict[str, Any]:
    """The explanation of a trial for its page.

    If there is none, the page asks for it by itself, unless this service runs no work.
    """
    if not can_explain(search, trial):
        return {"explains": False, "explanation": None, "explaining": None}
    explanation = stored_explanation(services.store, search.id, trial.number)
    job = _job(services, "explain", search.id, trial.number)
    if explanation is None and job is None and services.settings.workers > 0:
        with suppress(UsageError):  # too many wait: a later look at the page asks again
            job = services.ledger_jobs.start("explain", str(TrialName(search.id, trial.number)))
    return {"explains": True, "explanation": explanation, "explaining": job}


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
