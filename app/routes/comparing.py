"""Comparing trials, their lineage, importances of parameters, and more trials for a search."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.views.compare_schemas import CompareOut, ExtensionIn, ImportancesOut
from greenfast.app.views.comparing import compare
from greenfast.app.views.importances import importances
from greenfast.app.views.lineage import LineageOut, lineage
from greenfast.app.views.pareto import ParetoOut, pareto
from greenfast.app.views.schemas import SearchOut
from greenfast.app.views.trial_names import LONGEST, trial_named

router = APIRouter()
TrialText = Annotated[
    str,
    Query(
        max_length=LONGEST,
        description="SEARCH/NUMBER, SEARCH/best or SEARCH/baseline; a search means its best trial",
    ),
]


@router.get("/compare", tags=["searches"])
def compare_trials(a: TrialText, b: TrialText, store: TheStore) -> CompareOut:
    """Two trials side by side: parameters, times, figures, counters, and sources."""
    return compare(store, trial_named(store, a), trial_named(store, b))


@router.get("/searches/{search}/importance", tags=["searches"])
def importance(search: str, store: TheStore) -> ImportancesOut:
    """The parameters on which the times of a search depend, by template."""
    return importances(store, search)


@router.get("/searches/{search}/pareto", tags=["searches"])
def pareto_front(
    search: str,
    store: TheStore,
    objectives: Annotated[
        list[str] | None,
        Query(description="time, registers, shared_memory, error; default: the search's own"),
    ] = None,
) -> ParetoOut:
    """The correct trials that no other beats in every objective."""
    return pareto(store, search, objectives)


@router.get("/searches/{search}/trials/{trial}/lineage", tags=["searches"])
def trial_lineage(search: str, trial: int, store: TheStore) -> LineageOut:
    """The ancestors of a trial's candidate, and what each child changed."""
    return lineage(store, search, trial)


@router.post("/searches/{search}/extend", tags=["searches"])
def extend(search: str, extension: ExtensionIn, services: TheServices) -> SearchOut:
    """Queue an ended or paused search with more trials. 409 for one that is queued or runs."""
    services.catalogue_of(search)
    return SearchOut.model_validate(services.store.extend(search, extension.trials))
