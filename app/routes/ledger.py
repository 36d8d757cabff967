"""The ledger over REST: ablations, explanations, themes, reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse

from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.views.ablation_schemas import AblationOut, JobOut
from greenfast.app.views.ablations import stored_ablation
from greenfast.app.views.explanations import (
    ExplanationOut,
    can_explain,
    stored_explanation,
)
from greenfast.app.views.ledger_memory import ReusedOut, reused_trials
from greenfast.app.views.negatives import NearOut, ThemeOut, near_negatives, themes_of
from greenfast.app.views.report import require_report
from greenfast.app.views.report_markdown import markdown
from greenfast.app.views.report_schemas import ReportOut
from greenfast.app.views.trial_names import TrialName, best_number, search_named
from greenfast.app.wiring import Services
from greenfast.search.errors import UsageError
from greenfast.search.oracle.cases import LARGEST_SEED

router = APIRouter(tags=["ledger"])
ReportForm = Annotated[Literal["json", "markdown"], Query()]
MARKDOWN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/markdown": {}}, "description": "the report"}
}
OptionalTrial = Annotated[int | None, Query(ge=0, le=LARGEST_SEED, description="default: the best")]
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_SEED)]


@router.get("/searches/{search}/ablation")
def ablation(search: str, store: TheStore, trial: OptionalTrial = None) -> AblationOut:
    """The stored ablation of the winner or of `trial`; 404 `no_ablation` while there is none."""
    stored = stored_ablation(store, search_named(store, search), trial)
    if stored is None:
        raise UsageError(
            f"there is no ablation of search {search}",
            code="no_ablation",
            mend="POST to the same path, or run `greenfast ablate`",
        )
    return stored


@router.post("/searches/{search}/ablation", status_code=202)
def start_ablation(
    search: str, services: TheServices, response: Response, trial: OptionalTrial = None
) -> JobOut:
    """Ablate the winner or `trial` in the background. 409 `jobs_busy` when too many wait."""
    store = services.store
    search_id = search_named(store, search)
    number = (
        best_number(store, search_id) if trial is None else store.trial(search_id, trial).number
    )
    response.headers["location"] = f"/api/v1/searches/{search_id}/ablation?trial={number}"
    job: JobOut = services.ledger_jobs.start("ablate", str(TrialName(search_id, number)))
    return job


@router.get("/searches/{search}/trials/{trial}/explanation")
def explanation(search: str, trial: TrialNumber, store: TheStore) -> ExplanationOut:
    """Why a trial is wrong; 404 `no_explanation` if it has not been explained."""
    search_id = search_named(store, search)
    stored = stored_explanation(store, search_id, store.trial(search_id, trial).number)
    if stored is None:
        raise UsageError(
            f"trial {trial} of search {search_id} has not been explained yet",
            code="no_explanation",
            mend="POST to the same path, or run `greenfast explain`",
        )
    return stored


@router.post("/searches/{search}/trials/{trial}/explanation", status_code=202)
def start_explanation(
    search: str, trial: TrialNumber, services: TheServices, response: Response
) -> JobOut:
    """Explain a wrong trial in the background. 409 `jobs_busy` when too many wait."""
    store = services.store
    row = store.search(search_named(store, search))
    if not can_explain(row, store.trial(row.id, trial)):
        raise UsageError(
            f"trial {trial} of search {row.id} was not rejected in a way that can be explained",
            code="nothing_to_explain",
            mend="only trials rejected at correctness or safety, on an emulator or a GPU, can be",
        )
    response.headers["location"] = f"/api/v1/searches/{row.id}/trials/{trial}/explanation"
    job: JobOut = services.ledger_jobs.start("explain", str(TrialName(row.id, trial)))
    return job


@router.get("/searches/{search}/themes")
def themes(search: str, store: TheStore) -> list[ThemeOut]:
    """Values that were tried together and never helped, those with the most trials first."""
    return themes_of(store, search_named(store, search))


@router.get("/searches/{search}/trials/{trial}/near")
def near(search: str, trial: TrialNumber, store: TheStore) -> list[NearOut]:
    """Known negatives of the scope that differ from the trial in a single parameter."""
    search_id = search_named(store, search)
    return near_negatives(store, search_id, store.trial(search_id, trial))


@router.get("/searches/{search}/reused")
def reused(search: str, store: TheStore) -> list[ReusedOut]:
    """The trials that did not run, and repeat an earlier trial of this search or of another."""
    repeated = reused_trials(store, search_named(store, search))
    return [
        ReusedOut(number=number, search_id=reuse.search_id, trial=reuse.number)
        for number, reuse in sorted(repeated.items())
    ]


@router.get("/searches/{search}/report", response_model=ReportOut, responses=MARKDOWN)
def search_report(
    search: str, services: TheServices, form: ReportForm = "json"
) -> ReportOut | Response:
    """The search as a lab note, as JSON or as Markdown."""
    return _report(services, search_named(services.store, search), form)


@router.get("/tunings/{tuning}/report", response_model=ReportOut, responses=MARKDOWN)
def tuning_report(
    tuning: str, services: TheServices, form: ReportForm = "json"
) -> ReportOut | Response:
    """All searches of a tuning as one lab note."""
    return _report(services, services.store.tuning(tuning).id, form)


def _report(services: Services, name: str, form: str) -> ReportOut | Response:
    report = require_report(services, name)
    if form == "json":
        return report
    return PlainTextResponse(markdown(report), media_type="text/markdown")
