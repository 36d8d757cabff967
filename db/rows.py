"""Values that the store returns: frozen, with times as UTC ISO text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from greenfast.db.changes import Change
from greenfast.db.figures import Figures
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.scope import Scope
from greenfast.search.space.candidate import Candidate
from greenfast.search.verdict import VerdictName

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a list; `next_cursor` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class SearchRow:
    """One search and its progress."""

    id: str
    name: str
    kernel: str
    status: str  # of search/status.py
    target: str
    strategy: str
    workloads: tuple[str, ...]
    templates: tuple[str, ...]
    baseline: str
    seed: int
    min_gain: float
    trials_budget: int | None
    seconds_budget: float | None
    trials_done: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    spent_s: float
    why: str  # `cause`, then `closing`, joined for people
    cause: str  # why it ended or paused
    closing: str  # findings of the confirmation
    wanted: str | None  # "pause" | "cancel" until the worker reads it
    worker: str | None
    best_time_us: float | None
    time_kind: str | None
    time_mode: str | None  # of that time
    mode: str  # as requested
    queue_position: int | None = None  # of a queued search, from 1
    weights: tuple[float, ...] = ()  # of the workloads; empty: all the same
    gpu_seconds_budget: float | None = None
    gpu_spent_s: float | None = None  # None: not begun, or stored before it was counted


@dataclass(frozen=True)
class TuningRow:
    """A tuning: one search for each group of compile-time values."""

    id: str
    name: str
    kernel: str
    target: str
    status: str  # of its searches: the one that keeps it from being complete
    within_percent: float
    workloads: tuple[str, ...]
    weights: tuple[float, ...]
    created_at: str
    searches: tuple[SearchRow, ...]


@dataclass(frozen=True)
class QueueState:
    """How many searches are queued, and how many workers could take them."""

    queued: int
    workers_alive: int


@dataclass(frozen=True)
class Claim:
    """The right to work on a search until another worker claims it. Each claim raises `fence`."""

    search_id: str
    worker: str
    fence: int


@dataclass(frozen=True)
class Silence:
    """How long the worker of a running search has been silent, and when its lease ends."""

    worker: str
    seconds: float
    lease_left_s: float


@dataclass(frozen=True, kw_only=True)
class TrialRow(Figures):
    """One trial with its figures."""

    search_id: str
    number: int
    state: str  # running | interrupted (no worker evaluates it now) | done
    template: str
    parameters: dict[str, Any]
    origin: str
    preset: str
    parents: tuple[str, ...]  # digests of candidates
    wanted: dict[str, Any]  # of a repaired candidate: the sampler's values that were replaced
    candidate_digest: str
    source_digest: str | None
    attempts: int
    is_baseline: bool
    created_at: str
    recorded_at: str | None
    stage_seconds: dict[str, float] | None = None  # in order; None: not recorded


@dataclass(frozen=True, kw_only=True)
class TrialDetail(TrialRow):
    """A trial with all its evidence."""

    gates: dict[str, dict[str, Any]]  # by name: outcome, sentence, reason, the evidence's fields
    log: str  # hostile text: it may quote the candidate
    sampler: dict[str, Any]
    changed: tuple[Change, ...]  # against the baseline
    environment: dict[str, str]  # empty: not recorded


@dataclass(frozen=True)
class Counts:
    """Recorded trials by their results. Rows of `funnel` are (stage, reached, passed)."""

    total: int
    running: int  # begun and not recorded
    by_verdict: dict[str, int]
    by_stage: dict[str, int]  # rejections
    by_reason: dict[str, int]
    funnel: tuple[tuple[str, int, int], ...]
    unavailable: dict[str, int]  # by gate: trials that passed on without its judgement


@dataclass(frozen=True)
class Point:
    """A correct trial, and the best time so far when it was recorded."""

    number: int
    time_median_us: float
    best_us: float


@dataclass(frozen=True)
class OutcomeRow:
    """A correct trial and its figures, in the order of the objectives that were asked for."""

    number: int
    template: str
    verdict: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class NegativeRow:
    """A valid negative: a change against the baseline, its scope and the result."""

    search_id: str
    number: int
    kernel: str
    workloads: tuple[str, ...]
    target: str
    device: str
    toolchain: str  # empty: not recorded
    driver: str  # of the GPU; empty: no GPU, or not recorded
    template: str
    parameters: dict[str, Any]
    baseline: str
    changed: str
    stage: str
    reason: str
    sentence: str
    finding: str  # the sentence without the changes
    ratio_to_baseline: float | None
    candidate_digest: str
    source_digest: str | None
    recorded_at: str


@dataclass(frozen=True)
class ConfirmationRow:
    """A search's winner timed again in fresh processes, with date and environment."""

    search_id: str
    confirmation: Confirmation
    recorded_at: str
    environment_digest: str | None
    environment: dict[str, str]  # empty: not recorded


@dataclass(frozen=True)
class PeerRow:
    """Somebody else's kernel beside a search's winner."""

    search_id: str
    peer: Peer
    recorded_at: str
    environment_digest: str | None


@dataclass(frozen=True)
class ChampionRow:
    """A promoted trial with the confirmation that it rests on."""

    scope: Scope
    scope_digest: str
    trial: TrialRow
    candidate: Candidate
    confirmation: ConfirmationRow
    peers: tuple[PeerRow, ...]  # of its search
    promoted_at: str
    replaced_at: str | None  # None: it is the champion
    checks: tuple[tuple[str, str], ...] | None = None  # (name, digest) of each that it passed
    failed_recheck: ConfirmationRow | None = None  # the newest confirmation, where it failed


@dataclass(frozen=True)
class DeviceLease:
    """The right to use a GPU alone until another worker takes it. Each lease raises `fence`."""

    uuid: str
    worker: str
    fence: int


@dataclass(frozen=True)
class SourceRow:
    digest: str
    text: str
    kernel: str
    template: str
    created_at: str


def beats(best: TrialRow | None, baseline: TrialRow | None, band: float, min_gain: float) -> bool:
    """Whether `best` was shown to be faster than the baseline by the share `min_gain`.

    A measured time counts only if the performance gate found FASTER, which `accepted` implies. Any
    other time only orders candidates, so it must also be faster by more than `band`, the factor
    within which times cannot be distinguished.
    """
    if best is None or baseline is None or best.is_baseline or best.time_kind != baseline.time_kind:
        return False
    if best.time_median_us is None or not baseline.time_median_us:
        return False
    ratio = (
        best.ratio_to_baseline
        if best.ratio_to_baseline is not None
        else best.time_median_us / baseline.time_median_us
    )
    if best.time_kind == "measured":
        return best.verdict == VerdictName.ACCEPTED and ratio <= 1 - min_gain
    return ratio * band < 1 and ratio <= 1 - min_gain
