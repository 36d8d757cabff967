"""`/searches/{id}`: is it getting anywhere, what is the best so far, and what became of each candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from greenfast.app.dashboard import charts
from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.app.history import kernel_today, recheck_of
from greenfast.app.views.confirmations import confirmation_out, peer_out, ranked
from greenfast.app.views.progress import band_sentence, beats_baseline, progress
from greenfast.app.wiring import Services
from greenfast.db.rows import Counts, Point, SearchRow, TrialRow
from greenfast.db.store import Store
from greenfast.search.errors import GreenfastError
from greenfast.search.loop.scope import scope_of
from greenfast.search.status import ENDED, SearchStatus
from greenfast.search.verdict import Reason, Stage

PAGE = 50
LARGEST_PAGE = 500
RIGHT = ("accepted", "green")
VERDICTS = (*RIGHT, "rejected", "faulted")
SORTS = {
    "number": "number",
    "time_median_us": "time",
    "registers": "registers",
    "smem_bytes": "shared memory",
    "max_abs_error": "max error",
    "duration_s": "duration",
}
CONTROLS = {
    SearchStatus.QUEUED: ("pause", "cancel"),
    SearchStatus.RUNNING: ("pause", "cancel"),
    SearchStatus.PAUSED: ("resume", "cancel"),
    SearchStatus.FAILED: ("resume",),
    SearchStatus.CANCELLED: (),
    SearchStatus.COMPLETED: (),
}

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class Filters:
    """What the trial table is asked to show; each combination has its own URL."""

    verdict: str | None = None
    stage: str | None = None
    reason: str | None = None
    template: str | None = None
    sort: str = "number"
    descending: bool = False

    def url(self, search_id: str, **changes: Any) -> str:
        """This page with some of it changed, from its first trial on."""
        values = {**vars(self), **changes}
        given = {
            name: 1 if one is True else one
            for name, one in values.items()
            if one and one != "number"
        }
        return f"/searches/{search_id}" + (f"?{urlencode(given)}" if given else "") + "#trials"

    def sorting(self, name: str) -> dict[str, Any]:
        """What a click on a column's head asks for: that order, or the other way round."""
        return {
            "sort": name,
            "descending": self.sort == name and not self.descending,
            "cursor": None,
        }

    @property
    def any(self) -> bool:
        return bool(self.verdict or self.stage or self.reason or self.template)


@router.get("/searches/{search_id}")
def search_page(
    request: Request,
    search_id: str,
    verdict: str = "",
    stage: str = "",
    reason: str = "",
    template: str = "",
    sort: str = "",
    descending: bool = False,
    cursor: str = "",
) -> Response:
    services = services_of(request)
    row = services.store.search(search_id)
    filters = Filters(
        one_of("verdict", verdict, VERDICTS),
        one_of("stage", stage, Stage),
        one_of("reason", reason, Reason),
        template or None,
        one_of("sort", sort, SORTS) or "number",
        descending,
    )
    return render(
        "search.html",
        {**overview(services, row), **trial_table(services, row, filters, cursor or None)},
    )


@router.post("/searches/{search_id}/promote")
async def promote(request: Request, search_id: str) -> Response:
    """Make the confirmed winner the champion of its scope, then show the champions."""
    form = await request.form(max_files=0, max_fields=5)
    number = str(form.get("trial", ""))
    store = services_of(request).store
    await run_in_threadpool(
        store.promote,
        search_id,
        int(number) if number.isdecimal() else -1,
        replace=form.get("replace") == "1",
    )
    return RedirectResponse("/champions", 303)


@router.post("/searches/{search_id}/confirm")
def confirm(request: Request, search_id: str) -> Response:
    """Queue the search once more, for its winner to be timed again."""
    services = services_of(request)
    services.catalogue_of(search_id)
    services.store.request_confirmation(search_id)
    return RedirectResponse(f"/searches/{search_id}", 303)


@router.post("/searches/{search_id}/control")
async def control(request: Request, search_id: str) -> Response:
    """Pause, resume or cancel, then back to the page."""
    form = await request.form(max_files=0, max_fields=5)
    wanted = str(form.get("wanted", ""))
    await run_in_threadpool(services_of(request).store.request_control, search_id, wanted)
    return RedirectResponse(f"/searches/{search_id}", 303)


def overview(services: Services, row: SearchRow) -> dict[str, Any]:
    """Everything above the trial table."""
    store = services.store
    best, counts = store.best(row.id), store.counts(row.id)
    baseline = baseline_of(store, row.id)
    newest = newest_trials(store, row.id, charts.MOST_POINTS)
    points = store.best_so_far(row.id)
    return {
        "queue": store.queue_state(),
        "row": row,
        "best": best,
        "baseline": baseline,
        "counts": counts,
        "progress": progress(row),
        "controls": CONTROLS[SearchStatus(row.status)],
        "live": row.status not in ENDED,
        "comparison": comparison(store, row, best, baseline),
        "standing": (band_sentence(best, store.not_told_apart(best)) or overtaken(best, points))
        if best
        else "",
        "changes": changes(best, baseline, defaults_of(services, row))
        if best and not best.is_baseline
        else (),
        "funnel": funnel(counts),
        "steps": charts.steps(points)[::-1],
        "chart": charts.best_so_far(row.id, newest, points, baseline),
        "drawn": len(newest),
        **timed_again(services, row),
    }


def timed_again(services: Services, row: SearchRow) -> dict[str, Any]:
    """The confirmation, what can be done about it, the scope's champion, and the peers beside the winner."""
    store = services.store
    found = store.confirmation(row.id)
    confirmed = found is not None and found.confirmation.confirmed
    champion = store.champion(scope_of(store.plan(row.id), found.environment)) if found else None
    is_champion = champion is not None and (champion.trial.search_id, champion.trial.number) == (
        row.id,
        found.confirmation.trial,
    )
    recheck = (
        recheck_of(champion, kernel_today(services.catalogue, row.kernel)) if is_champion else ""
    )
    return {
        "confirmation": confirmation_out(found) if found else None,
        "champion": champion,
        "promotable": confirmed
        and store.trial(row.id, found.confirmation.trial).verdict == "accepted",
        "can_confirm": row.status == SearchStatus.COMPLETED
        and row.time_kind == "measured"
        and (not confirmed or bool(recheck)),
        "recheck": recheck,
        "peers": ranked([peer_out(peer) for peer in store.peers(row.id)]),
    }


def overtaken(best: TrialRow, points: Sequence[Point]) -> str:
    """Why the best is not the fastest of the search; empty where it is."""
    faster = sum(point.time_median_us < best.time_median_us for point in points)
    if best.time_kind != "measured" or not faster:
        return ""
    others = "1 other candidate" if faster == 1 else f"{faster} other candidates"
    return f"{others} looked faster in the search; what counts is what fresh processes say."


def baseline_of(store: Store, search_id: str) -> TrialRow | None:
    """Trial 0, when it is the baseline and was begun."""
    first = store.trials(search_id, limit=1).items
    return first[0] if first and first[0].is_baseline else None


def newest_trials(store: Store, search_id: str, most: int) -> list[TrialRow]:
    """At most `most` of the newest trials, in order of their numbers."""
    found: list[TrialRow] = []
    cursor = None
    while len(found) < most:
        page = store.trials(search_id, descending=True, limit=LARGEST_PAGE, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found[most::-1] if len(found) > most else found[::-1]


def comparison(
    store: Store, row: SearchRow, best: TrialRow | None, baseline: TrialRow | None
) -> str:
    """What may be said of the best beside the baseline: no more than its kind of time shows."""
    if best is None:
        return "No right candidate yet." if row.trials_done else "Nothing was tried yet."
    if baseline is None:
        return "This search has no baseline."
    if best.is_baseline:
        return "Nothing faster was found yet: the baseline is the fastest right candidate."
    if best.ratio_to_baseline is None:
        return "The baseline has no time, so nothing can be compared with it."
    beats, kind = beats_baseline(store, row, best), best.time_kind
    if kind != "measured" and best.time_band:
        within = f"the {'model' if kind == 'modelled' else 'recording'}'s band of a factor {best.time_band:g}"
        if beats:
            return f"Faster by more than {within}; a {kind} time is still not a measured one."
        return f"Within {within}: {kind} times this close are not told apart, so it does not count as faster."
    if beats:
        return f"Faster than the baseline by at least the {row.min_gain:.3g} that was asked for, measured."
    if best.verdict == "green" and best.ratio_to_baseline <= 1 - row.min_gain:
        return "Measured faster than the baseline; its safety could not be judged, so it is not accepted."
    return f"Not faster by the {row.min_gain:.3g} that was asked for."


Defaults = dict[str, dict[str, Any]]  # template -> parameter -> value


def defaults_of(services: Services, row: SearchRow) -> Defaults:
    """What the search's templates have where nobody chooses; none of those that are no longer there."""
    try:
        kernel = services.catalogue.kernel(row.kernel)
    except GreenfastError:
        return {}
    return {
        template.name: {parameter.name: parameter.default for parameter in template.parameters}
        for template in kernel.templates
    }


def changes(
    trial: TrialRow, baseline: TrialRow | None, defaults: Defaults
) -> list[tuple[str, Any, Any]]:
    """(name, value, what it is otherwise) of what differs from the baseline, or for another template from its defaults."""
    same = baseline is not None and trial.template == baseline.template
    otherwise = baseline.parameters if same else defaults.get(trial.template, {})
    return [
        (name, value, otherwise.get(name))
        for name, value in trial.parameters.items()
        if name not in otherwise or otherwise[name] != value
    ]


@dataclass(frozen=True)
class Step:
    """One gate of the funnel; `not_judged` went on although the gate could not say."""

    stage: str
    reached: int
    passed: int
    rejected: int
    faulted: int
    not_judged: int


def funnel(counts: Counts) -> list[Step]:
    """The gates in order; what neither went on nor was rejected was lost to a fault of ours."""
    right = sum(counts.by_verdict.get(one, 0) for one in RIGHT)
    went_on = [*(reached for _, reached, _ in counts.funnel[1:]), right]
    found = []
    for (stage, reached, passed), further in zip(counts.funnel, went_on):
        rejected = counts.by_stage.get(stage, 0)
        found.append(
            Step(
                stage,
                reached,
                passed,
                rejected,
                reached - further - rejected,
                counts.unavailable.get(stage, 0),
            )
        )
    return found


def trial_table(
    services: Services, row: SearchRow, filters: Filters, cursor: str | None
) -> dict[str, Any]:
    """The part of the trials that is asked for; UsageError for a sort order that does not exist."""
    defaults = defaults_of(services, row)
    page = services.store.trials(row.id, **vars(filters), limit=PAGE, cursor=cursor)
    return {
        "page": page,
        "filters": filters,
        "paged": bool(cursor),
        "sorts": SORTS,
        "verdicts": VERDICTS,
        "stages": list(Stage),
        "reasons": list(Reason),
        "changes_of": lambda trial, baseline: changes(trial, baseline, defaults),
    }
