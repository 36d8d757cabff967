"""The models of searches, trials, champions and negatives, for REST and the commands' JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from pydantic import Field, create_model

from greenfast.app.views.base_schemas import Output, Page, ScalarValue
from greenfast.app.views.confirmation_schemas import ConfirmationOut, PeerOut
from greenfast.db.figures import Figures
from greenfast.search.status import SearchStatus


class SearchOut(Output):
    id: str
    name: str
    kernel: str
    status: SearchStatus
    why: str = Field(description="`cause`, then `closing`, joined by '; '")
    cause: str = Field(description="why it ended or paused")
    closing: str = Field(
        description="the findings of the confirmation, and wrong outputs that the kernel's test "
        "accepts; empty: neither"
    )
    wanted: str | None = Field(description="pause or cancel, until the worker has obeyed")
    target: str
    strategy: str
    workloads: list[str]
    templates: list[str]
    baseline: str
    seed: int
    min_gain: float
    trials_budget: int | None
    seconds_budget: float | None
    trials_done: int
    spent_s: float
    best_time_us: float | None
    time_kind: str | None
    time_mode: str | None = Field(
        description="cache mode of a measured or replayed time: hot or cold"
    )
    mode: str = Field(description="of measured times, as requested")
    worker: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    queue_position: int | None = Field(
        None, description="of a queued search: 1 is the next; else null"
    )
    weights: list[float] = Field([], description="of the workloads; empty: all the same")
    gpu_seconds_budget: float | None = None
    gpu_spent_s: float | None = Field(
        None,
        description="the trials have occupied GPUs for so long, summed over the GPUs; null: not "
        "begun, or stored before this was counted",
    )


if TYPE_CHECKING:
    FiguresOut = Figures
else:  # a figure is defined in db/figures.py alone
    FiguresOut = create_model(
        "FiguresOut",
        __base__=Output,
        **{
            figure.name: (
                get_type_hints(Figures)[figure.name],
                Field(description=figure.metadata["doc"] or None),
            )
            for figure in fields(Figures)
        },
    )


class TrialOut(FiguresOut, Output):
    search_id: str
    number: int
    state: Literal["running", "interrupted", "done"] = Field(
        description="interrupted: begun, but the search does not run now. The trial is repeated if "
        "the search continues"
    )
    template: str
    parameters: dict[str, ScalarValue]
    origin: str = Field(
        description="sampled, mutated, crossed, repaired, preset, seeded or submitted"
    )
    preset: str = Field(description="a preset, or empty")
    parents: list[str] = Field(description="digests of the candidates that it was derived from")
    wanted: dict[str, ScalarValue] = Field(
        description="of a repaired candidate: the sampler's values that were replaced because "
        "they were invalid or already tried"
    )
    candidate_digest: str
    source_digest: str | None
    attempts: int
    is_baseline: bool
    created_at: str
    recorded_at: str | None
    stage_seconds: dict[str, float] | None = Field(
        description="wall seconds of render, compile and each gate; on an emulator a gate includes "
        "the C++ compiler. `waiting`: until the baseline's times were known and the safety check "
        "could start. They add up to `duration_s`. null: recorded by an earlier version, or the "
        "verdict was taken over"
    )


class ChangeOut(Output):
    name: str
    before: ScalarValue | None
    after: ScalarValue | None


class TrialDetailOut(TrialOut):
    gates: dict[str, dict[str, Any]] = Field(
        description="each gate's outcome, sentence and evidence, by name; a number that is not "
        'finite is "NaN", "Infinity" or "-Infinity"'
    )
    log: str
    changed: list[ChangeOut] = Field(description="against the baseline")
    environment: dict[str, str] = Field(
        description="device, toolchain and versions that the result depends on"
    )


class ProbedTrialOut(TrialDetailOut):
    probe: str = Field(
        description="the command that shows the stage where the outputs go wrong; empty for "
        "correct outputs and for templates without probes"
    )


class BestOut(TrialOut):
    beats_baseline: bool
    not_told_apart: int = Field(
        description="other correct trials within `time_band` of this time, which is the lowest "
        "but not shown to be faster than theirs; 0 for measured times"
    )
    ties: list[int] = Field(
        description="other trials whose measured times do not tell them apart from this one, the "
        "fastest first"
    )


class ProgressOut(Output):
    trials_done: int
    trials_budget: int | None
    seconds_spent: float
    seconds_budget: float | None
    share: float = Field(description="0 to 1, of the budget that runs out first")
    rate_per_minute: float | None = Field(
        description="trials; null once `seconds_spent` includes a confirmation"
    )
    seconds_left: float | None


class CountsOut(Output):
    total: int
    running: int
    by_verdict: dict[str, int]
    by_stage: dict[str, int]
    by_reason: dict[str, int]
    unavailable: dict[str, int] = Field(
        description="by gate: trials that passed on although the gate could not judge them"
    )


class SearchPage(Page[SearchOut]):
    queued: int = Field(description="searches that wait for a worker")
    workers_alive: int = Field(
        description="workers seen in the last 15 s that take queued searches"
    )


class FunnelStep(Output):
    stage: str
    reached: int
    passed: int


class WorkloadResultOut(Output):
    """The winner on one workload. A ratio below 1 is faster."""

    workload: str
    weight: float
    time_median_us: float
    time_kind: str
    baseline_median_us: float | None
    ratio: float | None = Field(description="time / the baseline's time, if there is a baseline")
    ratio_low: float | None = Field(description="null: the time was not measured")
    ratio_high: float | None
    confirmed: bool = Field(description="the ratio was measured in fresh processes")
    peers: list[PeerOut]


class ExpectationOut(Output):
    """The expectation at submission, beside the result."""

    hypothesis: str
    expected_gain: float | None = Field(description="a share of the baseline's time")
    gain: float | None = Field(description="1 - the best's ratio; null: no comparison")
    cost: str
    sentence: str


class SearchDetailOut(SearchOut):
    queued: int = Field(description="searches that wait for a worker, this one included")
    workers_alive: int = Field(
        description="workers seen in the last 15 s that take queued searches"
    )
    progress: ProgressOut
    counts: CountsOut
    funnel: list[FunnelStep]
    best: BestOut | None
    expectation: ExpectationOut | None = Field(None, description="null: nothing was expected")
    baseline_trial: TrialOut | None
    confirmation: ConfirmationOut | None = Field(description="null: the winner was not timed again")
    peers: list[PeerOut]
    objectives: list[str] = Field(description="of the strategy; the best is the fastest correct")
    start: str = Field(
        description="cold, or warm: the strategy's start, such as presets and the best "
        "candidates of other scopes"
    )
    by_workload: list[WorkloadResultOut] = Field(
        description="the winner on each workload; empty for a single one"
    )


class ScopeOut(Output):
    """The scope in which a champion is the best."""

    kernel: str
    kernel_digest: str
    workloads: list[str]
    values: dict[str, ScalarValue] = Field(description="compile-time dims and options")
    device: str
    toolchain: str
    mode: str


class ChampionOut(Output):
    """The confirmed best of a scope."""

    scope: ScopeOut
    scope_digest: str
    trial: TrialOut
    confirmation: ConfirmationOut
    peers: list[PeerOut]
    best_peers: list[PeerOut] = Field(description="the fastest of each workload")
    promoted_at: str
    replaced_at: str | None = Field(description="null: it is the champion")
    recheck: str = Field(
        description="why it should be confirmed again, or that its last recheck failed; empty: "
        "it has passed all of today's checks"
    )
    recheck_failed: bool = Field(description="whether its last recheck failed; it stays champion")


class NegativeOut(Output):
    """A valid negative: an idea that was tried and did not help, with its scope."""

    search_id: str
    number: int
    kernel: str
    workloads: list[str]
    target: str
    device: str
    toolchain: str
    driver: str = Field("", description="of the GPU; empty: no GPU, or not recorded")
    template: str
    parameters: dict[str, ScalarValue]
    baseline: str
    changed: str = Field(description="the differences from the baseline")
    stage: str
    reason: str
    sentence: str
    finding: str = Field(description="the sentence without the changes")
    ratio_to_baseline: float | None
    candidate_digest: str
    source_digest: str | None
    recorded_at: str
    expired: str = Field(
        "",
        description="why it is no longer advice (kernel, toolchain, driver), or empty",
    )
