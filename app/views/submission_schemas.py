"""The models of submitted sources, for REST and its OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from greenfast.app.views.base_schemas import Input, Output
from greenfast.app.views.query_schemas import PageQuery


class SubmissionIn(Input):
    """A source to judge. Texts about it are kept and shown, and decide nothing."""

    kernel: str
    source: str = Field(description="CUDA C++, at most 500,000 bytes")
    launch: str = Field(description="TOML: its launches; `greenfast docs submissions` has the keys")
    entry: str = Field("", description="the kernel function of launches that name none")
    workloads: list[str] | None = Field(
        None, min_length=1, description="by name or by values; default: the kernel's first"
    )
    target: str | None = None
    baseline: str | None = Field(None, description="template:preset, champion, or none")
    seed: int | None = None
    author: str = ""
    model: str = ""
    parent: str = Field("", description="digest of the stored source that it was made from")
    hypothesis: str = ""


class SubmissionsQuery(PageQuery):
    kernel: str | None = Field(None, max_length=100)


class SubmissionOut(Output):
    id: str = Field(description="of the search that judges it")
    status: str
    why: str
    repeated: bool = Field(description="the same source was judged before in the same scope")
    kernel: str
    workloads: list[str]
    target: str
    baseline: str
    submission_digest: str = Field(description="of the source and its launches")
    author: str
    model: str
    parent: str
    hypothesis: str
    trial: int | None = Field(description="of that search; null until it has begun")
    verdict: str | None = Field(description="null until it is judged")
    stage: str | None = None
    reason: str | None = None
    sentence: str = ""
    source_digest: str | None = None
    time_median_us: float | None = None
    time_kind: str | None = None
    time_band: float | None = None
    ratio_to_baseline: float | None = None
    ratio_interval: list[float] | None = None
    gates: dict[str, dict[str, Any]] = Field(default_factory=dict)
    feedback: list[dict[str, Any]] = Field(
        description="facts of the evidence: kind, sentence, lines of the source, what to try"
    )
