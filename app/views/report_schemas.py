"""The report of a search or a tuning, as a document."""

from __future__ import annotations

from pydantic import Field

from greenfast.app.views.ablation_schemas import AblationOut
from greenfast.app.views.base_schemas import Output, ScalarValue
from greenfast.app.views.compare_schemas import TemplateImportancesOut
from greenfast.app.views.confirmation_schemas import ConfirmationOut, PeerOut
from greenfast.app.views.negatives import ThemeOut
from greenfast.app.views.schemas import FunnelStep


class QuestionOut(Output):
    """The question of a search, and what a person expected."""

    sentence: str
    hypothesis: str
    expected_gain: float | None = Field(description="a share of the baseline's time")
    gain: float | None = Field(description="1 - ratio of the best; null: no comparison")
    cost: str
    answer: str = Field(description="the result, with no claim beyond its kind of time")


class StageOut(Output):
    """A row of the stage table: a trial on the way to the winner, or a preset beside it."""

    number: int
    role: str = Field(description="baseline, preset, step, winner or near miss")
    design: str
    verdict: str
    status: str = Field(description="the verdict, or the reason of a rejection")
    time_us: float | None
    ratio: float | None = Field(description="time / the baseline's")
    registers: int | None
    spill_bytes: int | None
    smem_bytes: int | None
    finding: str = Field(description="of a rejected trial")


class CitedTrialOut(Output):
    """A trial that the report refers to."""

    number: int
    verdict: str
    template: str
    parameters: dict[str, ScalarValue]
    time_us: float | None
    source_digest: str | None
    repeats: str = Field(description="SEARCH/NUMBER of the trial that it repeats; empty: it ran")


class PointOut(Output):
    number: int
    time_us: float
    best_us: float


class SearchReportOut(Output):
    """One search as a lab note. Every number is a trial's, or is counted from trials."""

    id: str
    name: str
    status: str
    kernel: str
    state: str = Field(description="how far the search has come; empty for a completed one")
    question: QuestionOut
    setup: list[tuple[str, str]]
    trials: int
    reused: int = Field(description="trials that did not run, and repeat an earlier trial")
    time_kind: str
    band: float
    funnel: list[FunnelStep]
    by_reason: dict[str, int]
    faulted: dict[str, int] = Field(description="trials by the code of the fault that ended them")
    stages: list[StageOut]
    winner: int | None
    winner_sentence: str
    confirmation: ConfirmationOut | None
    peers: list[PeerOut]
    ablation: AblationOut | None
    themes: list[ThemeOut]
    importances: list[TemplateImportancesOut]
    next_steps: list[str]
    points: list[PointOut] = Field(description="the correct trials in order, with the best so far")
    cited: list[CitedTrialOut]


class ReportOut(Output):
    """A report of one search, or of all searches of a tuning."""

    title: str
    searches: list[SearchReportOut]
    version: str
    created_at: str
