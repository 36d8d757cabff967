"""The seam to whatever runs a candidate: real GPUs, the CPU emulator, recordings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenfast.search.devices.facts import Device
from greenfast.search.kernels.spec import Items, KernelSpec, TemplateSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import Problem
from greenfast.search.oracle.reference import CaseData, case_data
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import Space
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import (
    BaselineTimings,
    LineCost,
    Reason,
    SafetyFinding,
    Timing,
    Verdict,
    no_baseline,
)


@dataclass(frozen=True)
class Failure:
    """A run that ended badly, and that was the candidate's doing."""

    reason: Reason
    sentence: str


@dataclass(frozen=True)
class Execution:
    """One run of a problem. `outputs` are whole byte images by tensor name, empty after a failure."""

    problem: Problem
    order: str  # the schedule: "forward", "reverse", "seeded:1", "device"
    outputs: Mapping[str, np.ndarray]
    failure: Failure | None


@dataclass(frozen=True)
class Checked:
    """One run under the target's safety checks; `findings` is empty when they saw nothing."""

    problem: Problem
    order: str
    findings: tuple[SafetyFinding, ...]


@dataclass(frozen=True)
class Rival:
    """Another program, laid out for the same cases: what a measured time is compared with, in turns."""

    program: Any
    problems: tuple[Problem, ...]
    to_the_end: bool = False  # every block, also against a clearly slower program


@dataclass(frozen=True)
class GateLimits:
    """What a request may ask of the assembler's figures; None: no limit beyond the device's."""

    max_registers: int | None = None
    max_spill_bytes: int | None = 0
    max_smem_bytes: int | None = None


@dataclass(frozen=True)
class Question:
    """A rendered candidate, asked of a target that may know the answer without compiling it."""

    candidate: Candidate
    source_digest: str
    workloads: tuple[str, ...]
    limits: GateLimits
    baseline: BaselineTimings = no_baseline
    against: Candidate | None = None  # the baseline


Inspect = Callable[[Execution], Failure | None]  # what the timed launches left, judged


class Target(ABC):
    """Runs and times programs. Methods raise Fault for what is our doing, never for the candidate's."""

    name: str  # emulator:h200, cuda:0
    device: Device
    measures: bool  # times are measured, so the performance gate can judge
    band: float  # a factor: times closer than this are not told apart
    check_flop_limit: (
        float  # a timed workload above this is not executed whole by the correctness gate
    )

    @abstractmethod
    def prepare(self) -> None:
        """Build or claim what runs need, once. Fault with a mend when something is missing."""

    def case_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        """Inputs and expected outputs of `case`, wherever they are computed fastest."""
        return case_data(kernel, case)

    @abstractmethod
    def load(self, source: RenderedSource, cubin: Cubin) -> Any:
        """A program that `execute` and `measure` take; opaque to everybody else."""

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
        """The time of each problem. A target that measures times `against` in turn with the program, and shows
        what the timed launches left to `inspect`; one that models needs neither."""

    def space(self, template: TemplateSpec, compiled: Items) -> Space:
        """The points that can be asked for here."""
        return Space(template, compiled, self.device)

    def answers(self, question: Question) -> Verdict | None:
        """The whole verdict, where it is known already (a recording); None: the candidate has to go through the gates."""
        return None

    def check(self, program: Any, problems: Sequence[Problem]) -> Iterator[Checked] | None:
        """Run the problems under the safety checks, one each; None when this target has no such checks."""
        return None

    def line_costs(self, program: Any, problem: Problem) -> tuple[LineCost, ...] | Failure:
        """What each line does to memory in a sample of the problem's blocks; empty when it is not counted here."""
        return ()

    @abstractmethod
    def identity(self) -> tuple[tuple[str, str], ...]:
        """What its results depend on, beside the program: device, versions."""

    def fresh(self) -> None:
        """What runs next runs in a new process, where that matters to a time."""

    def interrupt(self) -> None:
        """End what runs now; the calls in progress raise Fault, later ones work."""

    def close(self) -> None:
        """End children, give devices back."""
