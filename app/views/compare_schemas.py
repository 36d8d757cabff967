"""The models of a comparison of two trials, and of the importances of parameters."""

from __future__ import annotations

from pydantic import Field

from greenfast.app.views.base_schemas import Input, Output, ScalarValue
from greenfast.app.views.schemas import ChangeOut


class ExtensionIn(Input):
    """More trials for a search."""

    trials: int = Field(description="how many more")


class SideOut(Output):
    """One of the two trials."""

    search_id: str
    number: int
    search: str = Field(description="the search's name")
    target: str
    workloads: list[str]
    template: str
    preset: str
    is_baseline: bool
    state: str
    verdict: str | None
    stage: str | None
    reason: str | None
    sentence: str
    time_median_us: float | None
    time_kind: str | None
    time_mode: str | None
    ratio_to_baseline: float | None
    source_digest: str | None


class FigureOut(Output):
    """A figure of both trials; null: not known."""

    name: str
    workload: str = Field("", description="of a counter: the timed workload")
    unit: str = ""
    a: ScalarValue | None
    b: ScalarValue | None


class WorkloadTimesOut(Output):
    workload: str
    a_us: float | None
    b_us: float | None
    ratio: float | None = Field(description="a / b; below 1, a is faster")


class TimeVerdictOut(Output):
    """How the two times compare, and how far that goes."""

    ratio: float | None = Field(description="a / b; below 1, a is faster")
    ratio_low: float | None
    ratio_high: float | None
    decision: str = Field(
        description="faster, slower, same, ambiguous, too_noisy, not_told_apart, not_comparable"
    )
    sentence: str


class SourceDiffOut(Output):
    same: bool
    added: int
    removed: int
    text: str = Field(description="a unified diff; empty if a source is missing")
    is_cut: bool = Field(description="the diff is longer than the text shown")


class CompareOut(Output):
    a: SideOut
    b: SideOut
    time: TimeVerdictOut
    parameters: list[ChangeOut] = Field(description="those that differ: before in a, after in b")
    same_parameters: int
    figures: list[FigureOut]
    workloads: list[WorkloadTimesOut]
    counters: list[FigureOut] = Field(description="modelled limits and counted instructions")
    searches: list[FigureOut] = Field(description="of the two searches; empty for one search")
    source: SourceDiffOut


class ValueOut(Output):
    """The trials of a search in which a parameter had one value."""

    value: ScalarValue
    trials: int
    correct: int
    best_us: float | None
    median_us: float | None


class ImportanceOut(Output):
    name: str
    share: float | None = Field(
        description="of the variance of log time that the parameters explain together; null: it "
        "had only one value among the timed trials"
    )
    values: list[ValueOut]


class TemplateImportancesOut(Output):
    template: str
    trials: int
    timed: int = Field(description="correct trials with a time, from which the shares follow")
    explained: float | None = Field(
        description="share of the variance that the model predicts for trials that it has not "
        "seen; null: too few trials"
    )
    sentence: str
    parameters: list[ImportanceOut]


class ImportancesOut(Output):
    search_id: str
    time_kind: str | None
    method: str
    templates: list[TemplateImportancesOut]
