"""A tuning: one search for each group of workloads that share their compile-time values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from greenfast.search.dispatch.build import DEFAULT_WITHIN_PERCENT, check_within
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workload_files import WeightedWorkload
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.limits import require_memory
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.text import shortened

MOST_SEARCHES = 64
SHOWN_FAULTS = 20
LONGEST_NAME = 200


@dataclass(frozen=True)
class TuningPlan:
    """What a tuning covers; its searches hold their own plans."""

    name: str
    kernel: str
    target: str
    within_percent: float
    workloads: tuple[str, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class TuningRequest:
    """`search` holds the settings of every search; its workloads are replaced."""

    search: SearchRequest
    workloads: tuple[WeightedWorkload, ...]
    within_percent: float = DEFAULT_WITHIN_PERCENT


def tuning_plan(request: TuningRequest, target: str) -> TuningPlan:
    check_within(request.within_percent)
    names = tuple(row.workload.name for row in request.workloads)
    default = f"{request.search.kernel} for {len(names)} workloads"
    return TuningPlan(
        shortened(request.search.name or default, LONGEST_NAME),
        request.search.kernel,
        target,
        float(request.within_percent),
        names,
        tuple(row.weight for row in request.workloads),
    )


def search_requests(request: TuningRequest, kernel: KernelSpec) -> tuple[SearchRequest, ...]:
    """A search request for each group, in the order of the groups' first workloads.

    UsageError that names every workload which does not fit.
    """
    check_workloads(request.workloads, kernel)
    groups = compile_time_groups(request.workloads, kernel)
    if len(groups) > MOST_SEARCHES:
        raise UsageError(
            f"the workloads have {len(groups)} different sets of compile-time values",
            code="too_many_groups",
            mend=f"a tuning has at most {MOST_SEARCHES}; split the file",
        )
    return tuple(
        replace(
            request.search,
            name=_name(request.search.name, compiled, len(groups)),
            workloads=tuple(row.workload.name for row in rows),
            weights=tuple(row.weight for row in rows),
        )
        for compiled, rows in groups
    )


def check_workloads(rows: Sequence[WeightedWorkload], kernel: KernelSpec) -> None:
    """One UsageError for all workloads that are too large or given twice."""
    if not rows:
        raise UsageError("a tuning needs at least one workload", code="no_workloads")
    faults: list[str] = []
    shapes: dict[Items, str] = {}
    for row in rows:
        workload = row.workload
        values = workload.dims + workload.options
        if (known := shapes.setdefault(values, workload.name)) != workload.name or (
            sum(other is row for other in rows) > 1
        ):
            faults.append(f"{workload.name} has the same values as {known}; add their weights up")
        try:
            require_memory(kernel, workload)
        except GreenfastError as error:
            faults.append(error.message)
    names = [row.workload.name for row in rows]
    faults += [
        f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        raise UsageError("; ".join(faults[:SHOWN_FAULTS]) + more, code="bad_workloads")


def compile_time_groups(
    rows: Iterable[WeightedWorkload], kernel: KernelSpec
) -> tuple[tuple[Items, tuple[WeightedWorkload, ...]], ...]:
    """The workloads by their compile-time values, in the order in which these first occur."""
    groups: dict[Items, list[WeightedWorkload]] = {}
    for row in rows:
        groups.setdefault(row.workload.compile_time(kernel), []).append(row)
    return tuple((compiled, tuple(members)) for compiled, members in groups.items())


def _name(given: str | None, compiled: Items, groups: int) -> str | None:
    if given is None or groups == 1:
        return given
    return shortened(f"{given}: {', '.join(f'{name}={value}' for name, value in compiled)}", 200)
