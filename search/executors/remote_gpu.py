"""A GPU of a cluster, with the methods of one here. An actor beside the GPU does the work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenfast.search.errors import Fault
from greenfast.search.executors.cluster import Actor, MachineLost, Raised
from greenfast.search.executors.gpu_actor import (
    ExecuteRequest,
    GpuFacts,
    Measured,
    MeasureRequest,
    Occupied,
    executions,
)
from greenfast.search.executors.parcel import packed, unpacked
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import Problem
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import Execution, Failure, Inspect, Rival
from greenfast.search.targets.cuda.target import CudaTarget, Program
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import DEVICE_INDEX, Timing

Turn = Callable[[str], AbstractContextManager[None]]


class RemoteProgram(Program):
    """A cubin that travels with each request; an actor that has it needs no second copy."""

    def __init__(self, cubin: Cubin) -> None:
        super().__init__(Path())
        self.cubin = cubin


class RemoteGpu(CudaTarget):
    """GPU `number` of the cluster. A Fault `gpu_lost` says that its machine or process is gone.

    `alone` is missing: what needs a process of its own beside a GPU runs on that machine.
    """

    def __init__(self, number: int, actor: Actor, facts: GpuFacts, turn: Turn) -> None:
        self.name, self.number = f"cuda:{number}", number
        self.device = facts.device
        self._actor, self._facts, self._turn = actor, facts, turn
        self._is_lost = threading.Event()
        self._gpu_seconds = 0.0  # as of the actor's last reply

    @property
    def takes_descriptions(self) -> bool:
        return False

    @property
    def child_pid(self) -> int | None:
        return None  # on another machine

    def prepare(self) -> None:
        self._call("prepare")

    def load(self, source: RenderedSource, cubin: Cubin | None) -> RemoteProgram:
        if cubin is None:
            raise Fault(f"{self.name} runs cubins only", code="no_cubin")
        return RemoteProgram(cubin)

    def reference(self, kernel: KernelSpec, case: Case) -> None:
        """None, so that NumPy computes it in this process: an actor has no kernel's files."""

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        assert isinstance(program, RemoteProgram)
        request = ExecuteRequest(program.cubin, tuple(problems))
        yield from executions(problems, self._held("execute", request))

    def measure(
        self,
        program: Program,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        """All workloads in one request. The timed outputs are judged here, in their order."""
        request = MeasureRequest(None, cubin, tuple(problems))
        if against is not None:
            other: RemoteProgram = against.program
            request = replace(
                request,
                other=other.cubin,
                other_problems=against.problems,
                to_the_end=against.to_the_end,
            )
        measured: Measured = self._held("measure", request)
        for execution in executions(problems, measured.timed):
            if inspect is not None and (failure := inspect(execution)) is not None:
                return failure
        if isinstance(measured.result, Failure):
            return measured.result
        return tuple(self._numbered(timing) for timing in measured.result)

    def after_timing(
        self, program: Program, problem: Problem, fresh: Problem
    ) -> Iterator[Execution]:
        assert isinstance(program, RemoteProgram)
        request = ExecuteRequest(program.cubin, (problem, fresh))
        executed = self._held("after_timing", request)
        yield from executions([fresh] * len(executed), executed)

    def identity(self) -> tuple[tuple[str, str], ...]:
        entries: tuple[tuple[str, str], ...] = self._call("identity")
        return (("target", self.name), *(each for each in entries if each[0] != "target"))

    def fresh(self) -> None:
        self._call("fresh")

    def interrupt(self) -> None:
        with suppress(Fault):  # a lost one does nothing
            self._call("interrupt")

    def close(self) -> None:
        self._is_lost.set()
        self._actor.end()

    def _numbered(self, timing: Timing) -> Timing:
        """The time, with the GPU's number in the cluster: an actor sees one GPU, number 0."""
        detail = tuple(
            (name, float(self.number) if name == DEVICE_INDEX else value)
            for name, value in timing.detail
        )
        return replace(timing, detail=detail)

    def _held(self, method: str, request: object) -> Any:
        """A call while no other worker of the database uses the GPU."""
        with self._turn(self._facts.uuid):
            occupied: Occupied = self._call(method, request)
        self._gpu_seconds = max(self._gpu_seconds, occupied.gpu_seconds)
        return occupied.reply

    def _call(self, method: str, request: object = None) -> Any:
        if self._is_lost.is_set():
            raise self._lost("its process has ended")
        parcel, arrays = packed(request)
        try:
            reply = unpacked(self._actor.call(method, parcel, arrays), {})
        except MachineLost as lost:
            self._is_lost.set()
            raise self._lost(str(lost)) from lost
        if isinstance(reply, Raised):
            raise reply.error()
        return reply

    def _lost(self, why: str) -> Fault:
        return Fault(f"{self.name} on {self._facts.machine} is gone ({why})", code="gpu_lost")
