"""`cuda:0,1` and `cuda:all`: one search on several GPUs of a machine, each with its own child.

A candidate's time and the baseline's are taken in turns on the same GPU, so ratios do not depend on
the choice of the GPU. A request that a GPU fails is repeated on another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from greenfast.search.errors import Fault
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import LARGE_FLOP, Case
from greenfast.search.oracle.expected import Arrays, CaseData
from greenfast.search.oracle.problem import Problem
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import Execution, Failure, Inspect, Rival, Runner
from greenfast.search.targets.cuda.execution import batches
from greenfast.search.targets.cuda.lanes import Lane, Lanes
from greenfast.search.targets.cuda.target import CHECK_FLOP_LIMIT, CudaTarget, Program
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import Timing

T = TypeVar("T")

RELAYED_KEPT = 4096  # programs of other processes: more than any search has in flight


class _Started(NamedTuple):
    lane: Lane
    fault: Fault | None


class SeveralGpus(Runner):
    """GPUs of one model. Each request goes to one that is free."""

    measures = True
    keeps_modules = True
    band = 1.0
    check_flop_limit = CHECK_FLOP_LIMIT

    def __init__(self, targets: Sequence[CudaTarget]) -> None:
        self.name = "cuda:" + ",".join(str(target.number) for target in targets)
        self.device = targets[0].device
        self.run_deadline_s = targets[0].run_deadline_s
        self._lanes = Lanes(tuple(Lane(target) for target in targets))
        # Where a program was timed: its module stays there (`keeps_modules`).
        self._timed_on: WeakKeyDictionary[Program, Lane] = WeakKeyDictionary()
        # The same for programs of other processes, by their files.
        self._relayed_on: OrderedDict[str, Lane] = OrderedDict()

    @property
    def takes_descriptions(self) -> bool:
        return all(target.takes_descriptions for target in self.targets)

    @property
    def gpu_count(self) -> int:
        return len(self._lanes.lanes)

    @property
    def targets(self) -> tuple[CudaTarget, ...]:
        """A target for each GPU, also for those that dropped out."""
        return tuple(lane.target for lane in self._lanes.lanes)

    @property
    def gpu_seconds(self) -> float:
        return sum(target.gpu_seconds for target in self.targets)

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(self._lanes.remarks)

    def prepare(self) -> None:
        """Start a child on every GPU. Those on which none starts drop out while another has one."""
        self._lanes.take_back()
        with ThreadPoolExecutor(len(self._lanes.lanes)) as pool:
            started = list(pool.map(_started, self._lanes.in_use()))
        failures = [(lane, fault) for lane, fault in started if fault is not None]
        if len(failures) == len(started):
            raise failures[0][1]
        for lane, fault in failures:
            self._lanes.drop(lane, fault)

    def lane(self) -> Runner:
        return self._lanes.on_any(_ready)

    def case_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        """A large reference is computed on a GPU, the others here."""
        large = case.flop(kernel) > LARGE_FLOP
        return case_data(kernel, case, self._reference if large else None)

    def _reference(self, kernel: KernelSpec, case: Case) -> Arrays | None:
        """At once, because threads that compare a timed candidate's outputs still have its GPU."""
        return self._lanes.on_any(lambda lane: lane.target.reference(kernel, case), at_once=True)

    def load(self, source: RenderedSource, cubin: Cubin | None) -> Program:
        """A file that the children of all GPUs can read."""
        return self._lanes.in_use()[0].target.load(source, cubin)

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        for batch in batches(problems):
            yield from self._runs(program, batch)

    def _runs(self, program: Program, batch: Sequence[Problem]) -> list[Execution]:
        def run(lane: Lane) -> list[Execution]:
            return list(lane.target.execute(program, batch))

        return self._on_lane(program, run)

    def _on_lane(self, program: Program, work: Callable[[Lane], T]) -> T:
        """The result of `work` where the program was timed, or else on a GPU that is free."""
        timed_on = self._timed_on.get(program)
        return self._lanes.on_any(work) if timed_on is None else self._lanes.on(timed_on, work)

    @contextmanager
    def answered(
        self, program: Program, problems: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[str, Any], Path]]:
        with ExitStack() as outputs:
            yield self._on_lane(
                program,
                lambda lane: outputs.enter_context(lane.target.answered(program, problems)),
            )

    def relayed(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "reference":
            return self._lanes.on_any(lambda lane: lane.target.relayed(request), at_once=True)
        cubin = request["cubin"]
        if (timed_on := self._relayed_on.get(cubin)) is not None:
            return self._lanes.on(timed_on, lambda lane: lane.target.relayed(request))

        def ask(lane: Lane) -> dict[str, Any]:
            reply = lane.target.relayed(request)
            if request["do"] == "measure":
                self._relayed_on[cubin] = lane
                if len(self._relayed_on) > RELAYED_KEPT:
                    self._relayed_on.popitem(last=False)
            return reply

        return self._lanes.on_any(ask)

    def measure(
        self,
        program: Program,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        """All workloads on one GPU."""

        def timed(lane: Lane) -> tuple[Timing, ...] | Failure:
            result = lane.target.measure(program, cubin, problems, against, inspect)
            self._timed_on[program] = lane
            return result

        return self._lanes.on_any(timed)

    def after_timing(
        self, program: Program, problem: Problem, fresh: Problem
    ) -> Iterator[Execution]:
        def run(lane: Lane) -> list[Execution]:
            return list(lane.target.after_timing(program, problem, fresh))

        timed_on = self._timed_on.get(program)
        yield from self._lanes.on_any(run) if timed_on is None else self._lanes.on(timed_on, run)

    def identity(self) -> tuple[tuple[str, str], ...]:
        (_, _), *rest = self._lanes.on_any(lambda lane: lane.target.identity())
        return (("target", self.name), *rest)

    def fresh(self) -> None:
        for lane in self._lanes.in_use():
            lane.target.fresh()

    def interrupt(self) -> None:
        for target in self.targets:
            target.interrupt()

    def close(self) -> None:
        for target in self.targets:
            with suppress(Fault):  # a child that cannot be ended does not keep the others open
                target.close()


def _started(lane: Lane) -> _Started:
    try:
        lane.target.prepare()
    except Fault as fault:
        return _Started(lane, fault)
    return _Started(lane, None)


def _ready(lane: Lane) -> CudaTarget:
    lane.target.prepare()
    return lane.target
