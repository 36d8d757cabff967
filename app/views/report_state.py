"""Why a report may not be final: a search that has not ended well, and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from greenfast.db.rows import SearchRow, TrialRow
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import VerdictName

SO_FAR = "What follows is known so far."


def state_sentence(row: SearchRow) -> str:
    """How far the search has come; empty for a completed one."""
    budget = f" of {row.trials_budget}" if row.trials_budget else ""
    done = f"{row.trials_done}{budget} trial{'s' if budget or row.trials_done != 1 else ''}"
    cause = f": {row.cause.rstrip('.')}" if row.cause and row.cause != row.status else ""
    match SearchStatus(row.status):
        case SearchStatus.COMPLETED:
            return ""
        case SearchStatus.FAILED:
            return f"The search failed after {done}{cause}. {SO_FAR}"
        case SearchStatus.CANCELLED:
            return f"The search was cancelled after {done}. {SO_FAR}"
        case SearchStatus.PAUSED:
            return f"The search is paused after {done}{cause}. {SO_FAR}"
        case _:
            return f"The search has not ended: {done} are recorded. {SO_FAR}"


def fault_counts(trials: Iterable[TrialRow]) -> dict[str, int]:
    """The trials that ended in a fault of ours, by its code; they say nothing of a candidate."""
    codes = Counter(
        trial.fault_code or "unknown" for trial in trials if trial.verdict == VerdictName.FAULTED
    )
    return dict(sorted(codes.items()))


def faults_sentence(faulted: dict[str, int]) -> str:
    """The faults in words; empty for none."""
    if not faulted:
        return ""
    count = sum(faulted.values())
    codes = ", ".join(f"{code} ({number})" for code, number in faulted.items())
    trials = "1 trial" if count == 1 else f"{count} trials"
    return f"{trials} ended in a fault, which is no evidence about the candidate: {codes}."
