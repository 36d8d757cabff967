"""Runs kernel libraries in gf-emulate processes: killable, limited, and believed only on a private pipe.

The job file is lines of words: `nonce`, `module`, then for each run `run`, `order`, `count`, `check`,
`outputs`, its `buffer`s, `argument`s and `launch`es. Reports come back as JSON lines with the job's nonce.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import selectors
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.children import kill_group
from greenfast.search.cpu_time import LOOK_S, Deadline, Watch, beside_others, busiest_s, threads_s
from greenfast.search.errors import Fault, UsageError
from greenfast.search.targets.emulator.answers import run_result
from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.runs import (
    Argument,
    Buffer,
    CanaryDamage,
    Counters,
    Index3,
    Launch,
    LineCounters,
    NullArgument,
    PointerArgument,
    Run,
    RunFault,
    RunResult,
    ScalarArgument,
)

__all__ = [
    "Buffer",
    "CanaryDamage",
    "Counters",
    "Launch",
    "LineCounters",
    "NullArgument",
    "PointerArgument",
    "Run",
    "RunFault",
    "RunResult",
    "ScalarArgument",
    "execute",
    "interrupt",
]

EXIT_CRASH = 80
EXIT_OURS = 81
LOADING_GRACE_S = 20.0
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU)  # from the system or from us
SCALAR_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "float32": "<f", "float64": "<d"}
LARGEST_DYNAMIC_SHARED_BYTES = 1 << 20
LARGEST_CLUSTER_BLOCKS = 16  # sm_90; more than 8 need the kernel's consent there
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ORDER = re.compile(r"forward|reverse|seeded:\d+")


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
    """One result a run, in order. `deadline_s` is each run's; after one that outlasts it the rest is not run.

    The deadline is processor time, of the run's busiest thread. A run that does not get it within `wall_guard_s` is
    repeated without other children beside it, and is then a Fault.
    A run that kills its process costs no other run. `memory_bytes` limits a process's address space: buffers,
    stacks (128 KiB a thread and worker) and some 200 MB of libraries. Raises UsageError for a run that makes
    no sense and Fault when the emulator itself could not do its work.
    """
    build.prepare()
    for run in runs:
        _check(module, run)
    deadline = (
        Deadline.of(deadline_s) if wall_guard_s is None else Deadline(deadline_s, wall_guard_s)
    )
    results: list[RunResult] = []
    interrupts = _interrupts

    def deliver(result: RunResult) -> None:
        results.append(result)
        if on_result is not None:
            on_result(result)

    def execute_pending() -> bool:
        if interrupts != _interrupts:
            raise Fault("the emulator was interrupted", code="interrupted")
        with tempfile.TemporaryDirectory(prefix="gf-emulate-") as work:
            batch = _Batch(build, module, runs[len(results) :], Path(work))
            try:
                batch.start(workers, deadline_s, memory_bytes)
                return batch.follow(deadline, deliver)
            finally:
                batch.stop()

    while len(results) < len(runs):
        if beside_others(execute_pending, "an emulated run"):
            for run in runs[len(results) :]:
                deliver(RunResult(run.name, "not_run"))
    return tuple(results)


def interrupt() -> None:
    """Kill every run in progress in this process: their `execute` calls raise Fault, later ones work."""
    global _interrupts
    _interrupts += 1
    with _live_lock:
        for batch in _live:
            batch.kill()


# The processes under way, for `interrupt`, which has no handle on the calls that wait for them.
_live: set[_Batch] = set()
_interrupts = 0
_live_lock = threading.Lock()


@dataclass(eq=False)
class _Batch:
    """One gf-emulate process over some runs."""

    build: EmulatorBuild
    module: Module
    runs: Sequence[Run]
    work: Path
    process: subprocess.Popen | None = None
    report_fd: int = -1
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    def start(self, workers: int, deadline_s: float, memory_bytes: int) -> None:
        job = self.work / "job"
        job.write_text("".join(f"{line}\n" for line in self._job_lines()))
        self.report_fd, write_fd = os.pipe()
        cpu_s = int(workers * deadline_s * len(self.runs) + LOADING_GRACE_S)
        try:
            self.process = subprocess.Popen(
                [
                    str(self.build.executable),
                    str(job),
                    str(write_fd),
                    str(workers),
                    str(memory_bytes),
                    str(cpu_s),
                ],
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"LC_ALL": "C"},
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        except OSError as error:
            raise Fault(
                f"gf-emulate cannot be started: {error.strerror}", code="emulator_start"
            ) from error
        finally:
            os.close(write_fd)
        with _live_lock:
            _live.add(self)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            kill_group(self.process)

    def follow(self, deadline: Deadline, deliver: Callable[[RunResult], None]) -> bool:
        """Deliver results until the process ends; True when the run at work outlasted its deadline.

        Starved when it got too little of the processor.
        """
        done = 0
        begun = False  # the run `done`; before that, whatever happens is ours
        open_faults: list[dict[str, Any]] = []  # and findings
        for event in self._events(deadline):
            run = self.runs[done]
            if event is None:
                self.kill()
                if not begun:
                    raise Fault(
                        f"the emulator did not come to run {run.name!r}", code="emulator_stalled"
                    )
                late = RunFault("timeout", f"the run was not over after {deadline.cpu_s:g} s")
                deliver(self._lost(run, open_faults, "timeout", late))
                return True
            if event["event"] == "ours":
                raise Fault(
                    f"the emulator could not run {run.name!r}: {event['why']}",
                    code="emulator_failed",
                    mend="a larger memory_bytes" if event["why"] == "memory" else "",
                )
            if event["event"] == "begin":
                begun = True
            elif event["event"] in ("fault", "finding"):
                open_faults.append(event)
            elif event["event"] == "end":
                deliver(run_result(self.module, run, open_faults, event, self._outputs(done)))
                open_faults, begun = [], False
                done += 1
                if done == len(self.runs):
                    return False
        deliver(self._died(self.runs[done], begun, open_faults))
        return False

    def stop(self) -> None:
        with _live_lock:
            _live.discard(self)
        self.kill()
        if self.report_fd >= 0:
            os.close(self.report_fd)
            self.report_fd = -1

    def _watch(self, deadline: Deadline) -> Watch:
        since = threads_s(self.process.pid)
        return Watch(deadline, lambda: busiest_s(self.process.pid, since))

    def _events(self, deadline: Deadline) -> Iterator[dict[str, Any] | None]:
        """Events of our nonce as they come; None when a run's deadline passed."""
        buffered = b""
        watch = self._watch(Deadline(deadline.cpu_s + LOADING_GRACE_S, deadline.wall_s))
        with selectors.DefaultSelector() as selector:
            selector.register(self.report_fd, selectors.EVENT_READ)
            while True:
                if not selector.select(LOOK_S):
                    if watch.is_over():
                        yield None
                        return
                    continue
                chunk = os.read(self.report_fd, 1 << 20)
                if not chunk:
                    return
                *lines, buffered = (buffered + chunk).split(b"\n")
                for event in filter(None, map(self._parse, lines)):
                    if event["event"] not in ("fault", "finding"):
                        watch = self._watch(deadline)
                    yield event

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = json.loads(line)
        except ValueError:
            return None
        return event if isinstance(event, dict) and event.get("nonce") == self.nonce else None

    def _died(self, run: Run, begun: bool, open_faults: list[dict[str, Any]]) -> RunResult:
        returncode = self.process.wait()
        if begun and returncode == EXIT_CRASH and open_faults:
            return self._lost(run, open_faults, "crash", None)
        if begun and returncode < 0 and -returncode not in OUTSIDE_SIGNALS:
            name = signal.Signals(-returncode).name
            return self._lost(
                run,
                open_faults,
                "crash",
                RunFault("device_fault", f"the run's process died of {name}"),
            )
        raise Fault(
            f"gf-emulate ended with {returncode} while it ran {run.name!r}", code="emulator_lost"
        )

    def _lost(
        self, run: Run, open_faults: list[dict[str, Any]], status: str, last: RunFault | None
    ) -> RunResult:
        partial = run_result(self.module, run, open_faults, None, {})
        faults = partial.faults + ((last,) if last else ())
        return RunResult(run.name, status, faults, partial.notes, partial.findings)

    def _outputs(self, index: int) -> dict[str, np.ndarray]:
        outputs = {}
        for buffer in self.runs[index].buffers:
            if buffer.role == "output":
                path = self.work / f"out{index}_{buffer.name}"
                outputs[buffer.name] = np.fromfile(path, dtype=np.uint8)
                path.unlink()
        return outputs

    def _job_lines(self) -> Iterator[str]:
        images: dict[int, Path] = {}
        yield f"nonce {self.nonce}"
        yield f"module {self.module.path}"
        for index, run in enumerate(self.runs):
            yield f"run {index}"
            yield f"order {run.order.replace(':', ' ')}"
            yield f"count {int(run.count)}"
            if run.check:
                yield "check 1"
            yield f"outputs {self.work}/out{index}_"
            for buffer in run.buffers:
                words = self._fill_words(buffer, images)
                yield f"buffer {buffer.name} {buffer.role} {buffer.image.nbytes} {words}"
            for argument in run.arguments:
                yield f"argument {_argument_words(argument, run.buffers)}"
            for launch in run.launches:
                yield (
                    f"launch {launch.entry} {' '.join(map(str, (*launch.grid, *launch.block)))} "
                    f"{launch.smem_dynamic_bytes} {' '.join(map(str, _cluster(self.module, launch)))}"
                )
                if launch.sample:
                    yield f"sample {' '.join(map(str, _sample(self.module, launch)))}"
                if launch.arguments is not None:
                    yield "own_arguments"
                for argument in launch.arguments or ():
                    yield f"launch_argument {_argument_words(argument, run.buffers)}"

    def _fill_words(self, buffer: Buffer, images: dict[int, Path]) -> str:
        if buffer.filled != "image":
            return buffer.filled
        key = id(buffer.image)  # one file for an array that several runs share
        if key not in images:
            images[key] = self.work / f"image{len(images)}"
            np.ascontiguousarray(buffer.image).tofile(images[key])
        return f"image {images[key]}"


def _cluster(module: Module, launch: Launch) -> Index3:
    """What the kernel's text says goes before the launch."""
    return dict(module.clusters).get(launch.entry, launch.cluster)


def _sample(module: Module, launch: Launch) -> list[int]:
    """Without those that a grid has no more, once the kernel's text makes clusters of its blocks."""
    clusters = math.prod(launch.grid) // math.prod(_cluster(module, launch))
    return [number for number in launch.sample if number < clusters]


def _argument_words(argument: Argument, buffers: Sequence[Buffer]) -> str:
    if isinstance(argument, NullArgument):
        return "null"
    if isinstance(argument, PointerArgument):
        index = next(i for i, buffer in enumerate(buffers) if buffer.name == argument.buffer)
        return f"pointer {index} {argument.offset_bytes}"
    raw = struct.pack(SCALAR_FORMATS[argument.ctype], argument.value)
    return f"scalar {int.from_bytes(raw, 'little')}"


def _check(module: Module, run: Run) -> None:
    def refuse(message: str) -> None:
        raise UsageError(f"run {run.name!r}: {message}", code="emulator_run")

    names = [buffer.name for buffer in run.buffers]
    if len(set(names)) != len(names) or not all(_NAME.fullmatch(name) for name in names):
        refuse(
            f"buffer names must be different words of letters, digits, '_', '.' and '-', not {names}"
        )
    if not _ORDER.fullmatch(run.order):
        refuse(f"unknown order {run.order!r}; known: forward, reverse, seeded:<n>")
    if run.count and module.flavour != "counted":
        refuse("counters need a module of flavour counted")
    if run.check and module.flavour != "checked":
        refuse("checks need a module of flavour checked")
    for buffer in run.buffers:
        if buffer.role not in ("input", "output", "workspace") or buffer.filled not in (
            "image",
            "poison",
            "zero",
        ):
            refuse(f"buffer {buffer.name!r} has role {buffer.role!r} and fill {buffer.fill!r}")
    own = (one for launch in run.launches for one in launch.arguments or ())
    for argument in (*run.arguments, *own):
        if isinstance(argument, PointerArgument) and argument.buffer not in names:
            refuse(f"a pointer names the buffer {argument.buffer!r}; known: {', '.join(names)}")
        if isinstance(argument, ScalarArgument) and argument.ctype not in SCALAR_FORMATS:
            refuse(f"unknown scalar type {argument.ctype!r}; known: {', '.join(SCALAR_FORMATS)}")
    for launch in run.launches:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if launch.entry not in module.entries:
            refuse(f"unknown entry {launch.entry!r}; known: {', '.join(module.entries)}")
        if not 1 <= threads <= 1024 or min(*launch.grid, *launch.block) < 1:
            refuse(
                f"{launch.entry}: grid {launch.grid}, block {launch.block}; a block has 1 to 1024 threads"
            )
        cluster = _cluster(module, launch)
        if launch.cluster not in ((1, 1, 1), cluster):
            refuse(
                f"{launch.entry}: a cluster {launch.cluster}, but the kernel's __cluster_dims__ are {cluster}"
            )
        if min(cluster) < 1 or math.prod(cluster) > LARGEST_CLUSTER_BLOCKS:
            refuse(
                f"{launch.entry}: a cluster {cluster}; it has 1 to {LARGEST_CLUSTER_BLOCKS} blocks"
            )
        if any(blocks % size for blocks, size in zip(launch.grid, cluster, strict=True)):
            refuse(f"{launch.entry}: the cluster {cluster} does not divide the grid {launch.grid}")
        if not 0 <= launch.smem_dynamic_bytes <= LARGEST_DYNAMIC_SHARED_BYTES:
            refuse(
                f"{launch.entry} asks for {launch.smem_dynamic_bytes} bytes of dynamic shared memory"
            )
