"""`cuda:N`: candidates run and are timed on a real GPU, in a child that may be lost at any time."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search.children import Child, ChildDied, ChildTimeout, Limits
from search.errors import Fault
from search.memory import Problem
from search.render import RenderedSource
from search.targets.base import Execution, Failure, Inspect, Rival, Target
from search.targets.cuda import driver
from search.targets.cuda.arena import describe
from search.targets.cuda.lock import GpuLock
from search.targets.cuda.timing import CONFIDENCE, LOOKS, default_mode, floor_us, median
from search.toolchain import Cubin
from search.verdict import Reason, TimeKind, Timing

START_DEADLINE_S = 120.0             # CuPy's import and a context, on a cold machine
RUN_DEADLINE_S = 10.0                # of what one wait on the GPU may take
JOB_DEADLINE_S = 600.0               # of a whole job, copies included: beyond it something of ours is stuck
TIMING_S = 10.0                      # then a race ends at its next look
LOCK_DEADLINE_S = 120.0
JOBS_A_CHILD = 5000
CHECK_FLOP_LIMIT = 2e9               # the float64 reference runs on the CPU
OUT_OF_MEMORY = 2
# cudaError_t, CUDA Runtime API: what a kernel can bring about by itself. Anything else is ours.
REASONS = {
    1: Reason.LAUNCH_ERROR, 9: Reason.LAUNCH_ERROR, 98: Reason.LAUNCH_ERROR, 701: Reason.LAUNCH_ERROR,
    720: Reason.LAUNCH_ERROR, 702: Reason.TIMEOUT, 700: Reason.DEVICE_FAULT, 710: Reason.DEVICE_FAULT,
    714: Reason.DEVICE_FAULT, 715: Reason.DEVICE_FAULT, 716: Reason.MISALIGNED, 717: Reason.DEVICE_FAULT,
    718: Reason.DEVICE_FAULT, 719: Reason.DEVICE_FAULT,
}


@dataclass(eq=False)
class Program:
    """A cubin in a file of the target's private folder."""

    path: Path


class CudaTarget(Target):
    """GPU number `which` as CUDA counts."""

    measures = True
    band = 1.0
    check_flop_limit = CHECK_FLOP_LIMIT

    def __init__(self, which: str, cache_folder: Path, run_deadline_s: float) -> None:
        self.name, self._number = f"cuda:{which}", int(which)
        self.device = driver.device_of(self._number)
        self._cache_folder = cache_folder
        self._run_deadline_s = min(run_deadline_s, RUN_DEADLINE_S)
        self._one_at_a_time = threading.RLock()
        self._child: Child | None = None
        self._lock: GpuLock | None = None
        self._folder: Path | None = None
        self._hello: dict[str, Any] = {}
        self._busy = False
        self._interrupts = self._jobs = 0

    def prepare(self) -> None:
        with self._one_at_a_time:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="greenfast-cuda-"))
                self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
                self._lock = GpuLock(self._cache_folder / "locks", driver.gpu_uuid(self._number), self.name,
                                     LOCK_DEADLINE_S)
            self._started()

    def load(self, source: RenderedSource, cubin: Cubin) -> Program:
        self.prepare()
        program = Program(self._folder / f"{hashlib.sha256(cubin.code).hexdigest()[:32]}-{id(cubin):x}.cubin")
        program.path.write_bytes(cubin.code)
        weakref.finalize(program, program.path.unlink, missing_ok=True)
        return program

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        for one in problems:
            with self._one_at_a_time:
                self.prepare()
                request = {"do": "execute", "cubin": str(program.path), "problem": self._described(one, "one"),
                           "outputs": str(self._folder / "outputs"), "deadline_s": self._run_deadline_s}
                with self._lock.held(alone=False):
                    reply = self._call(request)
                failure = self._failure(one, reply)
                outputs = {} if failure else self._outputs(one)
            yield Execution(one, "device", outputs, failure)

    def measure(self, program: Program, cubin: Cubin, problems: Sequence[Problem], against: Rival | None = None,
                inspect: Inspect | None = None) -> tuple[Timing, ...] | Failure:
        timings = []
        for number, one in enumerate(problems):
            with self._one_at_a_time:
                self.prepare()
                request = self._measure_request(program, one, against, number)
                with self._lock.held(alone=True):
                    reply = self._call(request)
                failure = self._failure(one, reply)
                outputs = {} if failure else self._outputs(one)
            if failure is None and inspect is not None:
                failure = inspect(Execution(one, "timed", outputs, None))
            if failure is not None:
                return failure
            timings.append(self._timing(one, reply, request["mode"]))
        return tuple(timings)

    def identity(self) -> tuple[tuple[str, str], ...]:
        self.prepare()
        hello = self._hello
        return (("target", self.name), ("gpu", self.device.title), ("driver", hello["nvml"] or "unknown"),
                ("cuda_driver", driver.driver_version()), ("cuda_runtime", str(hello["runtime"])),
                ("cupy", hello["cupy"]),
                ("timing", f"ABBA blocks, looks after {', '.join(map(str, LOOKS))}, interval of {CONFIDENCE:.0%}"))

    def interrupt(self) -> None:
        child = self._child
        if self._busy and child is not None:
            self._interrupts += 1
            child.kill()

    def close(self) -> None:
        self.interrupt()
        with self._one_at_a_time:
            self._drop()
            if self._folder is not None:
                self._lock.close()
                self._remove()
                self._folder = None

    def _started(self) -> Child:
        """The child, with its context made; Fault in one sentence when there can be none."""
        if self._child is not None and self._jobs < JOBS_A_CHILD:
            return self._child
        self._drop()
        child = Child("search.targets.cuda.measurer", Limits(file_bytes=None), [str(self._number)])
        self._child, self._jobs = child, 0
        try:
            hello = child.call({"do": "hello"}, START_DEADLINE_S)
        except ChildTimeout:
            self._child = None
            raise Fault(f"{self.name} gave no context within {START_DEADLINE_S:g} s", code="gpu_not_ready",
                        mend="see what `nvidia-smi` says of it") from None
        except ChildDied as died:
            self._child = None
            raise _cannot_start(self.name, died.tail) from None
        if "error" in hello:
            self._drop()
            raise Fault(f"{self.name} cannot be used: {hello['error']}", code="gpu_not_ready")
        self._hello = hello
        return child

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        child, interrupts = self._started(), self._interrupts
        self._busy = True
        try:
            reply = child.call(request, JOB_DEADLINE_S)
        except ChildTimeout:
            self._child = None
            raise Fault(f"the measuring child of {self.name} gave no answer within {JOB_DEADLINE_S:g} s",
                        code="child_stuck") from None
        except ChildDied as died:
            self._child = None
            if interrupts != self._interrupts:
                raise Fault(f"{self.name} was interrupted", code="interrupted") from None
            last = died.tail.strip().rpartition("\n")[2][:300]
            raise Fault(f"the measuring child was lost (exit {died.returncode}): {last}", code="child_lost") from None
        finally:
            self._busy = False
        self._jobs += 1
        if "error" in reply:
            self._drop()                         # after such an error a context answers nothing else
        return reply

    def _drop(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _failure(self, problem: Problem, reply: dict[str, Any]) -> Failure | None:
        """What a reply says of the candidate; Fault when it says something of the machine."""
        if reply.get("damage"):
            reason, sentence = reply["damage"]
            return Failure(Reason(reason), sentence)
        if "error" not in reply:
            return None
        if reply["code"] == OUT_OF_MEMORY:
            workspaces = sum(one.bytes for one in problem.workspaces)
            if workspaces > reply.get("free_bytes", 0) // 2:
                return Failure(Reason.OUT_OF_MEMORY,
                               f"its workspaces need {workspaces} bytes, which {self.name} does not have")
            raise Fault(f"{self.name} has too little free memory: {reply['error']}", code="gpu_memory",
                        mend="end what else uses it")
        if reply["code"] in REASONS:
            return Failure(REASONS[reply["code"]], reply["error"])
        raise Fault(f"{self.name}: {reply['error']}", code="gpu_error")

    def _described(self, problem: Problem, name: str) -> dict[str, Any]:
        return describe(problem, self._folder / f"images-{name}")

    def _outputs(self, problem: Problem) -> dict[str, np.ndarray]:
        found, position = {}, 0
        images = np.fromfile(self._folder / "outputs", np.uint8)
        for one in problem.tensors:
            if one.role != "input":
                found[one.name] = images[position:position + one.image.size]
                position += one.image.size
        return found

    def _measure_request(self, program: Program, problem: Problem, against: Rival | None,
                         number: int) -> dict[str, Any]:
        data_bytes = sum(one.image.size for one in problem.tensors)
        request = {"do": "measure", "cubin": str(program.path), "problem": self._described(problem, "one"),
                   "outputs": str(self._folder / "outputs"), "l2_bytes": self.device.l2_bytes,
                   "mode": default_mode(data_bytes, self.device.l2_bytes), "seed": problem.case.seed + number,
                   "seconds": TIMING_S, "deadline_s": self._run_deadline_s}
        if against is not None:
            request |= {"other_cubin": str(against.program.path),
                        "other_problem": self._described(against.problems[number], "other")}
        return request

    def _timing(self, problem: Problem, reply: dict[str, Any], mode: str) -> Timing:
        facts = self.device
        cycles_per_us = facts.clock_max_mhz * facts.multiprocessors
        least = floor_us(problem.work_flop, problem.work_bytes if mode == "cold" else 0.0,
                         facts.tensor_fp16_flop_per_cycle_per_sm * cycles_per_us, facts.dram_bytes_per_us)
        detail = (("floor_us", round(least, 4)), ("sets", float(reply["sets"])), ("nodes", float(reply["nodes"])),
                  *sorted(reply["health"].items()))
        nodes = reply["nodes"]
        how = f"graphs of {nodes} and {2 * nodes} launches" if nodes else "launched one by one"
        note = f"{mode}, ring of {reply['sets']}, {how}"
        if not facts.tensor_fp16_flop_per_cycle_per_sm:
            note += f"; the peaks of {facts.title} are not known, so no time is called implausible"
        return Timing(problem.case.name, median(reply["samples"]), TimeKind.MEASURED, "not counted", detail, note,
                      samples=tuple(reply["samples"]), baseline_samples=tuple(reply["others"]))


def _cannot_start(name: str, tail: str) -> Fault:
    last = tail.strip().rpartition("\n")[2][:300]
    if "No module named 'cupy" in last:
        return Fault(f"{name} needs CuPy, which is not installed", code="cupy_missing",
                     mend="install the extra `cuda13` or `cuda12`, as your driver is")
    return Fault(f"{name} cannot be used: {last or 'its child ended without a word'}", code="gpu_not_ready",
                 mend="see what `nvidia-smi` says of it")
