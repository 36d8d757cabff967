"""The models of an ablation: for REST, the pages and the commands' JSON."""

from __future__ import annotations

from pydantic import Field

from greenfast.app.views.base_schemas import Output, ScalarValue


class CounterOut(Output):
    name: str
    before: float = Field(description="the winner's")
    after: float = Field(description="with the arm's value")


class MeasurementOut(Output):
    """One point against the winner."""

    parameters: dict[str, ScalarValue]
    source_digest: str | None
    verdict: str = Field(description="green, accepted, rejected, or slower: correct, not faster")
    stage: str
    reason: str
    sentence: str
    ratio: float | None = Field(description="its time / the winner's; above 1 it is slower")
    time_us: float | None
    winner_us: float | None
    blocks: int = Field(description="timed in turns with the winner; 0: not measured")
    counters: list[CounterOut] = Field(description="those that differ from the winner's")


class PooledOut(Output):
    """Earlier trials of the scope that differ only in this parameter."""

    pairs: int
    ratio: float
    slower: int
    names: list[str]


class FindingOut(Output):
    """One arm: the winner with another value of one parameter."""

    parameter: str
    before: ScalarValue
    after: ScalarValue
    along: dict[str, ScalarValue] = Field(
        {}, description="another parameter that a constraint made change with it"
    )
    kind: str = Field(description="feature or step")
    effect: str = Field(description="of the winner's value: helps, no_effect, hurts or unclear")
    sentence: str
    refused: str = Field(description="why no such point exists; empty: it is valid")
    ratio: float | None = Field(description="time with the arm's value / the winner's")
    ratio_low: float | None = Field(description="corrected for all arms; null: not measured")
    ratio_high: float | None
    best_ratio: float | None = Field(description="after the other values were tuned again")
    best_low: float | None
    best_high: float | None
    pooled: PooledOut | None
    alone: MeasurementOut | None
    retuned: list[MeasurementOut]


class AblationOut(Output):
    """The effect of each feature and each number of a winner."""

    search_id: str
    number: int
    time_kind: str
    band: float = Field(description="a factor within which modelled or replayed times are silent")
    comparisons: int = Field(description="arms over which the intervals hold together")
    confidence: float
    complete: bool = Field(description="false: it was interrupted; the command continues it")
    environment: dict[str, str]
    caveats: list[str] = Field(description="limits of this ablation")
    summary: str
    findings: list[FindingOut]
    recorded_at: str


class JobOut(Output):
    """Work that runs in the background."""

    state: str = Field(description="running, done or failed")
    sentence: str
