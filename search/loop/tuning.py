"""A tuning: one search for each group of workloads that share their compile-time values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from greenfast.search.dispatch.within import DEFAULT_WITHIN_PERCENT, check_within
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workload_files import LARGEST_WEIGHT, MOST_WORKLOADS, WeightedWorkload
from greenfast.search.kernels.workloads import Items, WorkloadValues
from greenfast.search.loop.limits import require_memory
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.settings import LONGEST_NAME
from greenfast.search.text import shortened

MOST_SEARCHES = 64
SHOWN_FAULTS = 20


@dataclass(frozen=True)
class TuningPlan:
    """The workloads of a tuning and their groups; its searches have their own plans."""

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
    workloads: tuple[tuple[str | WorkloadValues, float], ...]  # with their weights
    within_percent: float = DEFAULT_WITHIN_PERCENT


def tuning_plan(
    request: TuningRequest, rows: Sequence[WeightedWorkload], target: str
) -> TuningPlan:
    check_within(request.within_percent)
    names = tuple(row.workload.name for row in rows)
    default = f"{request.search.kernel} for {len(names)} workloads"
    return TuningPlan(
        shortened(request.search.name or default, LONGEST_NAME),
        request.search.kernel,
        target,
        float(request.within_percent),
        names,
        tuple(row.weight for row in rows),
    )


def search_requests(
    request: TuningRequest, rows: Sequence[WeightedWorkload], kernel: KernelSpec
) -> tuple[SearchRequest, ...]:
    """A search request for each group, in the order of the groups' first workloads."""
    groups = compile_time_groups(rows, kernel)
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
            within_percent=request.within_percent,
        )
        for compiled, rows in groups
    )


def requested_workloads(request: TuningRequest, kernel: KernelSpec) -> tuple[WeightedWorkload, ...]:
    """The workloads of a request; one UsageError that names all which do not fit."""
    if not 0 < len(request.workloads) <= MOST_WORKLOADS:
        raise UsageError(
            f"a tuning has 1 to {MOST_WORKLOADS:,} workloads; got {len(request.workloads):,}",
            code="bad_workloads",
        )
    rows: list[WeightedWorkload] = []
    faults: list[str] = []
    shapes: dict[Items, str] = {}
    for given, weight in request.workloads:
        try:
            workload = kernel.workload(given)
            require_memory(kernel, workload)
        except GreenfastError as error:
            faults.append(error.message)
            continue
        values = workload.dims + workload.options
        if values in shapes:
            faults.append(
                f"{workload.name} has the values of {shapes[values]}; give the shape once, with "
                "the sum of the weights"
            )
        shapes[values] = workload.name
        if not 0 < weight <= LARGEST_WEIGHT:
            faults.append(
                f"{workload.name} has the weight {weight:g}; weights are above 0, at most "
                f"{LARGEST_WEIGHT:g}"
            )
        rows.append(WeightedWorkload(workload, float(weight)))
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        raise UsageError("; ".join(faults[:SHOWN_FAULTS]) + more, code="bad_workloads")
    return tuple(rows)


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
    values = ", ".join(f"{name}={value}" for name, value in compiled)
    return shortened(f"{given}: {values}", LONGEST_NAME)
