"""A search's progress, and the significance of its best, for commands, REST and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenfast.app.views.by_workload import results_by_workload
from greenfast.app.views.confirmations import confirmation_out, peer_out
from greenfast.app.views.expectations import expectation_of
from greenfast.app.views.schemas import (
    BestOut,
    CountsOut,
    FunnelStep,
    ProgressOut,
    SearchDetailOut,
    SearchOut,
    TrialOut,
)
from greenfast.app.views.start import start_of
from greenfast.app.views.ties import ties_of, ties_sentence
from greenfast.db.rows import QueueState, SearchRow, TrialRow, beats
from greenfast.search.errors import UsageError
from greenfast.search.status import SearchStatus
from greenfast.search.text import one_line, shortened
from greenfast.search.verdict import VerdictName

if TYPE_CHECKING:
    from greenfast.db.store import Store

FEWEST_FOR_A_RATE = 2
LEAST_S_FOR_A_RATE = 0.1  # stored verdicts repeat at no rate
LONGEST_FINDING = 300  # characters of a baseline's finding beside other figures


def search_detail(store: Store, search_id: str) -> SearchDetailOut:
    """A search with progress, counts, best, confirmation and peers.

    UsageError `unknown_search`.
    """
    row = store.search(search_id)
    counts, queue = store.counts(search_id), store.queue_state()
    confirmation, best = store.confirmation(search_id), best_out(store, row)
    return SearchDetailOut(
        **SearchOut.model_validate(row).model_dump(),
        progress=progress(row),
        queued=queue.queued,
        workers_alive=queue.workers_alive,
        counts=CountsOut.model_validate(counts),
        funnel=[
            FunnelStep(stage=stage, reached=reached, passed=passed)
            for stage, reached, passed in counts.funnel
        ],
        best=best,
        expectation=expectation_of(store.plan(search_id), best),
        baseline_trial=baseline_trial(store, row),
        confirmation=confirmation_out(confirmation) if confirmation else None,
        peers=[peer_out(peer) for peer in store.peers(search_id)],
        start=start_of(store.plan(search_id)),
        objectives=list(store.plan(search_id).objectives),
        by_workload=results_by_workload(store, row, best.number if best else None),
    )


def progress(row: SearchRow) -> ProgressOut:
    done = row.status == SearchStatus.COMPLETED
    closed = done and row.time_kind == "measured"  # spent_s then includes its confirmation
    known = (
        row.trials_done >= FEWEST_FOR_A_RATE and row.spent_s >= LEAST_S_FOR_A_RATE and not closed
    )
    rate = row.trials_done / row.spent_s * 60 if known else None
    shares, left = [], []
    if row.trials_budget:
        shares.append(row.trials_done / row.trials_budget)
        if rate:
            left.append(max(0, row.trials_budget - row.trials_done) / rate * 60)
    if row.seconds_budget:
        shares.append(row.spent_s / row.seconds_budget)
        left.append(max(0.0, row.seconds_budget - row.spent_s))
    if row.gpu_seconds_budget:
        shares.append((row.gpu_spent_s or 0.0) / row.gpu_seconds_budget)
    return ProgressOut(
        trials_done=row.trials_done,
        trials_budget=row.trials_budget,
        seconds_spent=row.spent_s,
        seconds_budget=row.seconds_budget,
        share=1.0 if done else min(1.0, max(shares, default=0.0)),
        rate_per_minute=rate,
        seconds_left=0.0 if done else min(left, default=None),
    )


def best_out(store: Store, row: SearchRow) -> BestOut | None:
    """The fastest correct candidate, the baseline included; None while there is none."""
    best = store.best(row.id)
    if best is None:
        return None
    return BestOut(
        **TrialOut.model_validate(best).model_dump(),
        beats_baseline=beats_baseline(store, row, best),
        not_told_apart=store.not_told_apart(best),
        ties=list(ties_of(store, best)),
    )


def standing_of(store: Store, best: TrialRow) -> str:
    """How far the times show that `best` is the fastest: its measured ties, or its band."""
    if best.time_kind == "measured":
        return ties_sentence(ties_of(store, best))
    return band_sentence(best, store.not_told_apart(best))


def band_sentence(best: TrialRow | BestOut, not_told_apart: int) -> str:
    """How far the times of `best` order candidates; empty for measured times."""
    if best.time_kind == "measured" or not best.time_band:
        return ""
    if not not_told_apart and best.time_band == 1:
        return f"The lowest {best.time_kind} time."
    if not not_told_apart:
        return (
            f"The lowest {best.time_kind} time; no other correct candidate lies within a factor of "
            f"{best.time_band:g} of it."
        )
    if best.time_band == 1:
        others = f"{not_told_apart} other correct candidate{'s' * (not_told_apart != 1)}"
        has = "has" if not_told_apart == 1 else "have"
        return f"The lowest {best.time_kind} time. {others} {has} the same."
    others = (
        "1 other correct candidate lies"
        if not_told_apart == 1
        else f"{not_told_apart} other correct candidates lie"
    )
    return (
        f"The lowest {best.time_kind} time. {others} within a factor of {best.time_band:g} of it, "
        "and cannot be distinguished from it."
    )


def require_best(store: Store, search_id: str) -> BestOut:
    """The best, or UsageError `no_best`."""
    best = best_out(store, store.search(search_id))
    if best is None:
        raise UsageError(
            f"search {search_id} has no correct candidate yet",
            code="no_best",
            mend="wait for more trials, or see why they were rejected",
        )
    return best


def beats_baseline(store: Store, row: SearchRow, best: TrialRow) -> bool:
    """Whether the best is shown to be faster than the baseline by its kind of time."""
    return beats(best, _baseline_row(store, row), best.time_band or float("inf"), row.min_gain)


def baseline_trial(store: Store, row: SearchRow) -> TrialOut | None:
    """Trial 0, when it is the baseline and was begun."""
    baseline = _baseline_row(store, row)
    return TrialOut.model_validate(baseline) if baseline else None


def rejected_baseline(baseline: TrialRow | TrialOut | None) -> str:
    """Why the baseline was rejected; empty if it was not, or if there is none."""
    if baseline is None or baseline.verdict != VerdictName.REJECTED:
        return ""
    finding = shortened(one_line(baseline.finding), LONGEST_FINDING)
    return f"The baseline was rejected at {baseline.stage}: {finding}"


def _baseline_row(store: Store, row: SearchRow) -> TrialRow | None:
    first = store.trials(row.id, limit=1).items
    return first[0] if first and first[0].is_baseline else None


def queue_words(row: SearchRow | SearchOut, queue: QueueState) -> str:
    """A queued search's place, "3rd of 5", and whether no worker runs; empty for any other."""
    if row.queue_position is None:
        return ""
    place = f"{ordinal(row.queue_position)} of {max(queue.queued, row.queue_position)}"
    return place if queue.workers_alive else f"{place}, no worker is running"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
