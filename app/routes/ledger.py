"""The ledger over REST: ablations and explanations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.views.ablation_schemas import AblationOut, JobOut
from greenfast.app.views.ablations import stored_ablation
from greenfast.app.views.explanations import (
    ExplanationOut,
    can_explain,
    stored_explanation,
)
from greenfast.app.views.trial_names import TrialName, best_number, search_named
from greenfast.app.wiring import LARGEST_SEED
from greenfast.search.errors import UsageError

router = APIRouter(tags=["ledger"])
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
            mend="POST to the same path, or `greenfast ablate`, makes it",
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
    """Why a trial is wrong; 404 `no_explanation` while nobody has looked into it."""
    search_id = search_named(store, search)
    stored = stored_explanation(store, search_id, store.trial(search_id, trial).number)
    if stored is None:
        raise UsageError(
            f"nobody has looked into trial {trial} of search {search_id} yet",
            code="no_explanation",
            mend="POST to the same path, or `greenfast explain`, does",
        )
    return stored


@router.post("/searches/{search}/trials/{trial}/explanation", status_code=202)
def start_explanation(
    search: str, trial: TrialNumber, services: TheServices, response: Response
) -> JobOut:
    """Look into a wrong trial in the background. 409 `jobs_busy` when too many wait."""
    store = services.store
    row = store.search(search_named(store, search))
    if not can_explain(row, store.trial(row.id, trial)):
        raise UsageError(
            f"trial {trial} of search {row.id} is not wrong in a way that can be looked into",
            code="nothing_to_explain",
            mend="trials rejected at correctness or safety are, on an emulator or a GPU",
        )
    response.headers["location"] = f"/api/v1/searches/{row.id}/trials/{trial}/explanation"
    job: JobOut = services.ledger_jobs.start("explain", str(TrialName(row.id, trial)))
    return job
