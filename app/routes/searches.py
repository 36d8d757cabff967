"""Searches: submit, read, pause, resume, cancel; trials, best, confirmation and bundle."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from greenfast.app.bundle.download import bundle
from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.routes.bundling import zip_response
from greenfast.app.views.base_schemas import Page
from greenfast.app.views.confirmation_schemas import TimedAgainOut
from greenfast.app.views.confirmations import champion_out, confirmation_out, peer_out
from greenfast.app.views.probe_hint import probe_of
from greenfast.app.views.progress import require_best, search_detail
from greenfast.app.views.query_schemas import SearchesQuery, TrialsQuery
from greenfast.app.views.request_schemas import SearchSubmission
from greenfast.app.views.schemas import (
    BestOut,
    ChampionOut,
    ProbedTrialOut,
    SearchDetailOut,
    SearchOut,
    SearchPage,
    TrialDetailOut,
    TrialOut,
)
from greenfast.db.trial_filters import parameter_filters
from greenfast.search.oracle.cases import LARGEST_SEED

router = APIRouter(prefix="/searches", tags=["searches"])
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_SEED)]


@router.post("", status_code=201)
def submit(submission: SearchSubmission, response: Response, services: TheServices) -> SearchOut:
    """Queue a search. Every name is resolved now, so an accepted search can run."""
    row = services.submit(submission.request())
    response.headers["location"] = f"/api/v1/searches/{row.id}"
    return SearchOut.model_validate(row)


@router.get("")
def searches(query: Annotated[SearchesQuery, Query()], store: TheStore) -> SearchPage:
    """The searches, newest first."""
    page = store.searches(limit=query.limit, cursor=query.cursor, status=query.status)
    return SearchPage(
        items=[SearchOut.model_validate(row) for row in page.items],
        next_cursor=page.next_cursor,
        **vars(store.queue_state()),
    )


@router.get("/{search}")
def search(search: str, store: TheStore) -> SearchDetailOut:
    """The search with its progress, counts, gate funnel and best."""
    return search_detail(store, search)


@router.post("/{search}/confirm")
def confirm(search: str, services: TheServices) -> SearchOut:
    """Queue a completed search to time its winner again in fresh processes.

    409 where that is not possible.
    """
    services.catalogue_of(search)
    return SearchOut.model_validate(services.store.request_confirmation(search))


@router.post("/{search}/{wanted}")
def control(
    search: str, wanted: Literal["pause", "resume", "cancel"], store: TheStore
) -> SearchOut:
    """Request a pause, a resumption or an end; a running search stops within about a second."""
    return SearchOut.model_validate(store.request_control(search, wanted))


@router.get("/{search}/trials")
def trials(search: str, query: Annotated[TrialsQuery, Query()], store: TheStore) -> Page[TrialOut]:
    """The trials of a search, filtered and sorted."""
    page = store.trials(
        search,
        verdict=query.verdict,
        stage=query.stage,
        reason=query.reason,
        template=query.template,
        parameters=parameter_filters(query.where),
        text=query.text,
        sort=query.sort,
        descending=query.descending,
        limit=query.limit,
        cursor=query.cursor,
    )
    return Page(
        items=[TrialOut.model_validate(item) for item in page.items], next_cursor=page.next_cursor
    )


@router.get("/{search}/trials/{trial}")
def trial(search: str, trial: TrialNumber, services: TheServices) -> ProbedTrialOut:
    """One trial with the evidence of every gate, and a command to locate wrong outputs."""
    detail = services.store.trial(search, trial)
    probe = probe_of(services.catalogue, services.store.search(search), detail)
    return ProbedTrialOut(**TrialDetailOut.model_validate(detail).model_dump(), probe=probe)


@router.post("/{search}/trials/{trial}/promote")
def promote(
    search: str, trial: TrialNumber, services: TheServices, replace: bool = False
) -> ChampionOut:
    """Make a confirmed winner the champion of its scope.

    409 `not_confirmed` with the missing step; 409 `not_compared` when the scope has a champion that
    the winner was not timed against, unless `replace` is set.
    """
    return champion_out(services.store.promote(search, trial, replace=replace), services.catalogue)


@router.get("/{search}/confirmation")
def confirmation(search: str, store: TheStore) -> TimedAgainOut:
    """The winner's times in fresh processes, and its peers, with every sample."""
    row = store.confirmation(search)
    return TimedAgainOut(
        confirmation=confirmation_out(row, samples=True) if row else None,
        peers=[peer_out(peer, samples=True) for peer in store.peers(search)],
    )


@router.get("/{search}/best")
def best(search: str, store: TheStore) -> BestOut:
    """The fastest correct candidate; 404 `no_best` while there is none."""
    return require_best(store, search)


@router.get(
    "/{search}/bundle",
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}, "description": "the zip file"}},
)
def download(
    search: str,
    services: TheServices,
    trial: Annotated[int | None, Query(ge=0, le=LARGEST_SEED)] = None,
) -> Response:
    """The best candidate, or trial `trial`, with the files to compile, run and check it."""
    return zip_response(lambda: bundle(services, search, trial))
