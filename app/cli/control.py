"""`greenfast pause`, `resume` and `cancel`: requests to whichever worker runs a search."""

from __future__ import annotations

from typing import Literal

from greenfast.app.cli.options import AsJson, SearchId
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named


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


def _request(search: str, control: Literal["pause", "resume", "cancel"], as_json: bool) -> int:
    from greenfast.app.views.progress import search_detail

    with opened_services() as services:
        search = search_named(services.store, search)
        services.store.request_control(search, control)
        detail = search_detail(services.store, search)
    requested = f"; {detail.wanted} requested" if detail.wanted else ""
    say(f"{search} is {detail.status}{requested}")
    if as_json:
        print_json(detail.model_dump())
    return 0
