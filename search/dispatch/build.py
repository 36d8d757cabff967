"""Making a dispatch group: the smallest set of kernels, its rules, and their regret."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from greenfast.search.dispatch.between import between
from greenfast.search.dispatch.cover import Cover, Measured, best_times, smallest_cover
from greenfast.search.dispatch.learn import Shape, learn
from greenfast.search.dispatch.rules import Rule, pick
from greenfast.search.dispatch.table import (
    LIBRARY,
    DispatchGroup,
    LeftOut,
    PeerTime,
    Regret,
    ServedWorkload,
)
from greenfast.search.dispatch.waves import Waves
from greenfast.search.kernels.workloads import Items

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
    library_us: float | None = None  # of the operation's own library, which a caller falls back to


@dataclass(frozen=True)
class GroupTimes:
    """The measured times of the workloads that share their compile-time values."""

    compiled: Items
    workloads: tuple[TimedWorkload, ...]
    kernels: tuple[Measured, ...] = field(default=())
    waves_of: Callable[[str], Waves | None] = lambda _: None  # by a kernel's name, where known

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(workload.weight for workload in self.workloads)

    @cached_property
    def library_us(self) -> tuple[float, ...] | None:
        """The library's time on each workload; None unless it is known on all."""
        times = tuple(each.library_us for each in self.workloads if each.library_us is not None)
        return times if len(times) == len(self.workloads) else None

    @property
    def best_us(self) -> tuple[float, ...]:
        """The best time on each workload, the library's included."""
        best = best_times(self.kernels)
        if self.library_us is None:
            return best
        return tuple(map(min, best, self.library_us))

    def only(self, positions: Collection[int]) -> GroupTimes:
        """The times on some of the workloads."""
        return replace(
            self,
            workloads=tuple(self.workloads[at] for at in positions),
            kernels=tuple(
                Measured(kernel.name, tuple(kernel.times_us[at] for at in positions))
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


def select(times: GroupTimes, share: float) -> Selection:
    """The smallest set of kernels and its rules; UsageError `no_kernel` without a correct one.

    Where no kernel is within `share` of the library, the rules pick the library.
    """
    best = times.best_us
    cover = _cover(times, best, share)
    kernels = tuple(times.kernels[position] for position in cover.kernels)
    shapes = _shapes(times, kernels, best)
    known = {kernel.name: times.waves_of(kernel.name) for kernel in kernels}
    waves = {name: each for name, each in known.items() if each is not None}
    several = len(shapes) > 1 and len(shapes[0].times_us) > 1
    rules = learn(
        shapes,
        share,
        between(shapes, waves) if several else (),
        [each.blocks for each in waves.values()],
    )
    outside = _safest(kernels, best_times(times.kernels))
    region = _region(times.workloads)
    return Selection(kernels, rules, region, outside, cover.method, cover.bound)


def _cover(times: GroupTimes, best: Sequence[float], share: float) -> Cover:
    """Kernels for the workloads that are not left to the library; at least one."""
    own = best_times(times.kernels)
    kept = [at for at, time in enumerate(own) if time <= best[at] * (1 + share)]
    if not kept and times.kernels:
        safest = _safest(times.kernels, own)
        names = [kernel.name for kernel in times.kernels]
        return Cover((names.index(safest),), "exact", 1.0)
    some = times.only(kept)
    return smallest_cover(some.kernels, some.weights, share, some.best_us)


def _shapes(
    times: GroupTimes, kernels: Sequence[Measured], best: Sequence[float]
) -> tuple[Shape, ...]:
    """The workloads for the learner."""
    return tuple(
        Shape(workload.sizes, workload.weight, _taken(times, kernels, at), best[at])
        for at, workload in enumerate(times.workloads)
    )


def _taken(times: GroupTimes, kernels: Sequence[Measured], at: int) -> dict[str, float]:
    """The kernels' times on a workload; the library is one more where it is known on all."""
    taken = {kernel.name: kernel.times_us[at] for kernel in kernels}
    return taken if times.library_us is None else {**taken, LIBRARY: times.library_us[at]}


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
    shapes = _shapes(times, selection.kernels, times.best_us)
    served = tuple(
        _served(workload, shape, selection)
        for workload, shape in zip(times.workloads, shapes, strict=True)
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


def _served(workload: TimedWorkload, shape: Shape, selection: Selection) -> ServedWorkload:
    use = selection.pick(workload.sizes)
    ratio = None if not workload.baseline_us else shape.times_us[use] / workload.baseline_us
    return ServedWorkload(
        workload.name,
        workload.dims,
        workload.weight,
        use,
        tuple(shape.times_us.items()),
        shape.best_us,
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
        workload = times.workloads[at]
        selection = select(times.only([other for other in range(count) if other != at]), share)
        inside = all(low <= workload.sizes[name] <= high for name, low, high in selection.region)
        use = selection.pick(workload.sizes)
        if not inside and times.library_us is not None:
            use = LIBRARY  # a program falls back to it outside of the region
        taken = _taken(times, times.kernels, at)
        rows.append(LeftOut(workload.name, use, taken[use] / min(taken.values()), inside))
        weights.append(workload.weight)
    logs = [weight * math.log(row.ratio) for weight, row in zip(weights, rows, strict=True)]
    geomean = math.exp(math.fsum(logs) / math.fsum(weights))
    return Regret(geomean, max(row.ratio for row in rows), tuple(rows))
