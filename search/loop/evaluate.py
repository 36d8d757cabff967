"""Evaluates one candidate: render, compile, gates with the cheapest first, verdict."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from greenfast.search.acceptance import time_us_of
from greenfast.search.cpu_time import MACHINE_BUSY
from greenfast.search.errors import Fault, SpecError
from greenfast.search.gates import GATES, Baseline, Conditions, Gate, Subject
from greenfast.search.gates.performance import same_as_baseline
from greenfast.search.gates.promises import Siblings
from greenfast.search.gates.safety import LACKING
from greenfast.search.kernels.spec import Check, KernelSpec
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.loop.check_order import CheckOrder
from greenfast.search.loop.comparison import Peer
from greenfast.search.loop.memory import Repeats
from greenfast.search.loop.other_gpus import as_beside
from greenfast.search.loop.stage_clock import StageClock, Wait
from greenfast.search.loop.submitted_checks import also_checked
from greenfast.search.loop.twins import FindTwin, Twin, no_twin
from greenfast.search.loop.work import work_of
from greenfast.search.render import RenderedSource, RenderFailed, render
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.base import (
    Answering,
    GateLimits,
    Question,
    Runner,
    SourceRefused,
    Target,
    runner,
)
from greenfast.search.text import file_line
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain
from greenfast.search.toolchain.signature import passed_arguments, signature_fault
from greenfast.search.verdict import (
    Accepted,
    Failed,
    Faulted,
    GateResult,
    Green,
    Passed,
    PerformanceEvidence,
    Reason,
    Rejected,
    Skipped,
    Stage,
    StageSeconds,
    Timing,
    Verdict,
    performance_of,
    rejection,
)

# The baseline's times, for the comparison; None: no correct baseline.
BaselineTimes = Callable[[], "tuple[Timing, ...] | None"]


def no_baseline() -> None:
    """There is nothing to compare with, or the candidate is the baseline itself."""


FAULT_RETRIES = 2
TAKEN_FROM_TWINS = (Stage.CORRECTNESS, Stage.PERFORMANCE)  # what runs on the GPU decides


@dataclass(frozen=True)
class EvaluationContext:
    """Everything but the candidate that an evaluation needs."""

    kernel: KernelSpec
    compiled: Items
    workloads: tuple[Workload, ...]
    target: Target
    toolchain: Toolchain
    include_dirs: tuple[Path, ...]
    limits: GateLimits
    seed: int
    baseline: Candidate | None = None  # timed by a measuring target in turns with the others
    min_gain: float = 0.0
    checker: Runner | None = None  # finds races where the target itself cannot
    modeller: Runner | None = None  # models times of points for the strategy; None: none are
    mode: str = "auto"  # the state of the caches under a measured time: "auto" | "hot" | "cold"
    stop: threading.Event = field(default_factory=threading.Event, compare=False)
    best_time_us: Callable[[], float] = lambda: math.inf  # of the fastest accepted candidate so far
    check_order: CheckOrder | None = None  # of a search; None: candidates do not wait
    # greenfast.search.peers.compare.compare_peers, where there are peers
    compare_peers: Callable[..., tuple[Peer, ...]] | None = None
    closing_checks: tuple[Check, ...] | None = None  # for the confirmation; None: the kernel's
    siblings: Siblings | None = None  # enforces promises of equal results
    sizes_secret: int | None = None  # of the drawn cases; None: none are drawn
    on_result: Callable[[GateResult], None] = lambda result: None  # called after each gate
    # By workload: how much its time counts; a missing one counts 1.
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def conditions(self) -> Conditions:
        """The part of the context that gates see."""
        return Conditions(
            kernel=self.kernel,
            compiled=self.compiled,
            workloads=self.workloads,
            target=runner(self.target),
            limits=self.limits,
            seed=self.seed,
            min_gain=self.min_gain,
            mode=self.mode,
            checker=self.checker,
            siblings=self.siblings,
            sizes_secret=self.sizes_secret,
            stop=self.stop,
            weights=self.weights,
        )

    def render(self, candidate: Candidate, probe: str = "") -> RenderedSource | RenderFailed:
        """The candidate's text; with a `probe` it also writes that stage's result."""
        template = self.kernel.template(candidate.template)
        point = resolve(template, candidate.parameters, self.compiled, self.target.device)
        try:
            return render(self.kernel, template, point, self.include_dirs, probe)
        except SpecError as error:
            if not is_submitted(template.name):
                raise
            return RenderFailed(str(error), None)  # a submitted source gets a verdict

    def subject(self, candidate: Candidate, source: RenderedSource, cubin: Cubin | None) -> Subject:
        """A candidate whose text and cubin the caller already has."""
        return Subject(self.conditions, candidate, source, cubin)

    def question(
        self,
        candidate: Candidate,
        source: RenderedSource,
        baseline: tuple[Timing, ...] | None = None,
    ) -> Question:
        """For a target that answers; `baseline` holds the times to compare with."""
        workloads = tuple(workload.name for workload in self.workloads)
        weights = tuple(self.weights[name] for name in workloads) if self.weights else ()
        return Question(
            candidate, source.digest, workloads, self.limits, baseline, self.baseline, weights
        )

    @cached_property
    def prepared_baseline(self) -> Subject | None:
        """The baseline, compiled once for all candidates; None without one.

        Fault when it can no longer be compiled.
        """
        if self.baseline is None:
            return None
        prepared = prepare(self.baseline, self)
        if isinstance(prepared, Rejected):
            raise Fault(
                "the baseline, which was correct before, can no longer be compiled",
                code="baseline_lost",
            )
        return prepared


def prepare(
    candidate: Candidate,
    context: EvaluationContext,
    rendered: RenderedSource | RenderFailed | None = None,
    *,
    probe: str = "",
    with_cubin: bool = True,
) -> Subject | Rejected:
    """Render and compile `candidate`. Fault for failures that the candidate did not cause.

    `rendered` is its text where the caller has it. Without a cubin only a target that compiles
    the source itself can run it.
    """
    if rendered is None:
        rendered = context.render(candidate, probe)
    if isinstance(rendered, RenderFailed):
        return not_rendered(rendered)
    if not with_cubin:
        return context.subject(candidate, rendered, None)
    arch = context.target.device.compiled_arch(specific=rendered.arch_specific)
    compiled = context.toolchain.compile(rendered, arch)
    if isinstance(compiled, CompileFailed):
        return Rejected(Stage.COMPILE, compiled.reason, compiled.sentence, log=compiled.log)
    if wrong := _wrong_signature(candidate, rendered, compiled, context, probe):
        return Rejected(Stage.COMPILE, Reason.COMPILE_ERROR, wrong)
    try:
        _examine(candidate, rendered, context)
    except SourceRefused as refused:
        return _refused(refused)
    return context.subject(candidate, rendered, compiled)


def _wrong_signature(
    candidate: Candidate,
    source: RenderedSource,
    cubin: Cubin,
    context: EvaluationContext,
    probe: str,
) -> str:
    """How the entries differ from what a launch passes; empty when they do not."""
    kernel, template = context.kernel, context.kernel.template(candidate.template)
    point = resolve(template, candidate.parameters, context.compiled, context.target.device)
    writes = any(each.name == probe and each.writes for each in kernel.probes)
    passed = passed_arguments(kernel, template, dict(point.values), writes)
    return signature_fault(source.entries, passed, cubin.ptx, template.name)


def _examine(candidate: Candidate, source: RenderedSource, context: EvaluationContext) -> None:
    """Raise SourceRefused for a text that the target refuses, or the checker of a submission.

    The checker examines the text of a template where it checks it: most candidates of a search are
    never checked. Assembly that a template shows is no reason on a GPU: the gate `safety` claims
    nothing then.
    """
    if isinstance(context.target, Runner):
        context.target.examine(source)
    if context.checker is None or source.raw_asm or not is_submitted(candidate.template):
        return
    try:
        context.checker.examine(source)
    except Fault as fault:
        if fault.code not in LACKING:
            raise


def _refused(refused: SourceRefused) -> Rejected:
    return Rejected(Stage.COMPILE, Reason.COMPILE_ERROR, str(refused), log=refused.code)


def not_rendered(failed: RenderFailed) -> Rejected:
    """The verdict on a candidate that its template refuses."""
    place = f"{file_line(failed.line.file, failed.line.number)}: " if failed.line else ""
    return Rejected(Stage.RENDER, Reason.RENDER_ERROR, place + failed.message)


@dataclass(frozen=True)
class Evaluated:
    verdict: Verdict
    source: RenderedSource | None
    duration_s: float
    attempts: int = 1
    stage_seconds: StageSeconds = ()  # of all attempts; they add up to `duration_s`
    repeats: Repeats | None = None  # the trial with the same machine code that ran in its place


def evaluate(
    candidate: Candidate,
    context: EvaluationContext,
    baseline_times: BaselineTimes = no_baseline,
    rendered: RenderedSource | RenderFailed | None = None,
    on_timed: Callable[[Verdict], None] = lambda verdict: None,
    render_s: float = 0.0,
    find_twin: FindTwin = no_twin,
) -> Evaluated:
    """Take `candidate` through all steps. Our faults are retried, then returned as such.

    `baseline_times` is called, and may wait, when the baseline's times are needed and no sooner.
    `on_timed` gets the verdict so far when only a check on another target is to come.
    `render_s`: the seconds that `rendered` took. `find_twin` may wait until that trial has ended.
    """
    clock = StageClock(render_s)
    attempt = 0
    while True:
        attempt += 1
        clock.enter(Stage.RENDER)
        verdict: Verdict
        twin: Twin | None = None
        try:
            rendered = rendered if rendered is not None else context.render(candidate)
        except Fault as fault:
            verdict = Faulted(Stage.RENDER, fault.code, str(fault))
        else:
            verdict, twin = _verdict(
                candidate, context, rendered, baseline_times, on_timed, clock, find_twin
            )
        source = rendered if isinstance(rendered, RenderedSource) else None
        if not _is_repeated(verdict) or attempt > FAULT_RETRIES or context.stop.is_set():
            stages = clock.stop()
            took_s = sum(seconds for _, seconds in stages)
            repeats = twin.repeated_by(verdict) if twin is not None else None
            return Evaluated(verdict, source, took_s, attempt, stages, repeats)


def _is_repeated(verdict: Verdict) -> bool:
    """A fault is repeated, except where a busy machine starved a run that was repeated alone."""
    return isinstance(verdict, Faulted) and verdict.code != MACHINE_BUSY


def _verdict(
    candidate: Candidate,
    context: EvaluationContext,
    rendered: RenderedSource | RenderFailed,
    baseline_times: BaselineTimes,
    on_timed: Callable[[Verdict], None],
    clock: StageClock,
    find_twin: FindTwin,
) -> tuple[Verdict, Twin | None]:
    """The target's answer where it has one, else the gates' verdict; and the candidate's twin."""
    if isinstance(rendered, RenderFailed):
        return not_rendered(rendered), None
    twin: Twin | None = None
    try:
        if isinstance(context.target, Answering):
            clock.enter(Wait.WAITING)
            times = baseline_times()
            clock.enter(Stage.PERFORMANCE)  # a recording answers all gates at once
            return context.target.answers(context.question(candidate, rendered, times)), None
        clock.enter(Stage.COMPILE)
        subject = prepare(candidate, context, rendered)
        if isinstance(subject, Rejected):
            return subject, None
        if context.target.measures and (work := work_of(subject)) is not None:
            clock.enter(Wait.WAITING)
            twin = find_twin(work)
    except Fault as fault:
        return Faulted(Stage.COMPILE, fault.code, str(fault)), None
    return _through_gates(subject, context, baseline_times, on_timed, clock, twin), twin


def _through_gates(
    subject: Subject,
    context: EvaluationContext,
    baseline_times: BaselineTimes,
    on_timed: Callable[[Verdict], None],
    clock: StageClock,
    twin: Twin | None,
) -> Verdict:
    results: list[GateResult] = []
    times: tuple[Timing, ...] | None = None
    for gate in GATES:
        try:
            if gate.compares:
                clock.enter(Wait.WAITING)
                times = baseline_times()
            clock.enter(Stage(gate.name))
            baseline = _baseline(context, times) if gate.compares else None
            if gate.name == Stage.SAFETY:
                if context.target.measures:
                    on_timed(_right(tuple(results)))
                result = _safety(gate, subject, context, results, times, clock, twin)
            else:
                result = _known(gate, subject, baseline, twin) or gate.judge(subject, baseline)
        except SourceRefused as refused:
            return _refused(refused)
        except Fault as fault:
            return Faulted(Stage(gate.name), fault.code, str(fault), tuple(results))
        except SpecError as error:
            if error.code.startswith("reference_"):  # no candidate can be judged
                raise
            # The author's expressions have no value for this candidate.
            return Rejected(Stage.RENDER, Reason.RENDER_ERROR, str(error))
        context.on_result(result)
        if isinstance(result, Failed):
            if is_submitted(subject.candidate.template):
                clock.enter(Stage.SAFETY)
            return also_checked(subject, rejection(results, result))
        results.append(result)
    return _right(tuple(results))


def _baseline(context: EvaluationContext, timings: tuple[Timing, ...] | None) -> Baseline | None:
    """The baseline for the gates' comparison; None without times of a correct baseline."""
    if timings is None:
        return None
    measures = context.target.measures
    return Baseline(timings, context.prepared_baseline if measures else None)


def _known(
    gate: Gate, subject: Subject, baseline: Baseline | None, twin: Twin | None
) -> GateResult | None:
    """A result that the machine code has already; None: the gate has to judge."""
    if gate.name == Stage.PERFORMANCE and baseline is not None and baseline.subject is not None:
        work = work_of(subject)
        if work is not None and work == work_of(baseline.subject):
            return same_as_baseline(subject, baseline)
    return twin.result(gate.name) if twin is not None and gate.name in TAKEN_FROM_TWINS else None


def _safety(
    gate: Gate,
    subject: Subject,
    context: EvaluationContext,
    results: Sequence[GateResult],
    baseline: tuple[Timing, ...] | None,
    clock: StageClock,
    twin: Twin | None,
) -> GateResult:
    """Judge the safety of a candidate, unless it cannot become the best.

    Safety takes about a second of CPU. A candidate slower than an accepted one ends as `green`, and
    so does one that is as fast because it runs the same machine code.
    """
    time_us = measured_time_us(results, baseline)
    if time_us is None:
        return gate.judge(subject)
    before = twin.result(gate.name) if twin is not None else None
    if isinstance(before, Skipped):
        return before
    if twin is not None and isinstance(before, Passed):
        return Skipped(
            gate.name,
            f"not asked for: trial {twin.number}, which runs the same machine code, passed, and "
            "this one is no faster",
        )
    order = context.check_order or CheckOrder()
    clock.enter(Wait.WAITING)
    with order.turn(time_us, context.best_time_us, context.stop) as check:
        if check.faster_us is not None:
            return Skipped(
                gate.name,
                f"not asked for: it takes {time_us:.2f} us, and an accepted candidate that "
                f"takes {check.faster_us:.2f} us was there",
            )
        clock.enter(Stage.SAFETY)
        result = gate.judge(subject)
        check.passed = all(isinstance(each, Passed) for each in (*results, result))
        return result


def measured_time_us(
    results: Sequence[GateResult], baseline: tuple[Timing, ...] | None = None
) -> float | None:
    """The measured time of a candidate that is faster than the baseline, else None.

    It is the time on the baseline's GPU.
    """
    performance = next((result for result in results if result.gate == Stage.PERFORMANCE), None)
    if not isinstance(performance, Passed) or not isinstance(
        performance.evidence, PerformanceEvidence
    ):
        return None
    timings = as_beside(baseline, performance.evidence.timings)
    return time_us_of(timings) if timings else None


def _right(results: tuple[GateResult, ...]) -> Accepted | Green:
    """Accepted when every gate passed; green where a gate could not judge."""
    if all(isinstance(result, Passed) for result in results):
        return Accepted(results)
    return Green(results)


def settled(verdict: Verdict, result: GateResult) -> Verdict:
    """The verdict of a correct candidate after another result of one of its gates.

    The gate was skipped before, or it passed and failed on other inputs now. A candidate that was
    not faster stays rejected, with what was judged since.
    """
    results = tuple(
        result if gate.gate == result.gate and _is_news(gate, result) else gate
        for gate in verdict.gates
    )
    slower = isinstance(verdict, Rejected) and verdict.stage is Stage.PERFORMANCE
    if not (isinstance(verdict, (Accepted, Green)) or slower) or results == verdict.gates:
        return verdict
    if isinstance(result, Failed):
        return Rejected(Stage(result.gate), result.reason, result.sentence, results)
    return replace(verdict, gates=results) if slower else _right(results)


def _is_news(before: GateResult, now: GateResult) -> bool:
    return isinstance(before, Skipped) or (isinstance(before, Passed) and isinstance(now, Failed))


def timings_of(verdict: Verdict) -> tuple[Timing, ...] | None:
    evidence = performance_of(verdict)
    return evidence.timings if isinstance(evidence, PerformanceEvidence) else None
