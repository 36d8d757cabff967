"""Runs kernel libraries in gf-emulate processes, which can be killed and are limited.

Reports come back on a private pipe as JSON lines. A line that says how far the work has come is
believed only with the job's secret, which candidate code cannot read. Other output is ignored.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from greenfast.search.children import kill_group
from greenfast.search.cpu_time import (
    LOOK_S,
    Deadline,
    Watch,
    beside_others,
    busiest_s,
    resident_bytes,
    threads_s,
)
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.job import check_run, job_lines
from greenfast.search.targets.emulator.job_files import JobFiles
from greenfast.search.targets.emulator.report_events import has_shape, with_waiting
from greenfast.search.targets.emulator.results import run_result
from greenfast.search.targets.emulator.runs import (
    Buffer,
    CanaryDamage,
    Counters,
    Launch,
    LineCounters,
    NullArgument,
    PackedArgument,
    PointerArgument,
    Run,
    RunFault,
    RunResult,
    ScalarArgument,
    TensorMapArgument,
)

__all__ = [
    "Buffer",
    "CanaryDamage",
    "Counters",
    "Launch",
    "LineCounters",
    "NullArgument",
    "PackedArgument",
    "PointerArgument",
    "Run",
    "RunFault",
    "RunResult",
    "ScalarArgument",
    "TensorMapArgument",
    "execute",
    "interrupt",
]

EXIT_CRASH = 80
EXIT_OURS = 81
EXIT_TWICE = 82
# Events that are written while candidate code runs.
DURING_A_RUN = ("fault", "finding", "waiting_finding", "explained")
WITH_TAG = (*DURING_A_RUN, "ours")
MORE_MEMORY = "use a machine with more free memory, or a higher limit (`ulimit -v`)"
TOO_MUCH_MEMORY = {"event": "memory"}  # of this process's own, which no line gives
STACK_BYTES = 128 * 1024  # of a thread: StackPool::stack_bytes of native/context.h
LOADING_GRACE_S = 20.0
LONGEST_LINE_BYTES = 64 * 2**20
MOST_EVENTS = 1024  # of faults and findings a run; the emulator sends fewer
REPORTING_GRACE_S = 2.0  # for a run to end itself, with the line that it is in
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU)  # from the system or from us


def execute(
    build: EmulatorBuild,
    module: Module,
    runs: Sequence[Run],
    *,
    workers: int,
    deadline_s: float,
    memory_bytes: int,
    on_result: Callable[[RunResult], None] | None = None,
    wall_guard_s: float | None = None,
) -> tuple[RunResult, ...]:
    """One result per run, in order. A run that kills its process costs no other run.

    `deadline_s` holds for each run and is processor time of the run's busiest thread. The runs
    after one that exceeds it are `not_run`. A run that does not get that much processor time
    within `wall_guard_s` is repeated without other children beside it.
    `memory_bytes` limits a process's memory: buffers, stacks and some 200 MB of libraries. It also
    limits its address space, apart from the stacks of blocks that wait for each other.

    UsageError for a run that cannot be executed. Fault when the emulator itself failed, or got too
    little processor time twice.
    """
    build.prepare()
    for run in runs:
        check_run(module, run)
    deadline = (
        Deadline.of(deadline_s) if wall_guard_s is None else Deadline(deadline_s, wall_guard_s)
    )
    results: list[RunResult] = []
    interrupts = _interrupts.count

    def deliver(result: RunResult) -> None:
        results.append(result)
        if on_result is not None:
            on_result(result)

    def execute_pending() -> bool:
        if interrupts != _interrupts.count:
            raise Fault("the emulator was interrupted", code="interrupted")
        batch = _Batch(build, module, runs[len(results) :])
        try:
            batch.start(workers, deadline_s, memory_bytes)
            return batch.follow(deadline.later(REPORTING_GRACE_S), memory_bytes, deliver)
        finally:
            batch.stop()

    while len(results) < len(runs):
        if beside_others(execute_pending, "an emulated run"):
            for run in runs[len(results) :]:
                deliver(RunResult(run.name, "not_run"))
    return tuple(results)


def interrupt() -> None:
    """Kill every run in progress in this process.

    Their `execute` calls raise Fault; later calls work.
    """
    _interrupts.count += 1
    with _live_lock:
        for batch in _live:
            batch.kill()


def _stack_bytes(run: Run) -> int:
    """Address space for the stacks of all blocks that may wait for each other.

    Each worker keeps the stacks that it once needed, and all blocks may have been one worker's.
    A run has no launches if a zero is in the grid of each.
    """
    threads = (
        min(math.prod(launch.grid), launch.resident_blocks) * math.prod(launch.block)
        for launch in run.launches
    )
    return STACK_BYTES * max(threads, default=0)


@dataclass
class _Interrupts:
    count: int = 0


# The running processes, for `interrupt`, which has no handle on the calls that wait for them.
_live: set[_Batch] = set()
_interrupts = _Interrupts()
_live_lock = threading.Lock()


@dataclass(eq=False)
class _Batch:
    """One gf-emulate process over some runs."""

    build: EmulatorBuild
    module: Module
    runs: Sequence[Run]
    files: JobFiles = field(default_factory=JobFiles)
    process: subprocess.Popen[bytes] | None = None
    report_fd: int = -1
    secret: str = field(default_factory=lambda: secrets.token_hex(16))
    tag: str = field(default_factory=lambda: secrets.token_hex(8))

    def start(self, workers: int, deadline_s: float, memory_bytes: int) -> None:
        self.module.require()
        lines = job_lines(self.module, self.runs, self.files, deadline_s)
        self.files.seal((f"{self.secret} {self.tag}", *lines))
        self.report_fd, write_fd = os.pipe()
        cpu_s = int(workers * deadline_s * len(self.runs) + LOADING_GRACE_S)
        try:
            self.process = subprocess.Popen(
                [
                    str(self.build.executable),
                    *map(str, self.files.descriptors),
                    str(write_fd),
                    str(workers),
                    str(memory_bytes + workers * max(map(_stack_bytes, self.runs), default=0)),
                    str(cpu_s),
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                pass_fds=(*self.files.descriptors, write_fd),
                start_new_session=True,
            )
        except OSError as error:
            raise Fault(
                f"gf-emulate cannot be started: {error.strerror}", code="emulator_start"
            ) from error
        finally:
            os.close(write_fd)
            self.files.close_job()
        with _live_lock:
            _live.add(self)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            kill_group(self.process)

    def follow(
        self, deadline: Deadline, memory_bytes: int, deliver: Callable[[RunResult], None]
    ) -> bool:
        """Deliver results until the process ends; True when a run exceeded its deadline.

        Starved when it got too little of the processor.
        """
        done = 0
        # Whether code of the candidate may have run since: before that, any failure is ours.
        begun = False
        open_faults: list[dict[str, Any]] = []  # and findings
        for event in self._events(deadline, memory_bytes):
            run = self.runs[done]
            if event is None:
                self.kill()
                if not begun:
                    raise Fault(
                        f"the emulator did not begin run {run.name!r}", code="emulator_stalled"
                    )
                spent_s = deadline.cpu_s - REPORTING_GRACE_S
                late = RunFault("timeout", f"the run did not end within {spent_s:g} s")
                deliver(self._lost(run, open_faults, "timeout", late))
                return True
            if event is TOO_MUCH_MEMORY:
                self.kill()
                sentence = f"the run's threads use more than {memory_bytes >> 20:,} MiB of memory"
                deliver(self._lost(run, open_faults, "crash", RunFault("out_of_memory", sentence)))
                return False
            if event["event"] == "ours":
                raise Fault(
                    f"the emulator could not run {run.name!r}: {event['why']}",
                    code="emulator_failed",
                    mend=MORE_MEMORY if event["why"] == "memory" else "",
                )
            if event["event"] in ("load", "begin"):
                begun = True
            elif event["event"] == "fault" and event["kind"] == "unsupported":
                self.kill()
                raise Fault(
                    f"the emulator cannot run {run.name!r}: {event['sentence']}",
                    code="emulator_unsupported",
                )
            elif event["event"] in DURING_A_RUN:
                if len(open_faults) < MOST_EVENTS:
                    open_faults.append(event)
            elif event["event"] == "end":
                deliver(run_result(self.module, run, open_faults, event, self.files.outputs(done)))
                open_faults, begun = [], False
                done += 1
                if done == len(self.runs):
                    return False
        result = self._died(self.runs[done], begun, open_faults)
        deliver(result)
        return result.status == "timeout"

    def stop(self) -> None:
        with _live_lock:
            _live.discard(self)
        self.kill()
        self.files.close()
        if self.report_fd >= 0:
            os.close(self.report_fd)
            self.report_fd = -1

    def _watch(self, deadline: Deadline) -> Watch:
        pid = self._started().pid
        since = threads_s(pid)
        return Watch(deadline, lambda: busiest_s(pid, since))

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise Fault("gf-emulate has not been started", code="emulator_start")
        return self.process

    def _events(self, deadline: Deadline, memory_bytes: int) -> Iterator[dict[str, Any] | None]:
        """Events that are believed, as they arrive; None when a run's deadline passed.

        The last one is TOO_MUCH_MEMORY if the process then has more than `memory_bytes`.
        """
        buffered = b""
        watch = self._watch(Deadline(deadline.cpu_s + LOADING_GRACE_S, deadline.wall_s))
        with selectors.DefaultSelector() as selector:
            selector.register(self.report_fd, selectors.EVENT_READ)
            while True:
                if not selector.select(LOOK_S):
                    if watch.is_over():
                        yield None
                        return
                    if resident_bytes(self._started().pid) > memory_bytes:
                        yield TOO_MUCH_MEMORY
                        return
                    continue
                chunk = os.read(self.report_fd, 1 << 20)
                if not chunk:
                    return
                *lines, buffered = (buffered + chunk).split(b"\n")
                if len(buffered) > LONGEST_LINE_BYTES:
                    raise Fault(
                        f"a line of the emulator's report exceeds {LONGEST_LINE_BYTES:,} bytes",
                        code="emulator_lost",
                    )
                for event in filter(None, map(self._parse, lines)):
                    if event["event"] not in DURING_A_RUN:
                        watch = self._watch(deadline)
                    yield event

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        """The event of a line; None: it lacks the secret, or the tag or shape, that it needs."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(event, dict):
            return None
        if event.get("event") in WITH_TAG:
            return event if event.get("tag") == self.tag and has_shape(event) else None
        return event if event.get("secret") == self.secret else None

    def _died(self, run: Run, begun: bool, open_faults: list[dict[str, Any]]) -> RunResult:
        returncode = self._started().wait()
        if begun and returncode == EXIT_CRASH and open_faults:
            ended_itself = any(event.get("kind") == "timeout" for event in open_faults)
            return self._lost(run, open_faults, "timeout" if ended_itself else "crash", None)
        if begun and -returncode not in OUTSIDE_SIGNALS and returncode != EXIT_OURS:
            last = RunFault("device_fault", _end_of(returncode))
            return self._lost(run, open_faults, "crash", last)
        raise Fault(
            f"gf-emulate ended with exit code {returncode} during run {run.name!r}",
            code="emulator_lost",
        )

    def _lost(
        self, run: Run, open_faults: list[dict[str, Any]], status: str, last: RunFault | None
    ) -> RunResult:
        partial = run_result(self.module, run, with_waiting(open_faults), None, {})
        faults = partial.faults + ((last,) if last else ())
        return RunResult(run.name, status, faults, partial.notes, partial.findings)


def _end_of(returncode: int) -> str:
    """The reason why a run's process ended without a report."""
    if returncode < 0:
        return f"{signal.Signals(-returncode).name} ended the run's process"
    if returncode == EXIT_TWICE:
        return "a crash while a fault was reported ended the run's process"
    return f"the run's process ended with exit code {returncode} and without a report"
