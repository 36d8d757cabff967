"""What the store gives out: frozen values, times as UTC ISO text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.scope import Scope
from greenfast.search.space.candidate import Candidate

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a list; `next_cursor` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class SearchRow:
    """One search and where it stands."""

    id: str
    name: str
    kernel: str
    status: str  # queued | running | paused | completed | cancelled | failed
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
    why: str
    wanted: str | None  # "pause" | "cancel" until the worker has seen it
    worker: str | None
    best_time_us: float | None
    time_kind: str | None
    time_mode: str | None  # of that time
    mode: str  # as it was asked for
    queue_position: int | None = None  # of a queued search, from 1


@dataclass(frozen=True)
class QueueState:
    """What waits, and who could take it."""

    queued: int
    workers_alive: int


@dataclass(frozen=True)
class Claim:
    """The right to work on a search, as long as nobody claimed it later: `fence` grows with each claim."""

    search_id: str
    worker: str
    fence: int


@dataclass(frozen=True)
class Silence:
    """How long the worker of a running search has given no sign of life, and when its lease ends."""

    worker: str
    seconds: float
    lease_left_s: float


@dataclass(frozen=True)
class TrialRow:
    """One trial with the figures that lists show and sort by."""

    search_id: str
    number: int
    state: str  # running: begun and not recorded | done
    template: str
    parameters: dict[str, Any]
    origin: str
    preset: str
    parents: tuple[str, ...]  # digests of candidates
    wanted: dict[str, Any]  # of a repaired candidate: the sampler's values that were replaced
    candidate_digest: str
    source_digest: str | None
    verdict: str | None
    stage: str | None  # of a rejection or fault
    reason: str | None
    fault_code: str | None
    sentence: str
    time_median_us: float | None  # geometric mean over the workloads
    time_kind: str | None
    time_mode: (
        str | None
    )  # of a measured time: "hot", "cold", or "hot and cold" for several workloads
    time_band: float | None  # a factor: times closer than this are not told apart
    ratio_to_baseline: float | None
    registers: int | None
    spill_bytes: int | None
    smem_bytes: int | None
    max_abs_error: float | None
    duration_s: float | None
    attempts: int
    is_baseline: bool
    created_at: str
    recorded_at: str | None


@dataclass(frozen=True)
class TrialDetail(TrialRow):
    """A trial with all its evidence."""

    gates: dict[str, dict[str, Any]]  # by name: outcome, sentence, reason, the evidence's fields
    log: str  # hostile text: it may quote the candidate
    sampler: dict[str, Any]
    changed: tuple[Change, ...]  # against the baseline
    environment: dict[str, str]  # empty when the worker did not say


@dataclass(frozen=True)
class Change:
    """One value that differs from the baseline's."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True)
class Counts:
    """How many recorded trials came to what. `funnel` rows are (stage, reached, passed)."""

    total: int
    running: int  # begun and not recorded
    by_verdict: dict[str, int]
    by_stage: dict[str, int]  # rejections
    by_reason: dict[str, int]
    funnel: tuple[tuple[str, int, int], ...]
    unavailable: dict[
        str, int
    ]  # by gate: trials that went on although it could not judge them here


@dataclass(frozen=True)
class Point:
    """A right trial, and the best time so far when it was recorded."""

    number: int
    time_median_us: float
    best_us: float


@dataclass(frozen=True)
class NegativeRow:
    """A valid negative: what was tried against what, where that holds, and what came of it."""

    search_id: str
    number: int
    kernel: str
    workloads: tuple[str, ...]
    target: str
    device: str
    toolchain: str  # empty when the worker did not say
    template: str
    parameters: dict[str, Any]
    baseline: str
    changed: str
    stage: str
    reason: str
    sentence: str
    ratio_to_baseline: float | None
    candidate_digest: str
    source_digest: str | None
    recorded_at: str


@dataclass(frozen=True)
class ConfirmationRow:
    """What fresh processes said of a search's winner, when, and on what."""

    search_id: str
    confirmation: Confirmation
    recorded_at: str
    environment_digest: str | None
    environment: dict[str, str]  # empty when the worker did not say


@dataclass(frozen=True)
class PeerRow:
    """Somebody else's kernel beside a search's winner."""

    search_id: str
    peer: Peer
    recorded_at: str
    environment_digest: str | None


@dataclass(frozen=True)
class ChampionRow:
    """A promoted trial, with what it rests on."""

    scope: Scope
    scope_digest: str
    trial: TrialRow
    candidate: Candidate
    confirmation: ConfirmationRow
    peers: tuple[PeerRow, ...]  # of its search
    promoted_at: str
    replaced_at: str | None  # None: it is the champion
    checks: tuple[tuple[str, str], ...] | None = (
        None  # name and digest of each that it passed; None: not recorded
    )


@dataclass(frozen=True)
class DeviceLease:
    """The right to use a GPU alone, as long as nobody took it later: `fence` grows with each lease."""

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

    A measured time counts only where the performance gate said FASTER, which is what `accepted` means. Any
    other time orders candidates, so it must also be faster by more than `band`, the factor within which times
    are not told apart.
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
        return best.verdict == "accepted" and ratio <= 1 - min_gain
    return ratio * band < 1 and ratio <= 1 - min_gain


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
