"""The storage of a search as its run sees it: it stores trials, resumes, and ends the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.spending import Spent
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.status import SearchStatus
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import CheckEvidence, GateResult, Trial, Verdict


class Control(StrEnum):
    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class Ended(StrEnum):
    """The statuses in which a run leaves its search."""

    COMPLETED = SearchStatus.COMPLETED
    PAUSED = SearchStatus.PAUSED
    CANCELLED = SearchStatus.CANCELLED
    FAILED = SearchStatus.FAILED


@dataclass(frozen=True)
class Pending:
    """A trial that was begun and never recorded: its worker died or was stopped."""

    number: int
    candidate: Candidate
    sampler: dict[str, Any]
    attempts: int


@dataclass(frozen=True)
class History:
    """The stored part of a search that is resumed."""

    trials: tuple[Trial, ...] = ()
    pending: tuple[Pending, ...] = ()
    spent_s: float = 0.0
    gpu_spent_s: float = 0.0
    checks_of: Callable[[int], Sequence[CheckEvidence]] = field(
        default=lambda number: (), compare=False
    )  # of a trial
    older: frozenset[int] = frozenset()  # numbers of trials that passed other checks than today's
    # The verdict of a trial that is recorded by then, with its checks; None: nothing is stored.
    verdict_of: Callable[[int], Verdict | None] | None = field(default=None, compare=False)


Begun = tuple[int, Proposal]  # with the trial's number
Record = tuple[Trial, RenderedSource | None]  # the source: None where rendering failed


class Sink(Protocol):
    """The destination of trials. Each call is durable when it returns, or has changed nothing.

    All raise Fault when the lease was lost. Making a change durable can take 10 ms however small
    it is, so that trials that are ready at the same time are begun, or recorded, in one call.
    """

    def begin(self, begun: Sequence[Begun]) -> None: ...
    def record(self, records: Sequence[Record]) -> None: ...
    def settle(self, number: int, result: GateResult) -> None:
        """Store a later result of a gate: one that was skipped, or one that failed on new
        inputs."""

    def confirm(self, confirmation: Confirmation) -> None: ...
    def beside(self, peer: Peer) -> None: ...
    def control(self, spent: Spent) -> Control:
        """Renew the lease and read the flags."""


@dataclass(frozen=True)
class RunResult:
    """How a run left its search.

    `closing`: the findings of the confirmation, if there was one, and what the kernel's test
    accepts and should not.
    """

    ended: Ended
    why: str
    closing: str = ""
    spent: Spent | None = None  # None: nothing was run
