"""What a search's process and its evaluators say to each other (evaluators.py).

Both are greenfast and trust each other, so messages are pickles. What a candidate's own process
wrote is read by that process's protocol first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.search.devices.facts import Device
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.loop.twins import Twin
from greenfast.search.loop.work import Work
from greenfast.search.render import RenderedSource, RenderFailed
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets.base import GateLimits, Runner
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Timing, Verdict

BEAT_S = 2.0  # between two signs of life of an evaluator


@dataclass(frozen=True)
class Assignment:
    """The first message of a search to an evaluator: the search, but for its candidates."""

    kernel: KernelSpec
    compiled: Items
    workloads: tuple[Workload, ...]
    toolchain: Toolchain
    include_dirs: tuple[Path, ...]
    limits: GateLimits
    seed: int
    baseline: Candidate | None
    min_gain: float
    checker: Runner | None
    mode: str
    sizes_secret: int | None
    weights: Mapping[str, float]
    target: str
    device: Device
    run_deadline_s: float
    reference_deadline_s: float | None
    keeps_promises: bool  # whether siblings are compared
    width: int  # candidates at a time
    cores: int  # its share of the machine's


@dataclass(frozen=True)
class News:
    """What the search knows by now."""

    is_baseline_known: bool
    baseline: tuple[Timing, ...] | None
    best_time_us: float


@dataclass(frozen=True)
class Order:
    """A candidate to evaluate."""

    number: int
    candidate: Candidate
    rendered: RenderedSource | RenderFailed | None
    render_s: float
    sibling: Candidate | None  # the first correct one


@dataclass(frozen=True)
class Rest:
    """The search is over. Another assignment may come."""


@dataclass(frozen=True)
class Asked:
    """An evaluator's request to a GPU (`Runner.relayed`)."""

    number: int
    request: Mapping[str, Any]


@dataclass(frozen=True)
class Answered:
    """The GPU's reply to a request, or the error instead."""

    number: int
    reply: dict[str, Any] | None
    error: Exception | None = None


@dataclass(frozen=True)
class Compiled:
    """An evaluator's question about the work of an order: which trial has run it?"""

    number: int
    work: Work


@dataclass(frozen=True)
class Known:
    """The trial that did the work of an order; None: the order has to run."""

    number: int
    twin: Twin | None


@dataclass(frozen=True)
class Alive:
    """A sign of life of an evaluator, every `BEAT_S`."""


@dataclass(frozen=True)
class Timed:
    """The verdict on a candidate but for its safety."""

    number: int
    verdict: Verdict


@dataclass(frozen=True)
class Done:
    """The result of an order, without the source, or the error that ends the search."""

    number: int
    evaluated: Evaluated | None
    error: Exception | None = None
