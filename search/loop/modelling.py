"""Modelled times for the strategy of a search that measures, made on idle cores.

At the beginning, a strategy knows no outcome. The emulator's model tells times only to about a
factor of two, but it tells early which values matter. Random valid points of each template are
compiled and run on the emulator, and the strategy takes their modelled times for one more source of
its prior (strategies/prior.py), whose weight follows from how well it predicts measured times.

A point is begun only while cores are idle and compilers make more than the GPUs can take, as with
kernels of milliseconds. Until outcomes show which is the case, the size of the workload decides. A
search of a kernel of microseconds needs all cores, and models nothing. A run is short: where a
workload is large, its dims are halved first.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from greenfast.search.acceptance import time_us_of
from greenfast.search.cores import idle_core_seconds, usable_cores
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.oracle.cases import workload_case
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import ModelledTime, Strategy
from greenfast.search.targets.base import Failure
from greenfast.search.verdict import Rejected

LOOK_S = 0.25  # between two looks at the cores
LEAST_IDLE = 2.0  # cores for each point that begins: those that began last are not seen at once
CORES_A_POINT = 2
DEADLINE_S = 10.0  # of a point's run, in processor time
LARGE_FLOP = 100e9  # of a workload: its candidates will probably keep a GPU busier than the cores
LARGEST_FLOP = 40e9  # of one that is modelled: a few of its blocks take a second or two on a core
BATCH = 4  # times that the strategy hears together: it fits its prior anew for each batch
MOST_WORKLOADS = 3  # that are modelled for a point
MOST_FAULTS = 3  # in a row, after which no further point begins
DIGITS = 4  # of the logarithms

Point = tuple[str, Items]  # of a template


def modelling(
    plan: SearchPlan,
    context: EvaluationContext,
    strategy: Strategy,
    hear: Callable[[Sequence[ModelledTime]], None],
    remark: Callable[[str], None],
    cores_are_scarce: Callable[[], bool | None],
) -> AbstractContextManager[object]:
    """A block in which points are modelled, where the plan wants it and the context can."""
    if not plan.modelled or context.modeller is None:
        return nullcontext()
    points = points_to_model(strategy.spaces, plan.modelled, plan.seed, strategy.modelled_count)
    return Modelling(context, points, hear, remark, cores_are_scarce)


class Modelling:
    """Models points of a search in threads of its own, from `with` to the end of its block."""

    def __init__(
        self,
        context: EvaluationContext,
        points: Iterator[Point],
        hear: Callable[[Sequence[ModelledTime]], None],
        remark: Callable[[str], None],
        cores_are_scarce: Callable[[], bool | None],
    ) -> None:
        """The functions are called from another thread: `hear` with times as they come, `remark`
        with the reason when faults end the modelling. `cores_are_scarce`: whether the search needs
        all cores at the moment (None: not known yet)."""
        assert context.modeller is not None, "it runs the points"
        workloads = dict.fromkeys(
            smaller_workload(context.kernel, each) for each in context.workloads[:MOST_WORKLOADS]
        )
        self._context = replace(
            context, target=context.modeller, baseline=None, workloads=tuple(workloads)
        )
        self._points, self._hear, self._remark = points, hear, remark
        self._cores_are_scarce = cores_are_scarce
        self._is_large = is_large(context.kernel, context.workloads)
        self._most = max(1, usable_cores() // CORES_A_POINT)
        self._end = threading.Event()
        self._running: set[Future[ModelledTime | None]] = set()
        self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="model")
        self._thread = threading.Thread(target=self._run, name="modelling", daemon=True)

    def __enter__(self) -> Modelling:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End the points that run: nobody hears their times. No trial may be in flight any more,
        as runs of this process on the emulator end, too."""
        self._end.set()
        self._thread.join()  # so that `hear` is called no more
        self._pool.shutdown(wait=False, cancel_futures=True)
        if not all(each.done() for each in self._running):
            self._context.target.interrupt()

    def _run(self) -> None:
        idle, unheard, faults = IdleCores(), list[ModelledTime](), 0
        while not self._end.wait(LOOK_S):
            idle_cores = idle.read()
            is_over = not self._begin(int(idle_cores / LEAST_IDLE) if self._may_begin() else 0)
            for ended in [each for each in self._running if each.done()]:
                self._running.remove(ended)
                try:
                    modelled = ended.result()
                except GreenfastError as fault:
                    faults += 1
                    if faults >= MOST_FAULTS and not self._end.is_set():
                        self._remark(f"no further times are modelled for the strategy: {fault}")
                        return
                else:
                    faults = 0
                    unheard += [modelled] if modelled is not None else []
            is_over = is_over and not self._running
            if len(unheard) >= BATCH or (is_over and unheard):
                self._hear(unheard)
                unheard = []
            if is_over:
                return

    def _may_begin(self) -> bool:
        scarce = self._cores_are_scarce()
        return self._is_large if scarce is None else not scarce

    def _begin(self, count: int) -> bool:
        """Begin as many points, if there is room for them; False: none is left."""
        for _ in range(min(count, self._most - len(self._running))):
            if (point := next(self._points, None)) is None:
                return False
            try:
                self._running.add(self._pool.submit(self._modelled, *point))
            except RuntimeError:  # the search has ended
                return False
        return True

    def _modelled(self, template: str, parameters: Items) -> ModelledTime | None:
        """The time of a point; None for one that does not compile or fails when it runs."""
        context = self._context
        origin = Origin(OriginKind.SAMPLED)
        subject = prepare(Candidate(context.kernel.name, template, parameters, origin), context)
        if isinstance(subject, Rejected):
            return None
        timings = subject.target.measure(subject.program, subject.machine_code, subject.timed)
        if isinstance(timings, Failure):
            return None
        time_us = time_us_of(subject.conditions.weighted(timings))
        return ModelledTime(template, parameters, round(math.log(time_us), DIGITS))


def points_to_model(
    spaces: Mapping[str, Space], count: int, seed: int, known: Mapping[str, int]
) -> Iterator[Point]:
    """`count` random valid points of each template in turns, without the first `known` of it."""
    sampled = {}
    for name, space in spaces.items():
        points = space.sample(count, seed)
        random.Random(seed).shuffle(points)
        sampled[name] = points[known.get(name, 0) :]
    for number in range(count):
        yield from ((name, points[number]) for name, points in sampled.items() if points[number:])


def is_large(kernel: KernelSpec, workloads: Sequence[Workload]) -> bool:
    """Whether candidates will probably keep a GPU busier than the cores, before any is known."""
    return any(_flop(kernel, each) > LARGE_FLOP for each in workloads)


def smaller_workload(kernel: KernelSpec, workload: Workload) -> Workload:
    """The workload, with its largest dims halved until it is small enough, or they cannot be.

    Equal dims are halved together, so that square problems stay square. Dims that a candidate's
    text contains stay as they are.
    """
    compiled = dict(workload.compile_time(kernel))
    while _flop(kernel, workload) > LARGEST_FLOP:
        dims = dict(workload.dims)
        largest = max((int(size) for name, size in dims.items() if name not in compiled), default=1)
        if largest < 2:
            break
        halved = {
            name: largest // 2 if size == largest and name not in compiled else size
            for name, size in dims.items()
        }
        try:
            workload = kernel.workload_form.workload(
                {**halved, **dict(workload.options)}, where="a smaller workload"
            )
        except GreenfastError:  # the kernel does not take such sizes
            break
    return workload


def _flop(kernel: KernelSpec, workload: Workload) -> float:
    """0 where the kernel does not tell."""
    try:
        return workload_case(workload, 0).flop(kernel)
    except GreenfastError:
        return 0.0


class IdleCores:
    """How many of the usable cores were idle, on average, between two readings."""

    def __init__(self) -> None:
        self._last = time.monotonic(), idle_core_seconds()

    def read(self) -> float:
        """0 where the system does not tell."""
        (before_s, idle_before_s), self._last = self._last, (time.monotonic(), idle_core_seconds())
        now_s, idle_s = self._last
        if idle_s is None or idle_before_s is None or now_s <= before_s:
            return 0.0
        return (idle_s - idle_before_s) / (now_s - before_s)
