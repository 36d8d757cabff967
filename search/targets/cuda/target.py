"""`cuda:N`: candidates run and are timed on a real GPU, in a child that may be lost at any time."""

from __future__ import annotations

import hashlib
import itertools
import math
import shutil
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits
from greenfast.search.errors import Fault
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import Problem
from greenfast.search.oracle.reference import Arrays, CaseData, case_data
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import Execution, Failure, Inspect, Rival, Target
from greenfast.search.targets.bound import bound_us, mode_of
from greenfast.search.targets.cuda import driver
from greenfast.search.targets.cuda.arena import description
from greenfast.search.targets.cuda.images import ImageFiles
from greenfast.search.targets.cuda.large_reference import LARGE_FLOP, agrees, described, takes_cupy
from greenfast.search.targets.cuda.lock import GpuLock
from greenfast.search.targets.cuda.nvml import BUSY_PERCENT
from greenfast.search.targets.cuda.quarantine import Quarantine
from greenfast.search.timing import CONFIDENCE, LOOKS, median
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import Reason, TimeKind, Timing

START_DEADLINE_S = 120.0  # CuPy's import and a context, on a cold machine
RUN_DEADLINE_S = 10.0  # of what one wait on the GPU may take
JOB_DEADLINE_S = 600.0  # of a whole job, copies included: beyond it something of ours is stuck
TIMING_S = 10.0  # then a race ends at its next look
LOCK_DEADLINE_S = 120.0
QUIET_S = 30.0  # then times are taken beside other people's work, and say so
BATCH_BYTES = 2**28
JOBS_A_CHILD = 5000
CHECK_FLOP_LIMIT = 2e9  # the float64 reference runs on the CPU
OUT_OF_MEMORY = 2
LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout, also of what the child itself ends
WRONG_ARCH = (200, 209)  # invalid image, no kernel image for this device
# cudaError_t, CUDA Runtime API: what a kernel can bring about by itself. Anything else is ours.
REASONS = {
    1: Reason.LAUNCH_ERROR,
    9: Reason.LAUNCH_ERROR,
    98: Reason.LAUNCH_ERROR,
    701: Reason.LAUNCH_ERROR,
    720: Reason.LAUNCH_ERROR,
    LAUNCH_TIMEOUT: Reason.TIMEOUT,
    700: Reason.DEVICE_FAULT,
    710: Reason.DEVICE_FAULT,
    714: Reason.DEVICE_FAULT,
    715: Reason.DEVICE_FAULT,
    716: Reason.MISALIGNED,
    717: Reason.DEVICE_FAULT,
    718: Reason.DEVICE_FAULT,
    719: Reason.DEVICE_FAULT,
}
# What a child that cannot start says last: (a word of it, code, sentence after the target's name, mend).
CANNOT_START = (
    (
        "No module named 'cupy",
        "cupy_missing",
        "needs CuPy, which is not installed",
        "install the extra `cuda13` or `cuda12`, as your driver is",
    ),
    (
        "InsufficientDriver",
        "driver_too_old",
        "has a driver that is older than the CUDA of this CuPy",
        "update the NVIDIA driver, or install greenfast with the extra `cuda12` in a fresh environment",
    ),
    (
        "MemoryAllocation",
        "gpu_memory",
        "has not enough free memory for a context",
        "end what else uses it",
    ),
    (
        "out of memory",
        "gpu_memory",
        "has not enough free memory for a context",
        "end what else uses it",
    ),
    (
        "DevicesUnavailable",
        "gpu_busy",
        "is held by another process alone (exclusive compute mode)",
        "end that process, or choose another target",
    ),
    (
        "SystemDriverMismatch",
        "driver_mismatch",
        "has a driver whose parts have different versions",
        "restart the machine after an update of the driver",
    ),
)


@dataclass(eq=False)
class Program:
    """A cubin in a file of the target's private folder."""

    path: Path


class CudaTarget(Target):
    """GPU number `which` as CUDA counts."""

    measures = True
    band = 1.0
    check_flop_limit = CHECK_FLOP_LIMIT
    measurer = "greenfast.search.targets.cuda.measurer"  # the child's module

    def __init__(
        self,
        which: str,
        cache_folder: Path,
        run_deadline_s: float,
        turn: Callable[[str], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.name, self.number = f"cuda:{which}", int(which)  # as CUDA counts
        self.device = driver.device_of(self.number)
        self._cache_folder, self._turn = cache_folder, turn
        self._run_deadline_s = min(run_deadline_s, RUN_DEADLINE_S)
        self._one_at_a_time = threading.RLock()
        self._child: Child | None = None
        self._lock: GpuLock | None = None
        self._quarantine: Quarantine | None = None
        self._images: ImageFiles | None = None
        self._folder: Path | None = None
        self._hello: dict[str, Any] = {}
        self._busy, self._uuid = False, ""
        self._interrupts = self._jobs = 0
        self._count = itertools.count()
        self._references: dict[
            Any, tuple[KernelSpec, bool]
        ] = {}  # which kernel's reference the GPU gets right
        self._references_lock = threading.Lock()
        self.spans: Counter[str] = Counter()  # seconds that the child was busy, by what with

    def prepare(self) -> None:
        with self._one_at_a_time:
            self._open()
            self._started()

    def _open(self) -> None:
        """What needs no child."""
        if self._folder is None:
            self._uuid, locks = driver.gpu_uuid(self.number), self._cache_folder / "locks"
            self._lock = GpuLock(locks, self._uuid, self.name, LOCK_DEADLINE_S)
            self._quarantine = Quarantine(locks, self._uuid, self.name)
            self._folder = Path(tempfile.mkdtemp(prefix="greenfast-cuda-"))
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            self._images = ImageFiles(self._folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The GPU for a process of the caller's: nothing else of ours runs on it, here, in other processes of the data
        folder, or in other workers of the database. Fault `gpu_busy` when others keep it."""
        with self._one_at_a_time:
            self._open()
            with self._turn(self._uuid), self._lock.held(alone=True):
                yield

    def load(self, source: RenderedSource, cubin: Cubin) -> Program:
        self.prepare()
        # Never the same file twice: the end of one program must not take another's.
        program = Program(
            self._folder
            / f"{hashlib.sha256(cubin.code).hexdigest()[:32]}-{next(self._count)}.cubin"
        )
        program.path.write_bytes(cubin.code)
        weakref.finalize(program, program.path.unlink, missing_ok=True)
        return program

    def case_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        large = kernel.work_flop(case.values(kernel)) > LARGE_FLOP
        return case_data(kernel, case, self._trusted_reference if large else None)

    def _trusted_reference(self, kernel: KernelSpec, case: Case) -> Arrays | None:
        """From the GPU, if what it says of a small case agrees with NumPy; None: NumPy has to do it."""
        known = id(kernel), case.options
        with self._references_lock:
            if known not in self._references:
                trusted = takes_cupy(kernel) and agrees(kernel, case, self._reference)
                self._references[known] = (
                    kernel,
                    trusted,
                )  # keeps the kernel alive: its id stays its own
        return self._reference(kernel, case) if self._references[known][1] else None

    def _reference(self, kernel: KernelSpec, case: Case) -> Arrays | None:
        self.prepare()
        reply, images = self._answered({"do": "reference", **described(kernel, case)}, alone=False)
        if "error" in reply or "unavailable" in reply:
            return None
        found, position = {}, 0
        for name, field, shape in reply["fields"]:
            size = 0 if shape is None else 8 * math.prod(shape)
            found.setdefault(name, {})[field] = (
                None
                if shape is None
                else images[position : position + size].view(np.float64).reshape(shape)
            )
            position += size
        return found

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        """All problems in one request, or a few where they are large."""
        self.prepare()
        for batch in batches(problems):
            yield from self._executed(program, batch)

    def _executed(self, program: Program, batch: Sequence[Problem]) -> Iterator[Execution]:
        if not batch:
            return
        with self._images.held(batch) as files:
            request = {
                "do": "execute",
                "cubin": str(program.path),
                "deadline_s": self._run_deadline_s,
                "problems": [description(*both) for both in zip(batch, files)],
            }
            reply, images = self._answered(request, alone=False)
            if (
                reply.get("code") == LAUNCH_TIMEOUT
            ):  # others may have kept the GPU: once more without them
                reply, images = self._answered(request, alone=True)
        if "error" not in reply:
            for one, found, damage in zip(batch, outputs_of(batch, images), reply["damage"]):
                failure = Failure(Reason(damage[0]), damage[1]) if damage else None
                yield Execution(one, "device", {} if failure else found, failure)
            return
        at = reply["at"]  # the child is lost, and with it what the runs before this one left
        failure = self._failure(batch[at], reply)
        yield from self._executed(program, batch[:at])
        yield Execution(batch[at], "device", {}, failure)
        yield from self._executed(program, batch[at + 1 :])

    def measure(
        self,
        program: Program,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        self.prepare()
        timings = []
        for number, one in enumerate(problems):
            pair = (one,) if against is None else (one, against.problems[number])
            with self._images.held(pair) as files:
                request = self._measure_request(program, one, against, pair, files, number)
                request["screen"] = len(problems) == 1 and request["looks"] == LOOKS
                reply, left = self._answered(request, alone=True)
            if "error" in reply:
                return self._failure(one, reply)
            if reply["damage"][0]:
                reason, sentence = reply["damage"][0]
                return Failure(Reason(reason), sentence)
            failure = (
                inspect(Execution(one, "timed", outputs_of((one,), left)[0], None))
                if inspect is not None
                else None
            )
            if failure is not None:
                return failure
            timings.append(self._timing(one, reply, request["mode"]))
        return tuple(timings)

    def identity(self) -> tuple[tuple[str, str], ...]:
        self.prepare()
        hello = self._hello
        return (
            ("target", self.name),
            ("gpu", self.device.title),
            ("driver", hello["nvml"] or "unknown"),
            ("cuda_driver", driver.driver_version()),
            ("cuda_runtime", str(hello["runtime"])),
            ("cupy", hello["cupy"]),
            (
                "timing",
                f"ABBA blocks, looks after {', '.join(map(str, LOOKS))}, interval of {CONFIDENCE:.0%}",
            ),
        )

    def fresh(self) -> None:
        with self._one_at_a_time:
            self._drop()

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
        """The child, with its context made. A GPU on which none starts twice in a row is set aside, with the reason."""
        if self._child is not None and self._jobs < JOBS_A_CHILD:
            return self._child
        self._drop()
        self._quarantine.check()
        try:
            child = self._start()
        except Fault as fault:
            if fault.code != "gpu_not_ready":
                raise
            try:
                child = self._start()
            except Fault as again:
                raise self._quarantine.begin(
                    f"it could not be started twice in a row; {again}"
                ) from None
        self._quarantine.lift()
        return child

    def _start(self) -> Child:
        child = Child(self.measurer, Limits(file_bytes=None), [str(self.number)])
        self._child, self._jobs = child, 0
        interrupts, self._busy = self._interrupts, True
        try:
            hello = child.call({"do": "hello"}, START_DEADLINE_S)
        except ChildTimeout:
            self._child = None
            raise Fault(
                f"{self.name} gave no context within {START_DEADLINE_S:g} s",
                code="gpu_not_ready",
                mend="see what `nvidia-smi` says of it",
            ) from None
        except ChildDied as died:
            self._child = None
            if interrupts != self._interrupts:
                raise Fault(f"{self.name} was interrupted", code="interrupted") from None
            raise cannot_start(self.name, died.tail) from None
        finally:
            self._busy = False
        if "error" in hello:
            self._drop()
            raise cannot_start(self.name, hello["error"])
        self._hello = hello
        return child

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        child, interrupts = self._started(), self._interrupts
        self._busy = True
        try:
            reply = child.call(request, JOB_DEADLINE_S)
        except ChildTimeout:
            self._child = None
            raise Fault(
                f"the measuring child of {self.name} gave no answer within {JOB_DEADLINE_S:g} s",
                code="child_stuck",
            ) from None
        except ChildDied as died:
            self._child = None
            if interrupts != self._interrupts:
                raise Fault(f"{self.name} was interrupted", code="interrupted") from None
            last = died.tail.strip().rpartition("\n")[2][:300]
            raise Fault(
                f"the measuring child was lost (exit {died.returncode}): {last}", code="child_lost"
            ) from None
        finally:
            self._busy = False
        self._jobs += 1
        if "error" in reply:
            self._drop()  # after such an error a context answers nothing else
        return reply

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None and not child.close():
            raise self._quarantine.begin(
                "its measuring process cannot be ended: the driver holds it"
            )

    def _answered(
        self, request: dict[str, Any], *, alone: bool
    ) -> tuple[dict[str, Any], np.ndarray]:
        """The child's reply, and the bytes that it left, unless it is an error. One request at a time."""
        path = self._folder / f"outputs-{next(self._count)}"
        try:
            with self._one_at_a_time, self._turn(self._uuid), self._lock.held(alone=alone):
                begin = time.perf_counter()
                reply = self._call({**request, "outputs": str(path)})
                self.spans[request["do"]] += time.perf_counter() - begin
                self.spans.update(
                    {
                        f"{request['do']}: {name}": spent
                        for name, spent in reply.get("spans", {}).items()
                    }
                )
            return reply, np.fromfile(path, np.uint8) if path.exists() else np.empty(0, np.uint8)
        finally:
            path.unlink(missing_ok=True)

    def _failure(self, problem: Problem, reply: dict[str, Any]) -> Failure:
        """What an error says of the candidate; Fault when it says something of the machine."""
        if reply["code"] == OUT_OF_MEMORY:
            workspaces = sum(workspace.bytes for workspace in problem.workspaces)
            if workspaces > reply.get("free_bytes", 0) // 2:
                return Failure(
                    Reason.OUT_OF_MEMORY,
                    f"its workspaces need {workspaces} bytes, which {self.name} does not have",
                )
            raise Fault(
                f"{self.name} has too little free memory: {reply['error']}",
                code="gpu_memory",
                mend="end what else uses it",
            )
        if reply["code"] in REASONS:
            return Failure(REASONS[reply["code"]], reply["error"])
        if reply["code"] in WRONG_ARCH:
            raise Fault(
                f"{self.name} cannot run this cubin, which was made for another GPU than {self.device.arch} or by a "
                f"newer CUDA than the driver's, {driver.driver_version()}",
                code="wrong_arch",
                mend="compile it for this target; `greenfast doctor` compares NVRTC and driver",
            )
        raise Fault(f"{self.name}: {reply['error']}", code="gpu_error")

    def _measure_request(
        self,
        program: Program,
        problem: Problem,
        against: Rival | None,
        pair: Sequence[Problem],
        images: Sequence[Path],
        number: int,
    ) -> dict[str, Any]:
        mode = mode_of(problem, self.device)
        described = [description(*both) for both in zip(pair, images)]
        request = {
            "do": "measure",
            "cubin": str(program.path),
            "problem": described[0],
            "mode": mode,
            "l2_bytes": self.device.l2_bytes,
            "seed": problem.case.seed + number,
            "seconds": TIMING_S,
            "deadline_s": self._run_deadline_s,
            "quiet_s": QUIET_S,
            "looks": LOOKS,
        }
        if against is not None:
            request |= {
                "other_cubin": str(against.program.path),
                "other_problem": described[1],
                "looks": LOOKS[-1:] if against.to_the_end else LOOKS,
            }
        return request

    def _timing(self, problem: Problem, reply: dict[str, Any], mode: str) -> Timing:
        facts = self.device
        detail = (
            ("floor_us", round(bound_us(facts, problem), 4)),
            ("sets", float(reply["sets"])),
            ("nodes", float(reply["nodes"])),
            *sorted(reply["health"].items()),
        )
        nodes = reply["nodes"]
        how = f"graphs of {nodes} and {2 * nodes} launches" if nodes else "launched one by one"
        note = f"{mode}, ring of {reply['sets']}, {how}"
        foreign = reply["health"].get("foreign_busy_percent", 0.0)
        if foreign >= BUSY_PERCENT:
            note += f"; other processes kept the GPU {foreign:.0f} % busy meanwhile"
        if not facts.tensor_fp16_flop_per_cycle_per_sm:
            note += f"; the peaks of {facts.title} are not known, so no time is called implausible"
        return Timing(
            problem.case.name,
            median(reply["samples"]),
            TimeKind.MEASURED,
            "",
            detail,
            note,
            samples=tuple(reply["samples"]),
            baseline_samples=tuple(reply["others"]),
            mode=mode,
        )


def batches(problems: Sequence[Problem]) -> Iterator[list[Problem]]:
    """As many at a time as `BATCH_BYTES` hold, in order."""
    batch, held = [], 0
    for problem in problems:
        size = sum(tensor.image.size for tensor in problem.tensors) + sum(
            space.bytes for space in problem.workspaces
        )
        if batch and held + size > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(problem)
        held += size
    yield batch


def outputs_of(problems: Sequence[Problem], images: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Each problem's outputs by name, out of their images one after the other."""
    found, position = [], 0
    for problem in problems:
        found.append({})
        for tensor in problem.tensors:
            if tensor.role != "input":
                found[-1][tensor.name] = images[position : position + tensor.image.size]
                position += tensor.image.size
    return found


def cannot_start(name: str, tail: str) -> Fault:
    """Why no child can use the GPU, by what its last words were."""
    last = tail.strip().rpartition("\n")[2][:300]
    for word, code, sentence, mend in CANNOT_START:
        if word in last:
            return Fault(f"{name} {sentence}", code=code, mend=mend)
    return Fault(
        f"{name} cannot be used: {last or 'its child ended without a word'}",
        code="gpu_not_ready",
        mend="see what `nvidia-smi` says of it",
    )
