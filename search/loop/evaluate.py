"""One candidate's way: render -> compile -> gates, cheap first -> a verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from greenfast.search.cpu_time import MACHINE_BUSY
from greenfast.search.errors import Fault, SpecError
from greenfast.search.gates import GATES, GateLimits, Subject
from greenfast.search.gates.promises import Siblings
from greenfast.search.kernels.spec import Check, Items, KernelSpec, TemplateSpec, Workload
from greenfast.search.loop.comparison import Peer
from greenfast.search.render import RenderedSource, RenderFailed, render
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import Resolved, resolve
from greenfast.search.targets.base import Question, Target
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain
from greenfast.search.verdict import (
    Accepted,
    BaselineTimings,
    Faulted,
    GateResult,
    Green,
    Outcome,
    PerformanceEvidence,
    Reason,
    Rejected,
    Stage,
    Timing,
    Verdict,
    no_baseline,
    performance_of,
)

FAULT_RETRIES = 2


@dataclass(frozen=True)
class EvaluationContext:
    """What evaluating needs beside the candidate."""

    kernel: KernelSpec
    compiled: Items
    workloads: tuple[Workload, ...]
    target: Target
    toolchain: Toolchain
    include_dirs: tuple[Path, ...]
    limits: GateLimits
    seed: int
    cancelled: Callable[[], bool] = lambda: False
    baseline: Candidate | None = None  # what a measuring target times in turns with the others
    min_gain: float = 0.0
    checker: Target | None = None  # looks for races where the target itself does not
    mode: str = "auto"  # how measured times find the caches: "auto" | "hot" | "cold"
    best_time_us: Callable[[], float] = lambda: math.inf  # of the fastest accepted candidate so far
    compare_peers: Callable[..., tuple[Peer, ...]] | None = (
        None  # greenfast.search.peers.compare.compare_peers, where there are peers
    )
    closing_checks: tuple[Check, ...] | None = (
        None  # that a winner is confirmed on; None: the kernel's
    )
    siblings: Siblings | None = None  # what parameters that promise equal results are held to
    on_result: Callable[[GateResult], None] = lambda result: (
        None
    )  # hears of each gate's as it comes

    def render(self, candidate: Candidate) -> RenderedSource | RenderFailed:
        template = self.kernel.template(candidate.template)
        return render(
            self.kernel, template, candidate, self._point(template, candidate), self.include_dirs
        )

    def subject(
        self,
        candidate: Candidate,
        source: RenderedSource,
        cubin,
        baseline: BaselineTimings = no_baseline,
    ) -> Subject:
        template = self.kernel.template(candidate.template)
        return Subject(
            self.kernel,
            template,
            candidate,
            self.compiled,
            self._point(template, candidate),
            source,
            cubin,
            self.target,
            self.workloads,
            self.limits,
            self.seed,
            baseline,
            self.cancelled,
            lambda: self.rival if self.target.measures and baseline() is not None else None,
            self.min_gain,
            self.checker,
            self.mode,
            self.siblings,
        )

    def question(
        self, candidate: Candidate, source: RenderedSource, baseline: BaselineTimings = no_baseline
    ) -> Question:
        """What a target that knows the answer without running anything is asked."""
        return Question(
            candidate,
            source.digest,
            tuple(workload.name for workload in self.workloads),
            self.limits,
            baseline,
            self.baseline,
        )

    @cached_property
    def rival(self) -> Subject | None:
        """The baseline, ready to be timed in turns with each candidate; asked for once it was found right."""
        if self.baseline is None:
            return None
        source = self.render(self.baseline)
        cubin = (
            self.toolchain.compile(source, self.target.device.arch)
            if isinstance(source, RenderedSource)
            else None
        )
        if not isinstance(cubin, Cubin):
            raise Fault(
                "the baseline, which was right before, can no longer be compiled",
                code="baseline_lost",
            )
        return self.subject(self.baseline, source, cubin)

    def _point(self, template: TemplateSpec, candidate: Candidate) -> Resolved:
        return resolve(template, candidate.parameters, self.compiled)


@dataclass(frozen=True)
class Evaluated:
    verdict: Verdict
    source: RenderedSource | None
    duration_s: float
    attempts: int = 1


def evaluate(
    candidate: Candidate,
    context: EvaluationContext,
    baseline: BaselineTimings = no_baseline,
    rendered: RenderedSource | RenderFailed | None = None,
) -> Evaluated:
    """Take `candidate` through all steps. Our faults are retried, then returned as such."""
    started = time.monotonic()
    rendered = rendered if rendered is not None else context.render(candidate)
    source = rendered if isinstance(rendered, RenderedSource) else None
    attempt = 0
    while True:
        attempt += 1
        verdict = _through(candidate, context, rendered, baseline)
        if not _is_repeated(verdict) or attempt > FAULT_RETRIES or context.cancelled():
            return Evaluated(verdict, source, time.monotonic() - started, attempt)


def _is_repeated(verdict: Verdict) -> bool:
    """A fault is; where the machine was too busy, what was starved has been repeated by itself."""
    return isinstance(verdict, Faulted) and verdict.code != MACHINE_BUSY


def _through(
    candidate: Candidate,
    context: EvaluationContext,
    rendered: RenderedSource | RenderFailed,
    baseline: BaselineTimings,
) -> Verdict:
    if isinstance(rendered, RenderFailed):
        place = f"{rendered.line.file}:{rendered.line.number}: " if rendered.line else ""
        return Rejected(Stage.RENDER, Reason.RENDER_ERROR, place + rendered.message)
    try:
        known = context.target.answers(context.question(candidate, rendered, baseline))
        if known is not None:
            return known
        compiled = context.toolchain.compile(rendered, context.target.device.arch)
    except Fault as fault:
        return Faulted(Stage.COMPILE, fault.code, str(fault))
    if isinstance(compiled, CompileFailed):
        return Rejected(Stage.COMPILE, compiled.reason, compiled.sentence, log=compiled.log)
    return _through_gates(context.subject(candidate, rendered, compiled, baseline), context)


def _through_gates(subject: Subject, context: EvaluationContext) -> Verdict:
    results: list[GateResult] = []
    for number, gate in enumerate(GATES):
        try:
            result = _spared(gate.name, results, context.best_time_us) or gate.judge(subject)
        except (Fault, SpecError) as error:
            return Faulted(Stage(gate.name), error.code, str(error), tuple(results))
        results.append(result)
        context.on_result(result)
        if result.outcome is Outcome.FAILED:
            results += [
                GateResult(later.name, Outcome.SKIPPED, f"not reached: {gate.name} failed")
                for later in GATES[number + 1 :]
            ]
            return Rejected(Stage(gate.name), result.reason, result.sentence, tuple(results))
    return _right(tuple(results))


def _spared(
    gate: str, results: list[GateResult], best_time_us: Callable[[], float]
) -> GateResult | None:
    """Safety takes about a second of the host, so it is asked only of what would be the best: `green` is all that a
    candidate comes to that an accepted one beats."""
    if gate != Stage.SAFETY:
        return None
    time_us, best_us = measured_time_us(results), best_time_us()
    if time_us is None or time_us <= best_us:
        return None
    return GateResult(
        gate,
        Outcome.SKIPPED,
        f"not asked for: it takes {time_us:.2f} us, and an accepted candidate that "
        f"takes {best_us:.2f} us was there",
    )


def measured_time_us(results: Sequence[GateResult]) -> float | None:
    """Geometric mean over the workloads of what was measured, and found faster than the baseline."""
    found = next((result for result in results if result.gate == Stage.PERFORMANCE), None)
    if found is None or found.outcome is not Outcome.PASSED or not found.evidence.timings:
        return None
    return time_us_of(found.evidence.timings)


def time_us_of(timings: Sequence[Timing]) -> float:
    """Geometric mean over the workloads."""
    return math.exp(sum(math.log(timing.time_median_us) for timing in timings) / len(timings))


def _right(results: tuple[GateResult, ...]) -> Accepted | Green:
    """Accepted needs every gate to have said yes; what could not be judged here is at best green."""
    if all(result.outcome is Outcome.PASSED for result in results):
        return Accepted(results)
    return Green(results)


def settled(verdict: Verdict, result: GateResult) -> Verdict:
    """The verdict of a right candidate once a gate that it had been spared has judged it, or one that it passed has found
    it wrong on other inputs."""
    results = tuple(
        result if gate.gate == result.gate and _is_news(gate, result) else gate
        for gate in verdict.gates
    )
    if not isinstance(verdict, (Accepted, Green)) or results == verdict.gates:
        return verdict
    if result.outcome is Outcome.FAILED:
        return Rejected(Stage(result.gate), result.reason, result.sentence, results)
    return _right(results)


def _is_news(before: GateResult, now: GateResult) -> bool:
    return before.outcome is Outcome.SKIPPED or (
        before.outcome is Outcome.PASSED and now.outcome is Outcome.FAILED
    )


def timings_of(verdict: Verdict) -> tuple[Timing, ...] | None:
    evidence = performance_of(verdict)
    return evidence.timings if isinstance(evidence, PerformanceEvidence) else None
