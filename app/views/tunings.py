"""Tunings as REST and its OpenAPI describe them."""

from __future__ import annotations

from pydantic import Field

from greenfast.app.views.base_schemas import Input, Output
from greenfast.app.views.request_schemas import Budget, WorkloadIn
from greenfast.app.views.schemas import SearchOut
from greenfast.db.rows import TuningRow
from greenfast.search.dispatch.within import DEFAULT_WITHIN_PERCENT
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.tuning import TuningRequest
from greenfast.search.status import SearchStatus


class TuningSubmission(Input):
    """Workloads to tune a kernel for, with a search for each set of compile-time values."""

    kernel: str
    workloads: list[str | WorkloadIn] = Field(
        min_length=1, description="as of a search; an object may give a weight"
    )
    name: str | None = None
    templates: list[str] | None = Field(None, min_length=1)
    target: str | None = None
    strategy: str | None = None
    budget: Budget = Field(Budget(), description="of each search")
    seed: int | None = None
    mode: str | None = None
    within_percent: float = Field(
        DEFAULT_WITHIN_PERCENT,
        description="keep as few kernels as possible, each within this of the best on its "
        "workloads",
    )

    def request(self) -> TuningRequest:
        search = SearchRequest(
            kernel=self.kernel,
            name=self.name,
            templates=tuple(self.templates) if self.templates is not None else None,
            target=self.target,
            strategy=self.strategy,
            trials=self.budget.trials,
            seconds=self.budget.seconds,
            no_gain=self.budget.no_gain,
            bound_percent=self.budget.within_percent,
            gpu_seconds=self.budget.gpu_seconds,
            seed=self.seed,
            mode=self.mode,
        )
        rows = tuple(
            (row.values(), row.weight) if isinstance(row, WorkloadIn) else (row, 1.0)
            for row in self.workloads
        )
        return TuningRequest(search, rows, self.within_percent)


class TuningOut(Output):
    id: str
    name: str
    kernel: str
    target: str
    status: SearchStatus = Field(
        description="completed once all its searches are; else the status of one that is not"
    )
    within_percent: float
    workloads: list[str]
    weights: list[float]
    created_at: str
    searches: list[SearchOut]


def tuning_out(row: TuningRow) -> TuningOut:
    return TuningOut.model_validate(row)
