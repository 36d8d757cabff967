"""The input of every gate, and the protocol that a gate implements."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from greenfast.search.errors import Fault
from greenfast.search.gates.promises import Siblings
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import Resolved, resolve
from greenfast.search.targets.base import GateLimits, Runner
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import GateResult, Timing


@dataclass(frozen=True)
class Conditions:
    """The conditions under which all candidates of a search are judged."""

    kernel: KernelSpec
    compiled: Items  # compile-time dims and options
    workloads: tuple[Workload, ...]
    target: Runner
    limits: GateLimits
    seed: int
    min_gain: float = 0.0  # a share of the baseline's time
    mode: str = "auto"  # the state of the caches under a measured time: "auto" | "hot" | "cold"
    checker: Runner | None = None  # finds races where the target itself cannot
    siblings: Siblings | None = None  # outputs to match bit for bit; None: nothing is compared
    sizes_secret: int | None = None  # of the drawn cases; None: none are drawn
    stop: threading.Event = field(default_factory=threading.Event, compare=False)
    # By workload: how much its time counts; a missing one counts 1.
    weights: Mapping[str, float] = field(default_factory=dict)

    def weighted(self, timings: tuple[Timing, ...]) -> tuple[Timing, ...]:
        """The timings with the weights of their workloads."""
        return tuple(
            replace(timing, weight=self.weights.get(timing.workload, 1.0)) for timing in timings
        )


@dataclass(frozen=True)
class Subject:
    """A candidate, rendered and compiled, on its way through the gates."""

    conditions: Conditions
    candidate: Candidate
    source: RenderedSource
    cubin: Cubin | None  # None: compiled only by a target that takes the source

    @property
    def kernel(self) -> KernelSpec:
        return self.conditions.kernel

    @property
    def compiled(self) -> Items:
        return self.conditions.compiled

    @property
    def workloads(self) -> tuple[Workload, ...]:
        return self.conditions.workloads

    @property
    def target(self) -> Runner:
        return self.conditions.target

    @property
    def seed(self) -> int:
        return self.conditions.seed

    @cached_property
    def template(self) -> TemplateSpec:
        return self.kernel.template(self.candidate.template)

    @cached_property
    def point(self) -> Resolved:
        return resolve(self.template, self.candidate.parameters, self.compiled, self.target.device)

    @cached_property
    def program(self) -> Any:
        """Loaded on the target when the first gate needs it."""
        return self.target.load(self.source, self.cubin)

    @property
    def machine_code(self) -> Cubin:
        """The cubin; Fault if the candidate was prepared without one."""
        if self.cubin is None:
            raise Fault("the candidate was prepared without a cubin", code="no_cubin")
        return self.cubin

    @cached_property
    def timed(self) -> tuple[Problem, ...]:
        """Each workload as it is timed, without optional outputs.

        The baseline's are laid out once for all candidates.
        """
        cases = [workload_case(workload, self.seed) for workload in self.workloads]
        return tuple(
            replace(
                lay_out(
                    self.kernel,
                    self.template,
                    self.point,
                    case,
                    self.target.timed_data(self.kernel, case),
                    optional_outputs=False,
                ),
                mode=self.conditions.mode,
            )
            for case in cases
        )

    def with_seed(self, seed: int) -> Subject:
        """The same candidate on the inputs of another seed, to be loaded again."""
        return replace(self, conditions=replace(self.conditions, seed=seed))


@dataclass(frozen=True)
class Baseline:
    """The comparison for a candidate's times."""

    timings: tuple[Timing, ...]
    subject: Subject | None  # a measuring target times it in turns with the candidate


class Gate(Protocol):
    """Judges one property. A candidate's fault is a failed result; a fault of ours is raised.

    A gate works on values alone: its arguments hold everything that it needs of the search.
    """

    name: str
    compares: bool  # whether the result depends on the baseline

    def judge(self, subject: Subject, baseline: Baseline | None = None) -> GateResult: ...
