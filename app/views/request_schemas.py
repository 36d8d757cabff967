"""The models of a request for a search."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from greenfast.app.views.base_schemas import Input
from greenfast.search.kernels.workloads import WorkloadValues
from greenfast.search.loop.plan import SearchRequest


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


# Fields of a SearchRequest that a body has at another place.
PLACES = {
    "trials": "budget.trials",
    "seconds": "budget.seconds",
    "no_gain": "budget.no_gain",
    "bound_percent": "budget.within_percent",
    "gpu_seconds": "budget.gpu_seconds",
    "weights": "workloads",
}


def request_field(name: str) -> str:
    """The place in a body of a field of a SearchRequest."""
    return PLACES.get(name, name)


class WorkloadIn(Input):
    """A workload by values; the kernel's defaults complete it."""

    name: str = Field("", description="a label of small letters, digits and _")
    dims: dict[str, int]
    options: dict[str, str] = Field({})
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
    confirm: bool = Field(True, description="on a GPU, time the winner again in fresh processes")
    mode: str | None = Field(
        None,
        description="of measured times: auto (by the workload's size), hot (data in L2), cold "
        "(data in memory)",
    )
    gates: dict[str, dict[str, Any]] = Field(default_factory=dict, description="limits by gate")
    reuse: bool = Field(
        True, description="repeat verdicts that a search of the same scope has recorded"
    )
    hypothesis: str = Field(
        "", description="what you expect; the report compares it with the result"
    )
    expected_gain: float | None = Field(
        None, description="the gain that you expect, as a share of the baseline's time"
    )
    cost: str = Field("", description="the cost of trying it, in your own words")
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
    modelled: int | None = Field(
        None,
        description="points of each template whose times the emulator models for the strategy, on "
        "idle cores beside a GPU; default: 40 for strategies that use them",
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
                "modelled",
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
