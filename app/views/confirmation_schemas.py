"""The models of times taken again: confirmations, and peers timed beside a winner."""

from __future__ import annotations

from pydantic import Field

from greenfast.app.views.base_schemas import Output


class TimesOut(Output):
    """One workload in one fresh process, which timed the two programs in turns."""

    workload: str
    time_median_us: float
    other_median_us: float | None
    samples: list[float] | None = Field(
        description="us, in order; only in the confirmation's own document"
    )
    other_samples: list[float] | None


class ProcessOut(Output):
    seed: int
    ratio: float | None = Field(description="this process alone, with its interval")
    ratio_low: float | None
    ratio_high: float | None
    timings: list[TimesOut]


class ComparisonOut(Output):
    """Two programs compared over fresh processes. A ratio below 1 is faster."""

    against: str = Field(description="baseline, runner-up, or a peer's name")
    other_trial: int | None
    decision: str = Field(
        description="faster, slower, same, ambiguous or too_noisy; the last three are ties"
    )
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    processes: list[ProcessOut]


class ConfirmationOut(Output):
    """The winner of a search, timed again in fresh processes on new seeds."""

    trial: int
    confirmed: bool
    sentence: str
    comparisons: list[ComparisonOut]
    recorded_at: str
    environment: dict[str, str]


class PeerOut(Output):
    """A kernel of another project, compared with the winner on one workload."""

    name: str
    version: str
    workload: str
    outcome: str = Field(description="timed, wrong, not_comparable, unavailable")
    sentence: str
    why: str = Field(description="it was not timed; empty for a timed peer")
    time_median_us: float | None
    comparison: ComparisonOut | None = Field(description="the winner against this peer")
    recorded_at: str


class TimedAgainOut(Output):
    """A search's confirmation and peers, with every sample."""

    confirmation: ConfirmationOut | None
    peers: list[PeerOut]
