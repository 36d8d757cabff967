"""`greenfast pause`, `resume` and `cancel`: requests to whichever worker runs a search."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from greenfast.app.cli.options import AsJson, SearchId
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.search.status import SearchStatus

if TYPE_CHECKING:
    from greenfast.db.store import Store

LOOK_S = 0.5  # between two looks at a search that is to be cancelled


def pause(search: SearchId, as_json: AsJson = False) -> int:
    """Pause a search: its worker finishes the trials in flight, then stops.

    `greenfast resume` queues it again, and `greenfast search --resume` continues it here.
    """
    return _request(search, "pause", as_json)


def resume(search: SearchId, as_json: AsJson = False) -> int:
    """Queue a paused or failed search again, for a worker.

    `greenfast search --resume` continues it in this process instead.
    """
    return _request(search, "resume", as_json)


def cancel(search: SearchId, as_json: AsJson = False) -> int:
    """End a search for good. Its trials and sources are kept."""
    return _request(search, "cancel", as_json)


def _obeyed(store: Store, search: str) -> None:
    """Wait until the search is cancelled. Of a worker that died, its lease has to end first."""
    from greenfast.db.lease import CANCELLED_LEASE_S

    end = time.monotonic() + CANCELLED_LEASE_S + LOOK_S
    while store.search(search).status == SearchStatus.RUNNING and time.monotonic() < end:
        time.sleep(LOOK_S)
        store.request_control(search, "cancel")


def _request(search: str, control: Literal["pause", "resume", "cancel"], as_json: bool) -> int:
    from greenfast.app.views.progress import search_detail

    with opened_services() as services:
        search = search_named(services.store, search)
        services.store.request_control(search, control)
        if control == "cancel":
            _obeyed(services.store, search)
        detail = search_detail(services.store, search)
    requested = f"; {detail.wanted} requested" if detail.wanted else ""
    say(f"{search} is {detail.status}{requested}")
    if as_json:
        print_json(detail.model_dump())
    return 0
