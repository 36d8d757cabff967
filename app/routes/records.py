"""Records beyond a single search: sources, valid negatives and champions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse

from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.views.base_schemas import Page
from greenfast.app.views.confirmations import champion_out
from greenfast.app.views.negatives import negatives_out
from greenfast.app.views.query_schemas import ChampionsQuery, NegativesQuery
from greenfast.app.views.schemas import ChampionOut, NegativeOut
from greenfast.db.trial_filters import parameter_filters

router = APIRouter(tags=["records"])


@router.get("/sources/{source}", response_class=PlainTextResponse)
def source(source: str, store: TheStore) -> PlainTextResponse:
    """A rendered source by its digest, or by 8 or more of its first digits."""
    row = store.source(source)
    return PlainTextResponse(row.text, headers={"etag": f'"{row.digest}"'})


@router.get("/negatives")
def negatives(
    query: Annotated[NegativesQuery, Query()], services: TheServices
) -> Page[NegativeOut]:
    """Ideas that were tried and did not help, newest first, each with its scope.

    `expired` names which of the kernel's files, the toolchain and the driver have changed since.
    """
    page = services.store.negatives(
        kernel=services.known_kernel(query.kernel),
        search_id=query.search_id,
        reason=query.reason,
        feature=query.feature,
        parameters=parameter_filters(query.where),
        device=query.device,
        dtype=query.dtype,
        workload=query.workload,
        text=query.text,
        limit=query.limit,
        cursor=query.cursor,
    )
    return Page(items=negatives_out(services, page.items), next_cursor=page.next_cursor)


@router.get("/champions")
def champions(
    query: Annotated[ChampionsQuery, Query()], services: TheServices
) -> Page[ChampionOut]:
    """The confirmed best of each scope, the newest first."""
    page = services.store.champions(
        kernel=services.known_kernel(query.kernel),
        replaced=query.replaced,
        limit=query.limit,
        cursor=query.cursor,
    )
    return Page(
        items=[champion_out(item, services.catalogue) for item in page.items],
        next_cursor=page.next_cursor,
    )
