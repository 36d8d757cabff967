"""The interface to every place where candidates are tried: GPUs, the emulator, recordings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.facts import Device
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.problem import Problem
from greenfast.search.oracle.reference import case_data, inputs_alone
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import Space
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import (
    LineCost,
    Reason,
    SafetyFinding,
    Timing,
    Verdict,
)


class SourceRefused(SpecError):
    """A candidate's text has host code, evades a check, or is not CUDA C++ for a device."""

    code = "source_refused"


@dataclass(frozen=True)
class Failure:
    """A run that failed through the candidate's own fault."""

    reason: Reason
    sentence: str


@dataclass(frozen=True)
class Execution:
    """One run of a problem.

    `outputs` are whole byte images by tensor name, empty after a failure.
    """

    problem: Problem
    order: str  # the schedule: "forward", "reverse", "seeded:1", "device"
    outputs: Mapping[str, np.ndarray]
    failure: Failure | None


@dataclass(frozen=True)
class Checked:
    """One run under the target's safety checks, with their findings."""

    problem: Problem
    order: str
    findings: tuple[SafetyFinding, ...]
    tolerated: tuple[SafetyFinding, ...] = ()  # may be intended, and decide nothing
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # of one of the first runs


@dataclass(frozen=True)
class Rival:
    """Another program, laid out for the same cases, to be timed in turns with a candidate."""

    program: Any
    problems: tuple[Problem, ...]
    to_the_end: bool = False  # every block, also against a clearly slower program


@dataclass(frozen=True)
class GateLimits:
    """A request's limits on the assembler's figures; None: no limit beyond the device's."""

    max_registers: int | None = None
    max_spill_bytes: int | None = 0
    max_smem_bytes: int | None = None


@dataclass(frozen=True)
class Question:
    """A rendered candidate, for a target that may know its verdict without compiling it."""

    candidate: Candidate
    source_digest: str
    workloads: tuple[str, ...]
    limits: GateLimits
    baseline: tuple[Timing, ...] | None = None  # its times; None: nothing to compare with
    against: Candidate | None = None  # the baseline
    weights: tuple[float, ...] = ()  # of the workloads; empty: all the same


Inspect = Callable[[Execution], Failure | None]  # judges the outputs of the timed launches


class Target(ABC):
    """The place where candidates are tried: it runs them (Runner), or knows their verdicts
    (Answering). Methods raise Fault for our own failures, never for a candidate's."""

    name: str  # emulator:h200, cuda:0, replay:NAME
    device: Device
    measures: bool  # times are measured, so the performance gate can judge

    @abstractmethod
    def prepare(self) -> None:
        """Build or claim everything that later calls need, once. Fault with advice where it is
        missing."""

    def space(self, template: TemplateSpec, compiled: Items) -> Space:
        """The points that a search may try here."""
        return Space(template, compiled, self.device)

    @abstractmethod
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Everything beside the program that results depend on: device, versions."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the user of a search, such as about a GPU that dropped out, in order."""
        return ()

    @property
    def gpu_count(self) -> int:
        """The GPUs of this target, also those that dropped out."""
        return 0

    @property
    def gpu_seconds(self) -> float:
        """The seconds during which its requests occupied GPUs so far, summed over the GPUs."""
        return 0.0

    def interrupt(self) -> None:  # noqa: B027  optional
        """End current work; the calls in progress raise Fault, later ones work."""

    def close(self) -> None:  # noqa: B027  optional
        """End children, give devices back."""


class Answering(Target):
    """Knows verdicts without running anything."""

    measures = False

    @abstractmethod
    def answers(self, question: Question) -> Verdict:
        """The verdict on a candidate; Fault for a candidate that is not known here."""


class Runner(Target):
    """Runs and times programs."""

    keeps_modules = False  # `__device__` memory stays from timed launches to the next run

    band: float  # a factor: times closer than this are not told apart
    run_deadline_s = 0.0  # of one wait on a GPU
    check_flop_limit: float  # above it the correctness gate does not run a timed workload whole

    @property
    def takes_descriptions(self) -> bool:
        """Whether it answers requests of other processes of greenfast (`answered`, `relayed`)."""
        return False

    reserves_addresses = False  # runs layouts whose strides span more than its memory (oracle/far)

    def case_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        """Inputs and expected outputs of `case`, wherever they are computed fastest."""
        return case_data(kernel, case)

    def timed_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        """The data of a timed case: a model needs no expected outputs, which may take long."""
        is_small = case.flop(kernel) <= self.check_flop_limit
        if self.measures or is_small:
            return self.case_data(kernel, case)
        return inputs_alone(kernel, case)

    def examine(self, source: RenderedSource) -> None:
        """Raise SourceRefused for a text that may not be run or checked here."""

    @abstractmethod
    def load(self, source: RenderedSource, cubin: Cubin | None) -> Any:
        """A program for the other methods, opaque to everybody else. Only a target that compiles
        the source itself can do without a cubin."""

    @abstractmethod
    def execute(self, program: Any, problems: Sequence[Problem]) -> Iterator[Execution]:
        """Run the problems in order, one execution each, stopping when the consumer stops."""

    @abstractmethod
    def measure(
        self,
        program: Any,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        """The time of each problem. A target that measures times `against` in turn with the program
        and passes the outputs of the timed launches to `inspect`; a model needs neither."""

    def after_timing(self, program: Any, problem: Problem, fresh: Problem) -> Iterator[Execution]:
        """Executions of `fresh`, which has other inputs, after `problem` was timed.

        A target that measures repeats the timed launches with these inputs in the same places.
        """
        return self.execute(program, (fresh,))

    def answered(
        self, program: Any, problems: Mapping[str, Any]
    ) -> AbstractContextManager[tuple[Mapping[str, Any], Path]]:
        """The reply to a request to run problems that another process has described, and the file
        of their outputs, which is there until the block ends; where `takes_descriptions`."""
        raise NotImplementedError

    def relayed(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request that another process has written, where `takes_descriptions`.

        The request names the file for its outputs. Fault when the GPU does not answer.
        """
        raise NotImplementedError

    def check(
        self, program: Any, problems: Sequence[Problem], *, is_called_once: bool = False
    ) -> Iterator[Checked] | None:
        """Run the problems under the safety checks, one run each.

        If the program keeps something from call to call, one of them runs again, called repeatedly;
        not where it `is_called_once`, and its host may set all that it keeps before each call.

        None if the target has no checks.
        """
        return None

    def line_costs(self, program: Any, problem: Problem) -> tuple[LineCost, ...] | Failure:
        """The memory cost of each line in a sample of the problem's blocks; empty if lines are
        not counted."""
        return ()

    def fresh(self) -> None:
        """Use a new process from now on, where that matters to a time."""

    def lane(self) -> Runner:
        """One device of a target that has several, for work that must stay in one process."""
        return self


def runner(target: Target) -> Runner:
    """The target, if it runs code; UsageError `replay_runs_nothing` for one that only answers."""
    if isinstance(target, Runner):
        return target
    raise UsageError(
        f"{target.name} answers from a record and runs nothing",
        code="replay_runs_nothing",
        mend="use emulator:h200 or cuda:0",
    )
