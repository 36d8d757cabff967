"""The models of requests and responses: for REST, its OpenAPI, and the commands' JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from greenfast.db.figures import Figures
from greenfast.search.kernels.workloads import WorkloadValues
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import Reason, Stage, VerdictName

Item = TypeVar("Item")
ScalarValue = int | float | bool | str
LARGEST_PAGE = 500


class Output(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Input(BaseModel):
    """Types are strict ("3" is not 3), and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Page(Output, Generic[Item]):
    items: list[Item]
    next_cursor: str | None = Field(
        description="pass it as `cursor` to get the next page; null on the last page"
    )


class Problem(Output):
    """An error as application/problem+json (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = Field(description="stable, for programs")
    mend: str = Field(description="how to correct it; may be empty")


# ---- searches ----


class Budget(Input):
    trials: int | None = Field(None, description="the most trials to run")
    seconds: float | None = Field(None, description="no trial begins after this many seconds")
    no_gain: int | None = Field(
        None, description="no trial begins after this many without a faster correct candidate"
    )
    within_percent: float | None = Field(
        None,
        description="no trial begins when the best time is this close to the physical bound",
    )
    gpu_seconds: float | None = Field(
        None,
        description="no trial begins once the search has occupied GPUs for this many seconds, "
        "summed over the GPUs; on cuda targets",
    )


class WorkloadIn(Input):
    """A workload by values; the kernel's defaults complete it."""

    name: str = Field("", description="a label of small letters, digits and _")
    dims: dict[str, int]
    options: dict[str, str] = {}
    weight: float = Field(1.0, description="how much its time counts in means over workloads")

    def values(self) -> WorkloadValues:
        return WorkloadValues((*self.dims.items(), *self.options.items()), self.name)


class SearchSubmission(Input):
    """A search to run. Every field but `kernel` has a default."""

    kernel: str
    name: str | None = None
    workloads: list[str | WorkloadIn] | None = Field(
        None,
        min_length=1,
        description="by name, or by values: an object, or a text like B=8,H=16,S_q=577,D=64; "
        "default: the kernel's first",
    )
    templates: list[str] | None = Field(
        None, min_length=1, description="default: all that support the workloads"
    )
    target: str | None = None
    strategy: str | None = None
    budget: Budget = Budget()
    seed: int | None = None
    baseline: str | None = Field(
        None,
        description="template:preset, champion, or none; default: the scope's champion "
        "where times are measured, else the kernel's own baseline",
    )
    min_gain: float | None = Field(
        None, description="share of the baseline's time that counts as faster"
    )
    confirm: bool = Field(
        True, description="where times are measured, time the winner again in fresh processes"
    )
    mode: str | None = Field(
        None,
        description="of measured times: auto (by the workload's size), hot (data in L2), cold "
        "(data in memory)",
    )
    gates: dict[str, dict[str, Any]] = Field(default_factory=dict, description="limits by gate")
    reuse: bool = Field(
        True, description="repeat verdicts that a search of the same scope has recorded"
    )
    hypothesis: str = Field("", description="what you expect; the report puts it to the result")
    expected_gain: float | None = Field(
        None, description="the gain that you expect, as a share of the baseline's time"
    )
    cost: str = Field("", description="what trying it costs, in your own words")
    cold: bool = Field(
        False,
        description="begin without presets, earlier verdicts, champions and the best candidates "
        "of other scopes",
    )
    objectives: list[str] | None = Field(
        None,
        min_length=1,
        description="time, registers, shared_memory, error: those with a front; default: time. "
        "The best is the fastest correct candidate in any case",
    )
    population: int | None = Field(
        None, description="of a strategy that has one; default: the strategy's own"
    )

    def request(self) -> SearchRequest:
        given = {
            name: getattr(self, name)
            for name in (
                "kernel",
                "name",
                "target",
                "strategy",
                "seed",
                "baseline",
                "min_gain",
                "confirm",
                "mode",
                "gates",
                "reuse",
                "hypothesis",
                "expected_gain",
                "cost",
                "cold",
                "population",
            )
        }
        return SearchRequest(
            **given,
            trials=self.budget.trials,
            seconds=self.budget.seconds,
            no_gain=self.budget.no_gain,
            bound_percent=self.budget.within_percent,
            gpu_seconds=self.budget.gpu_seconds,
            workloads=None
            if self.workloads is None
            else tuple(
                workload.values() if isinstance(workload, WorkloadIn) else workload
                for workload in self.workloads
            ),
            weights=None
            if self.workloads is None
            else tuple(
                workload.weight if isinstance(workload, WorkloadIn) else 1.0
                for workload in self.workloads
            ),
            templates=tuple(self.templates) if self.templates is not None else None,
            objectives=tuple(self.objectives) if self.objectives is not None else None,
        )


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
        description="of that time, where it is measured or replayed: hot or cold"
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
    state: Literal["running", "done"]
    template: str
    parameters: dict[str, ScalarValue]
    origin: str = Field(
        description="sampled, mutated, crossed, repaired, preset, seeded or submitted"
    )
    preset: str = Field(description="empty: none")
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


# ---- confirmations and peers ----


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


class WorkloadResultOut(Output):
    """The winner on one workload. A ratio below 1 is faster."""

    workload: str
    weight: float
    time_median_us: float
    time_kind: str
    baseline_median_us: float | None
    ratio: float | None = Field(description="time / the baseline's time, where there is one")
    ratio_low: float | None = Field(description="null: the time was not measured")
    ratio_high: float | None
    confirmed: bool = Field(description="the ratio is that of fresh processes")
    peers: list[PeerOut]


class ExpectationOut(Output):
    """What a person expected at submit, beside what came out."""

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
        description="cold, or warm: what the strategy began with, such as presets and the best "
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
        description="why it is no advice any more (kernel, toolchain, driver); empty: it holds",
    )


# ---- queries ----


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=LARGEST_PAGE)
    cursor: str | None = Field(None, max_length=400)


class SearchesQuery(PageQuery):
    status: SearchStatus | None = None


class TrialsQuery(PageQuery):
    verdict: VerdictName | None = None
    stage: Stage | None = None
    reason: Reason | None = None
    template: str | None = Field(None, max_length=100)
    where: list[str] = Field(
        [], max_length=20, description="parameter values, such as tile_m=64; may be repeated"
    )
    text: str | None = Field(
        None, max_length=200, description="words in the sentence, reason, template or preset"
    )
    sort: str = Field("number", max_length=40)
    descending: bool = False


class NegativesQuery(PageQuery):
    kernel: str | None = Field(None, max_length=100)
    search_id: str | None = Field(None, max_length=40)
    reason: Reason | None = None
    feature: str | None = Field(
        None, max_length=100, description="a parameter that differs from the baseline's"
    )
    where: list[str] = Field(
        [], max_length=20, description="parameter values, such as tile_m=64; may be repeated"
    )
    device: str | None = Field(None, max_length=100)
    dtype: str | None = Field(None, max_length=40)
    workload: str | None = Field(None, max_length=200)
    text: str | None = Field(None, max_length=200, description="words in the sentence or reason")


class ChampionsQuery(PageQuery):
    kernel: str | None = Field(None, max_length=100)
    replaced: bool = Field(False, description="also former champions")
