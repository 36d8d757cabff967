"""Where the time of a search goes: which stage each thread was in, and what the GPU waited for.

`watched` wraps methods of the pipeline while a search runs. A thread is in one stage at a time: the
innermost of those that it has entered. Times between two stages of a trial are `other`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from bench.results import Row
from greenfast.search.gates import GATES, correctness
from greenfast.search.gates.judges import Judges
from greenfast.search.loop import evaluate as evaluation
from greenfast.search.loop import recorder
from greenfast.search.loop import run as loop
from greenfast.search.loop.check_order import CheckOrder
from greenfast.search.loop.executor import LocalExecutor
from greenfast.search.loop.flights import Flight
from greenfast.search.loop.learnt import Learnt
from greenfast.search.loop.proposer import Proposer
from greenfast.search.loop.run import SearchRun
from greenfast.search.targets.cuda.conversation import Conversation
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.target import EmulatorTarget
from greenfast.search.toolchain.nvrtc import Toolchain
from greenfast.search.verdict import Trial

OTHER, QUEUED, IN_ORDER = "other", "queued for a thread", "done, waits for its turn to be recorded"
ON_GPU = "on the GPU"
Method = Callable[..., Any]
# Methods, and what a thread that is in one is said to do. One that a change has renamed is not
# watched; a test says so.
STAGES: tuple[tuple[Any, str, str], ...] = (
    (Proposer, "_propose", "strategy: asked"),
    (Proposer, "_told", "strategy: told"),
    (Proposer, "_text", "render"),
    (Learnt, "timed_baseline", "wait: times of the baseline"),
    (recorder, "_write_all", "record"),
    (Toolchain, "compile", "compile: rest"),
    (Toolchain, "ask", "compile: NVRTC"),
    (evaluation, "_wrong_signature", "compare the signature"),
    (evaluation, "_examine", "examine the text: rest"),
    (EmulatorTarget, "examine", "examine the text"),
    (correctness, "_problems", "lay out the cases"),
    (correctness, "precompute", "references"),
    (correctness, "compare", "compare outputs"),
    (CudaTarget, "_replied", "wait: the GPU is in use"),
    (Judges, "judged", "wait: a worker judges outputs"),
    (EmulatorTarget, "_execute", "safety: checked runs"),
    (EmulatorBuild, "build_module", "safety: build the module"),
)


@dataclass(frozen=True)
class Segment:
    """A thread in one stage, without the stages inside it."""

    stage: str
    begin_s: float
    end_s: float
    name: str  # of the GPU, for its requests
    trial: str  # digest of its candidate; empty for work that belongs to none
    cpu_s: float = 0.0  # that the thread used


@dataclass
class _Thread:
    stages: list[tuple[str, str]] = field(default_factory=list)
    since_s: float = 0.0
    since_cpu_s: float = 0.0
    trial: str = ""


@dataclass
class Spans:
    """The segments of a search."""

    segments: list[Segment] = field(default_factory=list)
    evaluated_s: dict[str, float] = field(default_factory=dict)  # by candidate: its verdict's time
    _local: threading.local = field(default_factory=threading.local)

    @contextmanager
    def stage(self, stage: str, name: str = "", trial: str | None = None) -> Iterator[None]:
        thread = self._thread()
        self._cut(thread)
        outer = thread.trial
        thread.trial = outer if trial is None else trial
        thread.stages.append((stage, name))
        try:
            yield
        finally:
            self._cut(thread)
            thread.stages.pop()
            thread.trial = outer

    def split(self, stage: str, name: str, seconds: float) -> None:
        """The thread's last seconds belong to another stage than the one that it is in."""
        thread, end_s = self._thread(), time.perf_counter()
        begin_s = max(thread.since_s, end_s - seconds)
        self._cut(thread, begin_s)
        self.segments.append(Segment(stage, begin_s, end_s, name, thread.trial))
        thread.since_s = end_s

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)

    def _thread(self) -> _Thread:
        if not hasattr(self._local, "thread"):
            self._local.thread = _Thread()
        thread: _Thread = self._local.thread
        return thread

    def _cut(self, thread: _Thread, at_s: float | None = None) -> None:
        """End the thread's present segment now, or at that time. There the next one begins."""
        now, cpu = time.perf_counter() if at_s is None else at_s, time.thread_time()
        if thread.stages:
            stage, name = thread.stages[-1]
            used_s = cpu - thread.since_cpu_s
            self.segments.append(Segment(stage, thread.since_s, now, name, thread.trial, used_s))
        thread.since_s, thread.since_cpu_s = now, cpu


@contextmanager
def watched() -> Iterator[Spans]:
    """The spans of the searches that run meanwhile."""
    spans = Spans()
    with ExitStack() as stack:

        def replace(owner: Any, name: str, by: Method) -> None:
            stack.enter_context(patch.object(owner, name, by))

        for gate in GATES:
            stage = f"gate {gate.name}: rest"
            replace(type(gate), "judge", _staged(spans, type(gate), "judge", stage))
        for owner, name, stage in STAGES:
            if hasattr(owner, name):
                replace(owner, name, _staged(spans, owner, name, stage))
        replace(CheckOrder, "turn", _turn(spans))
        replace(Conversation, "_count", _counted(spans))
        replace(LocalExecutor, "submit", _submitted(spans))
        replace(loop, "evaluate", _evaluated(spans))
        replace(SearchRun, "_judged", _judged(spans))
        yield spans


def _staged(spans: Spans, owner: Any, name: str, stage: str) -> Method:
    method: Method = getattr(owner, name)

    def staged(*arguments: Any, **named: Any) -> Any:
        with spans.stage(stage):
            return method(*arguments, **named)

    return staged


def _turn(spans: Spans) -> Method:
    turn: Method = CheckOrder.turn

    @contextmanager
    def waited(*arguments: Any) -> Iterator[Any]:
        with ExitStack() as stack:
            with spans.stage("wait: a faster candidate is checked"):
                check = stack.enter_context(turn(*arguments))
            yield check

    return waited


def _counted(spans: Spans) -> Method:
    """The child had a request for itself from the reply before it on, though it came sooner."""
    count: Method = Conversation._count

    def counted(conversation: Conversation, own: Any, kind: str) -> float:
        seconds: float = count(conversation, own, kind)
        spans.split(ON_GPU, f"{conversation._child._target} {kind}", seconds)
        return seconds

    return counted


def _submitted(spans: Spans) -> Method:
    submit: Method = LocalExecutor.submit

    def submitted(executor: LocalExecutor, function: Method, *arguments: Any) -> Any:
        asked_s = time.perf_counter()
        trial = str(getattr(arguments[0], "digest", "")) if arguments else ""

        def begun(*given: Any) -> Any:
            spans.add(Segment(QUEUED, asked_s, time.perf_counter(), "", trial))
            return function(*given)

        return submit(executor, begun, *arguments)

    return submitted


def _evaluated(spans: Spans) -> Method:
    evaluate: Method = loop.evaluate

    def evaluated(candidate: Any, *rest: Any) -> Any:
        with spans.stage(OTHER, trial=candidate.digest):
            done = evaluate(candidate, *rest)
        spans.evaluated_s[candidate.digest] = time.perf_counter()
        return done

    return evaluated


def _judged(spans: Spans) -> Method:
    judged: Method = SearchRun._judged

    def in_order(run: SearchRun, flight: Flight) -> Trial:
        now, digest = time.perf_counter(), flight.proposal.candidate.digest
        spans.add(Segment(IN_ORDER, spans.evaluated_s.get(digest, now), now, "", digest))
        trial: Trial = judged(run, flight)
        return trial

    return in_order


@dataclass(frozen=True)
class Period:
    """A part of a search, in seconds of `time.perf_counter`."""

    begin_s: float
    end_s: float

    def of(self, segment: Segment) -> float:
        """Seconds of the segment within the period."""
        return max(0.0, min(self.end_s, segment.end_s) - max(self.begin_s, segment.begin_s))


def stage_rows(spans: Spans, period: Period) -> Row:
    """By stage: trials, seconds of threads and of their CPU, median and 90th percentile in ms."""
    lengths: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    cpu_s: dict[str, float] = defaultdict(float)
    for number, segment in enumerate(spans.segments):
        if (seconds := period.of(segment)) > 0:
            lengths[segment.stage][segment.trial or str(number)] += seconds
            cpu_s[segment.stage] += segment.cpu_s
    rows = {
        stage: {
            "trials": len(each),
            "thread_s": round(sum(each.values()), 2),
            "cpu_s": round(cpu_s[stage], 2),
            "median_ms": round(1e3 * statistics.median(each.values()), 1),
            "p90_ms": round(1e3 * sorted(each.values())[int(0.9 * len(each))], 1),
        }
        for stage, each in lengths.items()
    }
    return dict(sorted(rows.items(), key=lambda item: -item[1]["thread_s"]))


def idle_periods(spans: Spans, name: str, period: Period) -> list[Period]:
    """When no request of the GPU of that name was in progress."""
    busy = sorted(
        (segment.begin_s, segment.end_s)
        for segment in spans.segments
        if segment.stage == ON_GPU and segment.name.partition(" ")[0] == name
    )
    idle, at_s = [], period.begin_s
    for begin_s, end_s in busy:
        if begin_s > at_s:
            idle.append(Period(at_s, min(begin_s, period.end_s)))
        at_s = max(at_s, end_s)
        if at_s >= period.end_s:
            break
    if at_s < period.end_s:
        idle.append(Period(at_s, period.end_s))
    return idle


def waited_for(spans: Spans, idle: Sequence[Period]) -> Row:
    """By stage: how many threads were in it on average while the GPU was idle."""
    total_s = sum(each.end_s - each.begin_s for each in idle)
    threads: dict[str, float] = defaultdict(float)
    for segment in spans.segments:
        overlap = sum(each.of(segment) for each in idle)
        if overlap:
            threads[segment.stage] += overlap / total_s
    return {
        stage: round(mean, 2) for stage, mean in sorted(threads.items(), key=lambda item: -item[1])
    }


def phase_rows(spans: Spans, gpus: Sequence[str], period: Period, parts: int) -> list[Row]:
    """The search in equal parts: trials evaluated and recorded, idle shares, what was waited
    for."""
    length_s = (period.end_s - period.begin_s) / parts
    rows = []
    for part in range(parts):
        begin_s = period.begin_s + part * length_s
        phase = Period(begin_s, begin_s + length_s)
        idle = {name: idle_periods(spans, name, phase) for name in gpus}
        recorded = [
            segment
            for segment in spans.segments
            if segment.stage == IN_ORDER and phase.begin_s <= segment.end_s < phase.end_s
        ]
        rows.append(
            {
                "from_s": round(begin_s - period.begin_s, 1),
                "recorded": len(recorded),
                "evaluated": sum(
                    phase.begin_s <= at_s < phase.end_s for at_s in spans.evaluated_s.values()
                ),
                "idle_share": {
                    name: round(sum(each.end_s - each.begin_s for each in periods) / length_s, 2)
                    for name, periods in idle.items()
                },
                "threads": waited_for(spans, [phase]),
            }
        )
    return rows
