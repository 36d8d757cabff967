"""Verdicts that spare a search an evaluation: of the same candidate in the same scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.verdict import Accepted, Green, Reason, Rejected, Stage, Verdict

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
class Recalled:
    """A verdict that another search of the same scope recorded."""

    search_id: str
    number: int
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.search_id}/{self.number}"


class Memory(Protocol):
    """Verdicts of earlier searches, for one search."""

    def recall(
        self, candidate: Candidate, source: RenderedSource | None, *, is_baseline: bool
    ) -> Recalled | None:
        """The verdict of the same parameters, or of the same source launched alike, if known."""

    def used(self, number: int, recalled: Recalled) -> None:
        """Note that trial `number` repeats the verdict. Durable when it returns."""

    def repeated(self, number: int, first: int) -> None:
        """Note that trial `number` repeats outputs and times of trial `first` of this search."""

    def discourages(self, candidate: Candidate) -> bool:
        """Whether a candidate lies next to known negatives, so that others are tried first."""


class NoMemory:
    """Every candidate is evaluated."""

    def recall(
        self, candidate: Candidate, source: RenderedSource | None, *, is_baseline: bool
    ) -> Recalled | None:
        return None

    def used(self, number: int, recalled: Recalled) -> None:
        raise AssertionError("nothing was recalled")

    def repeated(self, number: int, first: int) -> None:
        """Nothing is stored."""

    def discourages(self, candidate: Candidate) -> bool:
        return False


def may_repeat(verdict: Verdict, *, measures: bool) -> bool:
    """Whether a verdict holds in another search of the same scope, against the same baseline.

    A measured time belongs to its process, so correct candidates are measured again on a GPU, and
    only what is wrong, or was clearly slower than the same baseline, is not.
    """
    match verdict:
        case Rejected(reason=reason):
            return reason not in NEVER_REPEATED and (not measures or reason is not Reason.SAME)
        case Accepted() | Green():
            return not measures
    return False


def needs_same_baseline(verdict: Verdict) -> bool:
    """Whether the verdict holds a comparison with the baseline."""
    return not isinstance(verdict, Rejected) or verdict.stage in (Stage.PERFORMANCE, Stage.SAFETY)
