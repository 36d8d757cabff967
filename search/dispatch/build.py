"""Making a dispatch group: the smallest set of kernels, its rules, and their regret."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from greenfast.search.dispatch.cover import Measured, best_times, smallest_cover
from greenfast.search.dispatch.rules import Rule, Shape, learn, pick
from greenfast.search.dispatch.table import (
    DispatchGroup,
    LeftOut,
    PeerTime,
    Regret,
    ServedWorkload,
)
from greenfast.search.errors import UsageError
from greenfast.search.kernels.workloads import Items

DEFAULT_WITHIN_PERCENT = 3.0
LARGEST_WITHIN_PERCENT = 100.0
MOST_LEFT_OUT = 64  # workloads of a group that are left out in turn; more are sampled evenly


@dataclass(frozen=True)
class TimedWorkload:
    """A workload of a group, with its run-time dims by name."""

    name: str
    dims: Items  # all dims
    sizes: Mapping[str, int]  # those known at run time
    weight: float
    baseline_us: float | None = None
    peers: tuple[PeerTime, ...] = ()


@dataclass(frozen=True)
class GroupTimes:
    """The measured times of the workloads that share their compile-time values."""

    compiled: Items
    workloads: tuple[TimedWorkload, ...]
    kernels: tuple[Measured, ...] = field(default=())

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(workload.weight for workload in self.workloads)

    def without(self, position: int) -> GroupTimes:
        return GroupTimes(
            self.compiled,
            tuple(each for at, each in enumerate(self.workloads) if at != position),
            tuple(
                Measured(
                    kernel.name,
                    tuple(time for at, time in enumerate(kernel.times_us) if at != position),
                )
                for kernel in self.kernels
            ),
        )


@dataclass(frozen=True)
class Selection:
    """The kernels of a group and the rules that pick one of them."""

    kernels: tuple[Measured, ...]
    rules: tuple[Rule, ...]
    region: tuple[tuple[str, int, int], ...]
    outside: str
    method: str
    bound: float

    def pick(self, sizes: Mapping[str, int]) -> str:
        inside = all(low <= sizes[name] <= high for name, low, high in self.region)
        return pick(self.rules, sizes) if inside else self.outside


def check_within(percent: float) -> float:
    """The tolerance as a share; UsageError `bad_within` outside of 0 to 100 %."""
    if not 0 <= percent <= LARGEST_WITHIN_PERCENT:
        raise UsageError(
            f"the tolerance of a tuning is {percent:g} %; it must be between 0 and "
            f"{LARGEST_WITHIN_PERCENT:g} %, and is 3 % by default",
            code="bad_within",
        )
    return percent / 100


def select(times: GroupTimes, share: float) -> Selection:
    """The smallest set of kernels and its rules; UsageError `no_kernel` without a correct one."""
    cover = smallest_cover(times.kernels, times.weights, share)
    kernels = tuple(times.kernels[position] for position in cover.kernels)
    best = best_times(times.kernels)
    shapes = tuple(
        Shape(
            workload.sizes,
            workload.weight,
            {kernel.name: kernel.times_us[at] for kernel in kernels},
            best[at],
        )
        for at, workload in enumerate(times.workloads)
    )
    return Selection(
        kernels,
        learn(shapes, share),
        _region(times.workloads),
        _safest(kernels, best),
        cover.method,
        cover.bound,
    )


def _region(workloads: Sequence[TimedWorkload]) -> tuple[tuple[str, int, int], ...]:
    return tuple(
        (
            name,
            min(workload.sizes[name] for workload in workloads),
            max(workload.sizes[name] for workload in workloads),
        )
        for name in workloads[0].sizes
    )


def _safest(kernels: Sequence[Measured], best: Sequence[float]) -> str:
    """The kernel whose worst ratio to the best is the lowest: for shapes that were not measured."""

    def worst(kernel: Measured) -> float:
        return max(time / least for time, least in zip(kernel.times_us, best, strict=True))

    return min(kernels, key=worst).name


def dispatch_group(times: GroupTimes, share: float) -> DispatchGroup:
    """The group's kernels, rules, served workloads and leave-one-out regret."""
    whole = tuple(kernel for kernel in times.kernels if all(map(math.isfinite, kernel.times_us)))
    times = replace(times, kernels=whole)
    selection = select(times, share)
    best = best_times(times.kernels)
    served = tuple(
        _served(workload, at, selection, best[at]) for at, workload in enumerate(times.workloads)
    )
    return DispatchGroup(
        times.compiled,
        selection.region,
        selection.rules,
        selection.outside,
        served,
        _regret(times, share),
        selection.method,
        selection.bound,
    )


def _served(
    workload: TimedWorkload, at: int, selection: Selection, best_us: float
) -> ServedWorkload:
    times = tuple((kernel.name, kernel.times_us[at]) for kernel in selection.kernels)
    use = selection.pick(workload.sizes)
    ratio = None if not workload.baseline_us else dict(times)[use] / workload.baseline_us
    return ServedWorkload(
        workload.name,
        workload.dims,
        workload.weight,
        use,
        times,
        best_us,
        ratio,
        workload.peers,
    )


def _regret(times: GroupTimes, share: float) -> Regret | None:
    """Leave-one-out: each workload is served by a set and rules that were made without it."""
    count = len(times.workloads)
    if count < 2:
        return None
    step = max(1, -(-count // MOST_LEFT_OUT))
    rows, weights = [], []
    for at in range(0, count, step):
        workload, others = times.workloads[at], times.without(at)
        selection = select(others, share)
        use = selection.pick(workload.sizes)
        taken = {kernel.name: kernel.times_us[at] for kernel in times.kernels}
        best = min(taken.values())
        inside = all(low <= workload.sizes[name] <= high for name, low, high in selection.region)
        rows.append(LeftOut(workload.name, use, taken[use] / best, inside))
        weights.append(workload.weight)
    logs = [weight * math.log(row.ratio) for weight, row in zip(weights, rows, strict=True)]
    geomean = math.exp(math.fsum(logs) / math.fsum(weights))
    return Regret(geomean, max(row.ratio for row in rows), tuple(rows))
