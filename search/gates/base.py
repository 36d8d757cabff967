"""What a gate is given, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from greenfast.search.gates.promises import Siblings
from greenfast.search.kernels.spec import Items, KernelSpec, TemplateSpec, Workload
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import Resolved
from greenfast.search.targets.base import GateLimits, Target
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import BaselineTimings, GateResult, Outcome, no_baseline


@dataclass
class Subject:
    """A compiled candidate on its way through the gates."""

    kernel: KernelSpec
    template: TemplateSpec
    candidate: Candidate
    compiled: Items  # compile-time dims and options
    point: Resolved
    source: RenderedSource
    cubin: Cubin
    target: Target
    workloads: tuple[Workload, ...]
    limits: GateLimits
    seed: int
    baseline: BaselineTimings = no_baseline
    cancelled: Callable[[], bool] = lambda: False
    rival: Callable[[], Subject | None] = (
        no_baseline  # the baseline, compiled: a measuring target times it in turns with this
    )
    min_gain: float = 0.0  # a share of the baseline's time
    checker: Target | None = None  # looks for races where the target itself does not
    mode: str = "auto"  # how measured times find the caches
    siblings: Siblings | None = (
        None  # what the search's right candidates left; None: nothing is compared with them
    )

    @cached_property
    def program(self) -> Any:
        """Loaded on the target when the first gate needs it."""
        return self.target.load(self.source, self.cubin)


class Gate(Protocol):
    """Judges one thing. A candidate's fault is a failed result; a fault of ours is raised."""

    name: str

    def judge(self, subject: Subject) -> GateResult: ...


def passed(gate: str, sentence: str, evidence: Any) -> GateResult:
    return GateResult(gate, Outcome.PASSED, sentence, evidence)


def unavailable(gate: str, sentence: str, evidence: Any = None) -> GateResult:
    return GateResult(gate, Outcome.UNAVAILABLE, sentence, evidence)
