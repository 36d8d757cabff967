"""`/searches/{id}`: progress, the best so far, confirmation and peers, gates, and all trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from greenfast.app.dashboard import charts
from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.app.history import kernel_today, recheck_of
from greenfast.app.views.by_workload import results_by_workload
from greenfast.app.views.confirmations import confirmation_out, peer_out, ranked
from greenfast.app.views.designs import Designs
from greenfast.app.views.expectations import expectation_of
from greenfast.app.views.progress import beats_baseline, progress, rejected_baseline, standing_of
from greenfast.app.views.start import start_of
from greenfast.app.wiring import Services
from greenfast.db.extension import EXTENDABLE
from greenfast.db.rows import Counts, Point, SearchRow, TrialRow
from greenfast.db.searches import Wanted
from greenfast.db.store import Store
from greenfast.db.trial_filters import parameter_filters
from greenfast.search.loop.scope import scope_of
from greenfast.search.status import ENDED, SearchStatus
from greenfast.search.verdict import CORRECT, Reason, Stage, VerdictName

PAGE = 50
LARGEST_PAGE = 500
LONGEST_FILTER = 400  # characters
EXTENDABLE_BY = 20  # trials that the form suggests
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
    """Selection and order of the trial table; each combination has its own URL."""

    verdict: str | None = None
    stage: str | None = None
    reason: str | None = None
    template: str | None = None
    where: str = ""  # parameter values as they are typed: "tile_m=64 swizzle=xor"
    text: str = ""
    sort: str = "number"
    descending: bool = False

    @property
    def selection(self) -> dict[str, Any]:
        """The filters and the order as the store takes them."""
        return {
            **{name: value for name, value in vars(self).items() if name != "where"},
            "parameters": parameter_filters(self.where.replace(",", " ").split()),
        }

    def url(self, search_id: str, **changes: Any) -> str:
        """The URL of the table with `changes`, from its first trial on."""
        values = {**vars(self), **changes}
        given = {
            name: 1 if value is True else value
            for name, value in values.items()
            if value and value != "number"
        }
        return f"/searches/{search_id}" + (f"?{urlencode(given)}" if given else "") + "#trials"

    def sorting(self, name: str) -> dict[str, Any]:
        """The changes that a click on a column's head makes: that order, or its reverse."""
        return {
            "sort": name,
            "descending": self.sort == name and not self.descending,
            "cursor": None,
        }

    @property
    def any(self) -> bool:
        return bool(
            self.verdict or self.stage or self.reason or self.template or self.where or self.text
        )


@router.get("/searches/{search_id}")
def search_page(
    request: Request,
    search_id: str,
    verdict: str = "",
    stage: str = "",
    reason: str = "",
    template: str = "",
    where: str = "",
    text: str = "",
    sort: str = "",
    descending: bool = False,
    cursor: str = "",
) -> Response:
    services = services_of(request)
    row = services.store.search(search_id)
    filters = Filters(
        one_of("verdict", verdict, tuple(VerdictName)),
        one_of("stage", stage, Stage),
        one_of("reason", reason, Reason),
        template or None,
        where[:LONGEST_FILTER].strip(),
        text[:LONGEST_FILTER].strip(),
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


@router.post("/searches/{search_id}/extend")
async def extend(request: Request, search_id: str) -> Response:
    """Queue the search with more trials, then back to the page."""
    form = await request.form(max_files=0, max_fields=5)
    services, trials = services_of(request), str(form.get("trials", ""))
    more = int(trials) if trials.isascii() and trials.isdecimal() and len(trials) < 10 else 0
    await run_in_threadpool(services.catalogue_of, search_id)
    await run_in_threadpool(services.store.extend, search_id, more)
    return RedirectResponse(f"/searches/{search_id}", 303)


@router.post("/searches/{search_id}/control")
async def request_control(request: Request, search_id: str) -> Response:
    """Pause, resume or cancel, then back to the page."""
    form = await request.form(max_files=0, max_fields=5)
    control = cast(Wanted, str(form.get("wanted", "")))  # the store refuses unknown ones
    await run_in_threadpool(services_of(request).store.request_control, search_id, control)
    return RedirectResponse(f"/searches/{search_id}", 303)


def overview(services: Services, row: SearchRow) -> dict[str, Any]:
    """The context of everything above the trial table."""
    store = services.store
    best, counts = store.best(row.id), store.counts(row.id)
    baseline = baseline_of(store, row.id)
    newest = newest_trials(store, row.id, charts.MOST_POINTS)
    points = store.best_so_far(row.id)
    return {
        "queue": store.queue_state(),
        "row": row,
        "start": start_of(store.plan(row.id)),
        "best": best,
        "baseline": baseline,
        "counts": counts,
        "progress": progress(row),
        "controls": CONTROLS[SearchStatus(row.status)],
        "live": row.status not in ENDED,
        "kernel_is_here": row.kernel in services.catalogue.names(),
        "expectation": expectation_of(store.plan(row.id), best),
        "comparison": comparison(store, row, best, baseline),
        "baseline_failure": rejected_baseline(baseline),
        "standing": " ".join(filter(None, (standing_of(store, best), overtaken(best, points))))
        if best
        else "",
        "design": designs_of(services, row).of(best.template, best.parameters) if best else None,
        "extend_by": EXTENDABLE_BY if row.status in EXTENDABLE else None,
        "funnel": funnel(counts),
        "steps": charts.steps(points)[::-1],
        "chart": charts.best_so_far(row.id, newest, points, baseline),
        "drawn": len(newest),
        "by_workload": results_by_workload(store, row, best.number if best else None),
        **timed_again(services, row),
    }


def timed_again(services: Services, row: SearchRow) -> dict[str, Any]:
    """The confirmation, its possible next steps, the scope's champion, and the peers."""
    store = services.store
    confirmation = store.confirmation(row.id)
    champion, recheck, confirmed, promotable = None, "", False, False
    if confirmation is not None:
        winner = (row.id, confirmation.confirmation.trial)
        confirmed = confirmation.confirmation.confirmed
        promotable = confirmed and store.trial(*winner).verdict == VerdictName.ACCEPTED
        champion = store.champion(scope_of(store.plan(row.id), confirmation.environment))
        if champion and (champion.trial.search_id, champion.trial.number) == winner:
            recheck = recheck_of(champion, kernel_today(services.catalogue, row.kernel))
    is_measured = row.status == SearchStatus.COMPLETED and row.time_kind == "measured"
    return {
        "confirmation": confirmation_out(confirmation) if confirmation else None,
        "champion": champion,
        "promotable": promotable,
        "can_confirm": is_measured and (not confirmed or bool(recheck)),
        "recheck": recheck,
        "peers": ranked([peer_out(peer) for peer in store.peers(row.id)]),
    }


def overtaken(best: TrialRow, points: Sequence[Point]) -> str:
    """Why the best is not the fastest of the search; empty if it is."""
    if best.time_kind != "measured" or best.time_median_us is None:
        return ""
    faster = sum(point.time_median_us < best.time_median_us for point in points)
    if not faster:
        return ""
    others = "1 other candidate" if faster == 1 else f"{faster} other candidates"
    return f"{others} looked faster in the search; the times in fresh processes decide."


def baseline_of(store: Store, search_id: str) -> TrialRow | None:
    """Trial 0, when it is the baseline and was begun."""
    first = store.trials(search_id, limit=1).items
    return first[0] if first and first[0].is_baseline else None


def newest_trials(store: Store, search_id: str, most: int) -> list[TrialRow]:
    """At most `most` of the newest trials, in order of their numbers."""
    newest: list[TrialRow] = []
    cursor = None
    while len(newest) < most:
        page = store.trials(search_id, descending=True, limit=LARGEST_PAGE, cursor=cursor)
        newest += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return newest[most::-1] if len(newest) > most else newest[::-1]


def comparison(
    store: Store, row: SearchRow, best: TrialRow | None, baseline: TrialRow | None
) -> str:
    """The best against the baseline, with no claim beyond what its kind of time shows."""
    if best is None:
        yet = "" if row.status in ENDED else " yet"
        return f"No correct candidate{yet}." if row.trials_done else f"No trial{yet}."
    if baseline is None:
        return "This search has no baseline."
    if best.is_baseline:
        return "The baseline is the fastest correct candidate."
    if best.ratio_to_baseline is None:
        return "The baseline has no time to compare with."
    beats, kind = beats_baseline(store, row, best), best.time_kind
    if kind != "measured" and best.time_band:
        source = "model" if kind == "modelled" else "recording"
        within = f"the {source}'s band of a factor of {best.time_band:g}"
        if beats:
            return f"Faster by more than {within}. The time is {kind}, not measured."
        return (
            f"Within {within}: {kind} times this close cannot be distinguished, so it does not "
            "count as faster."
        )
    gain = f"{row.min_gain:.3g}"
    if beats:
        return f"Measured faster than the baseline by at least the requested share of {gain}."
    if best.verdict == VerdictName.GREEN and best.ratio_to_baseline <= 1 - row.min_gain:
        return (
            "Measured faster than the baseline. Its safety could not be checked, so it is not "
            "accepted."
        )
    return f"Not faster than the baseline by the requested share of {gain}."


def designs_of(services: Services, row: SearchRow) -> Designs:
    """The kernel's presets, from which candidates' differences are computed."""
    plan = services.store.plan(row.id)
    return Designs(services.catalogue, plan.kernel, plan.compiled)


@dataclass(frozen=True)
class Step:
    """One gate of the funnel; `not_judged` trials went on without a result of it."""

    stage: str
    reached: int
    passed: int
    rejected: int
    faulted: int
    not_judged: int


def funnel(counts: Counts) -> list[Step]:
    """The gates in order. A trial that neither went on nor was rejected was lost to a fault."""
    correct = sum(counts.by_verdict.get(verdict, 0) for verdict in CORRECT)
    went_on = [*(reached for _, reached, _ in counts.funnel[1:]), correct]
    steps = []
    for (stage, reached, passed), further in zip(counts.funnel, went_on, strict=True):
        rejected = counts.by_stage.get(stage, 0)
        faulted = reached - further - rejected
        not_judged = counts.unavailable.get(stage, 0)
        steps.append(Step(stage, reached, passed, rejected, faulted, not_judged))
    return steps


def trial_table(
    services: Services, row: SearchRow, filters: Filters, cursor: str | None
) -> dict[str, Any]:
    """The context of the trial table; UsageError for an unknown sort order or a bad filter."""
    designs, store = designs_of(services, row), services.store
    page = store.trials(row.id, **filters.selection, limit=PAGE, cursor=cursor)
    workloads = row.workloads if len(row.workloads) > 1 else ()
    numbers = [trial.number for trial in page.items]
    return {
        "page": page,
        "filters": filters,
        "paged": bool(cursor),
        "sorts": SORTS,
        "stages": list(Stage),
        "reasons": list(Reason),
        "design_of": lambda trial: designs.of(trial.template, trial.parameters),
        "workload_columns": workloads,
        "times_of": store.workload_times(row.id, numbers) if workloads else {},
    }
