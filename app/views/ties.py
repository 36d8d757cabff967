"""The ties of a search's winner: trials whose measured times cannot be distinguished from its own.

They are correct by all gates, or were rejected only because they were not shown to be faster than
the baseline: another search may accept such a trial. Each trial was timed in turns with the
baseline, so that their intervals share a scale. A direct comparison in fresh processes, where the
confirmation made one, outweighs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from greenfast.db.rows import ConfirmationRow, TrialRow
from greenfast.search.loop.ties import is_tie
from greenfast.search.timing import Decision, Interval
from greenfast.search.verdict import CORRECT, Reason, Stage

if TYPE_CHECKING:
    from greenfast.db.store import Store

MOST = 48  # of the fastest trials that are read
FARTHEST = 1.1  # a factor; intervals of correct trials are too narrow to tie beyond it
MOST_NAMED = 8
NEAR_MISSES = (Reason.SAME, Reason.AMBIGUOUS)


def ties_of(store: Store, best: TrialRow) -> tuple[int, ...]:
    """The numbers of the trials that tie with `best`; () unless measured.

    Those of a direct comparison come first, then the others, the fastest first.
    """
    if best.time_kind != "measured":
        return ()
    own, direct = _interval(store, best), _direct(store.confirmation(best.search_id), best.number)
    ties = [number for number, is_one in direct.items() if is_one]
    ties += [
        trial.number
        for trial in _near(store, best)
        if trial.number not in direct and _ties(own, _interval(store, trial))
    ]
    return tuple(ties)


def ties_sentence(ties: tuple[int, ...] | list[int], subject: str = "It") -> str:
    """The tie in words; empty if there is none."""
    if not ties:
        return ""
    names = ", ".join(map(str, ties[:MOST_NAMED])) + (", ..." if len(ties) > MOST_NAMED else "")
    others = f"trial {names}" if len(ties) == 1 else f"{len(ties)} other trials ({names})"
    return (
        f"{subject} ties with {others}: measured times do not show which of them is the "
        "fastest, so another search may pick another."
    )


def _near(store: Store, best: TrialRow) -> Iterator[TrialRow]:
    """The other trials that are near enough to tie, the fastest first."""
    own = best.ratio_to_baseline or 1.0
    for trial in store.trials(best.search_id, sort="time_median_us", limit=MOST).items:
        ratio = 1.0 if trial.is_baseline else trial.ratio_to_baseline
        if trial.number == best.number or not _is_eligible(trial) or not ratio:
            continue
        if trial.time_kind == "measured" and 1 / FARTHEST < ratio / own < FARTHEST:
            yield trial


def _is_eligible(trial: TrialRow) -> bool:
    is_near_miss = trial.stage == Stage.PERFORMANCE and trial.reason in NEAR_MISSES
    return trial.verdict in CORRECT or is_near_miss


def _ties(own: Interval | None, other: Interval | None) -> bool:
    return own is not None and other is not None and is_tie(own, other)


def _interval(store: Store, trial: TrialRow) -> Interval | None:
    """The interval of the trial's time against the baseline's; None if none is stored."""
    if trial.is_baseline:
        return Interval(0.0, 0.0, 0.0)
    gate = store.trial(trial.search_id, trial.number).gates.get("performance", {})
    bounds, ratio = gate.get("ratio_interval"), trial.ratio_to_baseline
    if not ratio or not bounds or not all(isinstance(bound, float) for bound in bounds):
        return None
    low, high = bounds
    return Interval(*map(math.log, (ratio, low, high))) if low > 0 and high < math.inf else None


def _direct(confirmation: ConfirmationRow | None, winner: int) -> Mapping[int, bool]:
    """Other trials that fresh processes compared with the winner: whether they tie with it."""
    if confirmation is None or confirmation.confirmation.trial != winner:
        return {}
    decided = (Decision.FASTER, Decision.SLOWER)
    return {
        comparison.other_trial: Decision(comparison.decision) not in decided
        for comparison in confirmation.confirmation.comparisons
        if comparison.other_trial is not None
    }
