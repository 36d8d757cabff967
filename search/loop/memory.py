"""Verdicts that spare a search an evaluation: of the same candidate in the same scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from greenfast.search.loop.work import Work
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.verdict import (
    Accepted,
    Faulted,
    Green,
    Reason,
    Rejected,
    Stage,
    TimeKind,
    Unavailable,
    Verdict,
    gate_result,
    performance_of,
)

# Reasons that may be the machine's, the load's or a limit's: such a verdict is never repeated.
NEVER_REPEATED = frozenset(
    {
        Reason.TIMEOUT,
        Reason.COMPILE_TIMEOUT,
        Reason.COMPILE_MEMORY,
        Reason.COMPILE_CRASH,
        Reason.OUT_OF_MEMORY,
        Reason.TOO_NOISY,
        Reason.AMBIGUOUS,
        Reason.IMPLAUSIBLE,
        Reason.LAUNCH_ERROR,
    }
)


@dataclass(frozen=True)
class Repeats:
    """The name of a trial that another one repeats."""

    number: int
    search_id: str  # another search; empty: this one


@dataclass(frozen=True)
class Recalled:
    """A verdict that another search of the same scope recorded."""

    search_id: str
    number: int
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.search_id}/{self.number}"

    @property
    def lacks_safety(self) -> bool:
        """Whether a measured candidate's safety could not be judged, which may be possible now."""
        return is_measured(self.verdict) and isinstance(
            gate_result(self.verdict, Stage.SAFETY), Unavailable
        )


class Memory(Protocol):
    """Verdicts of earlier searches, for one search."""

    def recall(
        self, candidate: Candidate, source: RenderedSource | None, *, is_baseline: bool
    ) -> Recalled | None:
        """The verdict of the same parameters, or of the same source launched alike, if known."""

    def recall_work(self, work: Work) -> Recalled | None:
        """The verdict of the same machine code, launched alike, if known. For several threads."""

    def used(self, number: int, repeats: Repeats) -> None:
        """Note that trial `number` repeats another one. Durable when it returns."""

    def timed_elsewhere(self) -> set[int]:
        """Stored trials of this search whose times other searches have measured."""

    def discourages(self, candidate: Candidate) -> bool:
        """Whether a candidate lies next to known negatives, so that others are tried first."""


class NoMemory:
    """Every candidate is evaluated."""

    def recall(
        self, candidate: Candidate, source: RenderedSource | None, *, is_baseline: bool
    ) -> Recalled | None:
        return None

    def recall_work(self, work: Work) -> Recalled | None:
        return None

    def used(self, number: int, repeats: Repeats) -> None:
        """Nothing is stored."""

    def timed_elsewhere(self) -> set[int]:
        return set()

    def discourages(self, candidate: Candidate) -> bool:
        return False


def may_repeat(verdict: Verdict, *, measures: bool, is_baseline: bool = False) -> bool:
    """Whether a verdict holds in another search of the same scope, against the same baseline.

    The absolute time of a kernel changes from process to process, by about 0.5 % on an H200. Its
    ratio to the baseline, which was timed in turns with it, is what a search decides on, and that
    is repeated. A candidate that was lucky then looks as fast again, as it did in its own search:
    the winner is timed in fresh processes before anything is claimed of it. The baseline is
    measured in each search, since its times are what the others are compared with.
    """
    match verdict:
        case Rejected(reason=Reason.SAME) if measures:
            return _has_samples_of_both(verdict)  # not where the baseline's own time was taken
        case Rejected(reason=reason):
            return reason not in NEVER_REPEATED
        case Faulted():
            return False
    return not measures or (is_measured(verdict) and not is_baseline)


def is_measured(verdict: Verdict) -> bool:
    """Whether a correct candidate was timed in turns with a baseline."""
    evidence = performance_of(verdict)
    return (
        isinstance(verdict, (Accepted, Green))
        and evidence is not None
        and evidence.ratio_to_baseline is not None
        and all(timing.time_kind is TimeKind.MEASURED for timing in evidence.timings)
    )


def _has_samples_of_both(verdict: Verdict) -> bool:
    evidence = performance_of(verdict)
    return evidence is not None and all(timing.baseline_samples for timing in evidence.timings)


def needs_same_baseline(verdict: Verdict) -> bool:
    """Whether the verdict holds a comparison with the baseline."""
    return not isinstance(verdict, Rejected) or verdict.stage in (Stage.PERFORMANCE, Stage.SAFETY)
