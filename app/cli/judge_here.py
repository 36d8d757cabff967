"""Judging a submission in this process, for commands that answer with its report."""

from __future__ import annotations

from typing import Any

from greenfast.app.cli.search_run import run_here
from greenfast.app.service.worker import Left, Stop
from greenfast.app.views.submitting import JudgeRequest, submission_report, submit_source
from greenfast.app.wiring import Services
from greenfast.search.status import SearchStatus


def judged_here(
    services: Services, request: JudgeRequest, stop: Stop, name: str = ""
) -> dict[str, Any] | None:
    """The report on a submission once it is judged; None when `stop` came first.

    A paused or failed search of the same source is not continued: the request begins its own.
    """
    ticket = submit_source(services, request, name)
    row = services.store.search(ticket.search_id)
    if row.status != SearchStatus.COMPLETED:
        report = run_here(services, ticket.search_id, stop)
        if report.left is Left.STOPPED:
            return None
    return submission_report(services, ticket.search_id, repeated=ticket.repeated)
