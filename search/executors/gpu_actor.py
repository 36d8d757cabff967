"""The process that holds one GPU of a cluster: a CudaTarget that answers parcels."""

from __future__ import annotations

import hashlib
import platform
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.facts import Device
from greenfast.search.errors import Fault
from greenfast.search.executors.cluster import replied
from greenfast.search.executors.node import cache_folder
from greenfast.search.executors.parcel import Parcel, unpacked
from greenfast.search.oracle.problem import Problem
from greenfast.search.render import RenderedSource
from greenfast.search.shipped import own_version
from greenfast.search.targets.base import Execution, Failure, Rival
from greenfast.search.targets.cuda import driver, open_device
from greenfast.search.targets.cuda.target import CudaTarget, Program
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import Timing

PROGRAMS_KEPT = 64  # cubins in files; a module stays on the GPU while its file does
OWN_GPU = "0"  # Ray shows each actor its GPU alone
GpuOpener = Callable[[Path, float], CudaTarget]  # of a cache folder and a run's deadline


@dataclass(frozen=True)
class GpuSetup:
    """How an actor opens its GPU. Tests give another `opened`."""

    run_deadline_s: float
    version: str  # of greenfast
    opened: GpuOpener | None = None


@dataclass(frozen=True)
class GpuFacts:
    """The facts that the searching process has about a remote GPU."""

    machine: str
    uuid: str
    device: Device
    version: str


@dataclass(frozen=True)
class Occupied:
    """A reply, and the seconds during which the actor's requests have occupied its GPU so far."""

    reply: object
    gpu_seconds: float


@dataclass(frozen=True)
class ExecuteRequest:
    cubin: Cubin
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Executed:
    """One execution, without the problem, which the caller has."""

    order: str
    outputs: dict[str, np.ndarray]
    failure: Failure | None


@dataclass(frozen=True)
class MeasureRequest:
    source: RenderedSource | None
    cubin: Cubin
    problems: tuple[Problem, ...]
    other: Cubin | None = None
    other_problems: tuple[Problem, ...] = ()
    to_the_end: bool = False


@dataclass(frozen=True)
class Measured:
    """The times, and the outputs of the timed launches, which the caller judges."""

    result: tuple[Timing, ...] | Failure
    timed: tuple[Executed, ...]


class GpuActor:
    """One measuring process a GPU, on whichever machine has it."""

    def __init__(self, setup: GpuSetup) -> None:
        opened = setup.opened or _opened
        self._target = opened(cache_folder(), setup.run_deadline_s)
        self._programs: OrderedDict[str, Program] = OrderedDict()

    def answer(self, method: str, parcel: Parcel, *arrays: np.ndarray) -> Parcel:
        """The reply of a method to a parcel."""
        request = unpacked(parcel, dict(zip(parcel.digests, arrays, strict=True)))
        return replied(lambda: self._methods()[method](request))

    def _methods(self) -> dict[str, Callable[[Any], object]]:
        return {
            "facts": lambda _: self._facts(),
            "prepare": lambda _: self._target.prepare(),
            "identity": lambda _: self._target.identity(),
            "execute": lambda request: self._occupied(self._execute(request)),
            "measure": lambda request: self._occupied(self._measure(request)),
            "after_timing": lambda request: self._occupied(self._after_timing(request)),
            "fresh": lambda _: self._target.fresh(),
            "interrupt": lambda _: self._target.interrupt(),
        }

    def _occupied(self, reply: object) -> Occupied:
        return Occupied(reply, self._target.gpu_seconds)

    def _facts(self) -> GpuFacts:
        uuid = driver.gpu_uuid(self._target.number)
        return GpuFacts(platform.node(), uuid, self._target.device, own_version())

    def _program(self, cubin: Cubin) -> Program:
        key = hashlib.sha256(cubin.code).hexdigest()
        program = self._programs.pop(key, None)
        if program is None:
            program = self._target.load(NO_SOURCE, cubin)
        self._programs[key] = program
        if len(self._programs) > PROGRAMS_KEPT:
            self._programs.popitem(last=False)
        return program

    def _execute(self, request: ExecuteRequest) -> tuple[Executed, ...]:
        program = self._program(request.cubin)
        return tuple(map(_executed, self._target.execute(program, request.problems)))

    def _after_timing(self, request: ExecuteRequest) -> tuple[Executed, ...]:
        program, (problem, fresh) = self._program(request.cubin), request.problems
        return tuple(map(_executed, self._target.after_timing(program, problem, fresh)))

    def _measure(self, request: MeasureRequest) -> Measured:
        timed: list[Executed] = []

        def keep(execution: Execution) -> None:
            timed.append(_executed(execution))

        against = (
            Rival(self._program(request.other), request.other_problems, request.to_the_end)
            if request.other is not None
            else None
        )
        result = self._target.measure(
            self._program(request.cubin), request.cubin, request.problems, against, keep
        )
        return Measured(result, tuple(timed))


NO_SOURCE = RenderedSource("", "", (), "", (), False)  # a GPU runs cubins


def _executed(execution: Execution) -> Executed:
    outputs = {name: np.array(image) for name, image in execution.outputs.items()}
    return Executed(execution.order, outputs, execution.failure)


def executions(
    problems: Sequence[Problem], executed: Sequence[Executed], order: str = ""
) -> list[Execution]:
    """The executions of these problems, as if they had run here."""
    if len(executed) > len(problems):
        raise Fault("an actor sent more answers than requests", code="gpu_error")
    return [
        Execution(problem, order or each.order, each.outputs, each.failure)
        for problem, each in zip(problems, executed, strict=False)
    ]


def _opened(cache: Path, run_deadline_s: float) -> CudaTarget:
    target = open_device(OWN_GPU, cache, run_deadline_s)
    assert isinstance(target, CudaTarget)
    return target
