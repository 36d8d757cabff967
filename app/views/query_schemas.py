"""The models of the queries of lists."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from greenfast.db.figures import SORTABLE
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import Reason, Stage, VerdictName

LARGEST_PAGE = 500


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=LARGEST_PAGE, description="entries of a page")
    cursor: str | None = Field(
        None, max_length=400, description="`next_cursor` of the page before; empty: the first page"
    )


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
    sort: str = Field("number", max_length=40, description=", ".join(("number", *SORTABLE)))
    descending: bool = Field(False, description="the largest first")


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
    device: str | None = Field(None, max_length=100, description="a GPU, such as h200")
    dtype: str | None = Field(None, max_length=40, description="a type, such as bf16")
    workload: str | None = Field(None, max_length=200, description="the name of a workload")
    text: str | None = Field(None, max_length=200, description="words in the sentence or reason")


class ChampionsQuery(PageQuery):
    kernel: str | None = Field(None, max_length=100)
    replaced: bool = Field(False, description="include former champions")
