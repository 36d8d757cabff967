"""`/compare`: two trials, or the best of two searches, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.dashboard.words import significant, value
from greenfast.app.views.comparing import compare
from greenfast.app.views.trial_names import TrialName, trial_named
from greenfast.db.store import Store
from greenfast.search.errors import GreenfastError
from greenfast.search.text import visible

MOST_OFFERED = 40
KINDS = {"+": "added", "-": "removed", "@": "place"}

router = APIRouter(route_class=PageRoute)


@router.get("/compare")
def compare_page(request: Request, a: str = "", b: str = "") -> Response:
    """The comparison, or the form with what is wrong about the names."""
    store = services_of(request).store
    report, error = None, None
    names: list[TrialName] = []
    if a and b:
        try:
            names = [trial_named(store, a), trial_named(store, b)]
            report = compare(store, *names)
        except GreenfastError as refused:
            error = refused
    return render(
        "compare.html",
        {
            "given": {"a": a, "b": b},
            "report": report,
            "names": [str(name) for name in names],
            "error": error,
            "diff": diff_lines(report.source.text) if report else (),
            "offered": offered(store),
            "shown": shown,
        },
        404 if error is not None else 200,
    )


def diff_lines(text: str) -> list[tuple[str, str]]:
    """(kind, line) of a unified diff, without its two heads."""
    return [(KINDS.get(line[:1], ""), visible(line)) for line in text.splitlines()[2:]]


def offered(store: Store) -> Sequence[tuple[str, str]]:
    """The newest searches, for the form."""
    return store.search_ids(limit=MOST_OFFERED)


def shown(figure: Any) -> str:
    """A figure's value."""
    if figure is None:
        return "\N{EN DASH}"
    if isinstance(figure, float):
        return significant(figure)
    return f"{figure:,}" if type(figure) is int else value(figure)
