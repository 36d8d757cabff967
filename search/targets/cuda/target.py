"""`cuda:N`: candidates run and are timed on a real GPU, in a child that may be lost at any time."""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from greenfast.search.errors import Fault
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import LARGE_FLOP, Case
from greenfast.search.oracle.expected import Arrays, CaseData
from greenfast.search.oracle.problem import Problem
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource
from greenfast.search.scratch import scratch_of
from greenfast.search.targets.base import Execution, Failure, Inspect, Rival, Runner
from greenfast.search.targets.bound import bound_us, mode_of
from greenfast.search.targets.cuda import driver
from greenfast.search.targets.cuda.arena import description
from greenfast.search.targets.cuda.conversation import Conversation
from greenfast.search.targets.cuda.execution import batches, executions, images_in, outputs_of
from greenfast.search.targets.cuda.failures import LAUNCH_TIMEOUT, failure_of
from greenfast.search.targets.cuda.images import ImageFiles
from greenfast.search.targets.cuda.large_reference import agrees, described, takes_cupy
from greenfast.search.targets.cuda.lock import GpuLock, locks_folder
from greenfast.search.targets.cuda.measuring_child import MeasuringChild
from greenfast.search.targets.cuda.nvml import BUSY_PERCENT
from greenfast.search.targets.cuda.quarantine import Quarantine
from greenfast.search.timing import CONFIDENCE, LOOKS, median
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import DEVICE_INDEX, Reason, TimeKind, Timing

RUN_DEADLINE_S = 10.0  # of one wait on the GPU
TIMING_S = 10.0  # after it a race ends at its next look
LOCK_DEADLINE_S = 120.0
QUIET_S = 30.0  # after it a time is taken beside other processes' work, and its note says so
CHECK_FLOP_LIMIT = 2e9  # the float64 reference runs on the CPU
RELAYED_BY = "relayed_by"  # in a reply: the number of the GPU
Answer = tuple[dict[str, Any], Path]  # a reply, and the file of its outputs


@dataclass(frozen=True, eq=False)
class Program:
    """A cubin in a file of the target's private folder."""

    path: Path


class Requests(Protocol):
    """Passes requests to a measuring child."""

    def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The child's reply; Fault without one."""


@dataclass(frozen=True)
class Place:
    """What requests are made with."""

    requests: Requests
    images: ImageFiles
    folder: Path  # private, removed by `remove`
    remove: Callable[[], object]


def new_place(requests: Requests, owner: object) -> Place:
    """A place in a new folder, which goes with `owner` at the latest."""
    folder, remove = scratch_of(owner, "cuda")
    return Place(requests, ImageFiles(folder), folder, remove)


@dataclass(frozen=True)
class Workplace:
    """The resources of an open target."""

    uuid: str  # the GPU's
    lock: GpuLock
    child: MeasuringChild
    conversation: Conversation  # with the child
    place: Place


class CudaTarget(Runner):
    """GPU number `which`, as CUDA counts."""

    measures = True
    keeps_modules = True
    band = 1.0
    check_flop_limit = CHECK_FLOP_LIMIT
    measurer = "greenfast.search.targets.cuda.measurer"  # the child's module

    def __init__(
        self,
        which: str,
        cache_folder: Path,
        run_deadline_s: float,
        turn: Callable[[str], AbstractContextManager[None]] = lambda uuid: nullcontext(),
    ) -> None:
        """`turn(uuid)` is held while the GPU with that UUID is used."""
        self.name, self.number = f"cuda:{which}", int(which)
        self.device = driver.device_of(self.number)
        self._cache_folder, self._turn = cache_folder, turn
        self._begin(run_deadline_s)

    def _begin(self, run_deadline_s: float) -> None:
        self.run_deadline_s = min(run_deadline_s, RUN_DEADLINE_S)
        self._opening = threading.Lock()
        self._workplace: Workplace | None = None
        self._count = itertools.count()
        # Whether the GPU computes a kernel's reference correctly. The kernel is kept alive with
        # its answer, so that its id stays its own.
        self._references: dict[Any, tuple[KernelSpec, bool]] = {}
        self._references_lock = threading.Lock()
        self.spans: dict[str, float] = defaultdict(float)  # the child's busy seconds, by activity
        self._gpu_seconds = 0.0  # of all requests, also of those that ended in a fault
        self._counting = threading.Lock()  # of both
        # The times in us that the last `after_timing` compared, by what they show.
        self.repeated_us: dict[str, tuple[list[float], list[float]]] = {}

    @property
    def takes_descriptions(self) -> bool:
        return True

    @property
    def gpu_count(self) -> int:
        return 1

    @property
    def child_pid(self) -> int | None:
        """The process that uses the GPU; None before the first one has started."""
        return self._workplace.child.hello.get("pid") if self._workplace is not None else None

    @property
    def gpu_seconds(self) -> float:
        return self._gpu_seconds

    def prepare(self) -> None:
        self._started()

    def _started(self) -> Workplace:
        workplace = self._open()
        if workplace.child.running is None or not workplace.child.hello:
            with workplace.conversation.paused():
                workplace.child.start()
        return workplace

    def _open(self) -> Workplace:
        """Everything but the child's process."""
        if self._workplace is not None:
            return self._workplace
        with self._opening:
            if self._workplace is None:
                self._workplace = self._made()
            return self._workplace

    def _made(self) -> Workplace:
        uuid, locks = driver.gpu_uuid(self.number), self._cache_folder / "locks"
        lock = GpuLock(locks_folder(locks), uuid, self.name, LOCK_DEADLINE_S)
        quarantine = Quarantine(locks, uuid, self.name)
        child = MeasuringChild(self.measurer, self.name, self.number, quarantine)
        conversation = Conversation(child, lock, lambda: self._turn(uuid), self._spent)
        return Workplace(uuid, lock, child, conversation, new_place(conversation, self))

    def _place(self) -> Place:
        return self._open().place

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the GPU for a process of the caller's.

        Nothing else of ours runs on it: not here, not in other processes of the data folder, and
        not in other workers of the database. Fault `gpu_busy` when others keep it.
        """
        workplace = self._open()
        with (
            workplace.conversation.paused(),
            self._turn(workplace.uuid),
            workplace.lock.held(),
        ):
            yield

    def load(self, source: RenderedSource, cubin: Cubin | None) -> Program:
        if cubin is None:
            raise Fault(f"{self.name} runs cubins only", code="no_cubin")
        folder = self._place().folder
        # Never the same file twice: the end of one program must not remove another's.
        digest = hashlib.sha256(cubin.code).hexdigest()[:32]
        program = Program(folder / f"{digest}-{next(self._count)}.cubin")
        program.path.write_bytes(cubin.code)
        weakref.finalize(program, program.path.unlink, missing_ok=True)
        return program

    def case_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        large = case.flop(kernel) > LARGE_FLOP
        return case_data(kernel, case, self.reference if large else None)

    def reference(self, kernel: KernelSpec, case: Case) -> Arrays | None:
        """The GPU's reference, if it agreed with NumPy on a small case; None: leave it to NumPy."""
        key = id(kernel), case.options
        with self._references_lock:
            if key not in self._references:
                trusted = takes_cupy(kernel) and agrees(kernel, case, self.device, self._reference)
                self._references[key] = (kernel, trusted)
        return self._reference(kernel, case) if self._references[key][1] else None

    def _reference(self, kernel: KernelSpec, case: Case) -> Arrays | None:
        request = {"do": "reference", **described(kernel, case)}
        reply, images = self._answered(self._place(), request)
        if "error" in reply or "unavailable" in reply:
            return None
        arrays: dict[str, dict[str, np.ndarray | None]] = {}
        position = 0
        for name, field, shape in reply["fields"]:
            size = 0 if shape is None else 8 * math.prod(shape)
            arrays.setdefault(name, {})[field] = (
                None
                if shape is None
                else images[position : position + size].view(np.float64).reshape(shape)
            )
            position += size
        return arrays

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        """All problems in one request, or in several where they are large."""

        def ask(batch: Sequence[Problem]) -> tuple[Mapping[str, Any], np.ndarray]:
            with self._place().images.held(batch) as files:
                described = [
                    description(problem, file) for problem, file in zip(batch, files, strict=True)
                ]
                with self.answered(program, {"problems": described}) as (reply, path):
                    return reply, images_in(path)

        for batch in batches(problems):
            yield from executions(batch, ask, self._failure)

    @contextmanager
    def answered(self, program: Program, problems: Mapping[str, Any]) -> Iterator[Answer]:
        """The child's reply to a request to run described problems, and the file of their outputs.

        `problems` holds the request's field of that name, or the file that holds it. The outputs
        are there until the block ends.
        """
        place = self._place()
        request = {
            **problems,
            "do": "execute",
            "cubin": str(program.path),
            "deadline_s": self.run_deadline_s,
        }
        path = place.folder / f"outputs-{next(self._count)}"
        try:
            reply = self._replied(place, request, path)
            if reply.get("code") == LAUNCH_TIMEOUT:
                # Other people's work may have kept the GPU.
                reply = self._replied(place, request, path)
            yield reply, path
        finally:
            path.unlink(missing_ok=True)

    def measure(
        self,
        program: Program,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        place = self._place()
        timings = []
        for number, problem in enumerate(problems):
            pair = (problem,) if against is None else (problem, against.problems[number])
            with place.images.held(pair) as files:
                request = self._measure_request(program, problem, against, pair, files, number)
                request["screen"] = len(problems) == 1 and request["looks"] == LOOKS
                reply, images = self._answered(place, request)
            if "error" in reply:
                return self._failure(problem, reply)
            if reply["damage"][0]:
                reason, sentence = reply["damage"][0]
                return Failure(Reason(reason), sentence)
            if inspect is not None:
                outputs = outputs_of((problem,), images)[0]
                failure = inspect(Execution(problem, "timed", outputs, None))
                if failure is not None:
                    return failure
            timings.append(self._timing(problem, reply, request["mode"]))
        return tuple(timings)

    def after_timing(
        self, program: Program, problem: Problem, fresh: Problem
    ) -> Iterator[Execution]:
        """Passes of the ring that was timed, on other inputs; then `fresh` at other addresses."""
        place = self._place()
        with place.images.held((problem, fresh)) as files:
            request = {
                **self._measure_request(program, problem, None, (problem,), files[:1], 0),
                "do": "repeat",
                "fresh": description(fresh, files[1]),
            }
            reply, images = self._answered(place, request)
        if "error" in reply:
            yield Execution(fresh, "timed", {}, self._failure(fresh, reply))
            return
        self.repeated_us = reply["ratios"]
        looked_at = [fresh] * len(reply["damage"])
        for outputs, damage in zip(outputs_of(looked_at, images), reply["damage"], strict=True):
            failure = Failure(Reason(damage[0]), damage[1]) if damage else None
            yield Execution(fresh, "timed", {} if failure else outputs, failure)
        if reply["suspicion"]:
            yield Execution(fresh, "timed", {}, Failure(Reason.IMPLAUSIBLE, reply["suspicion"]))
        yield from self.execute(program, (fresh,))

    def identity(self) -> tuple[tuple[str, str], ...]:
        hello = self._started().child.hello
        looks = ", ".join(map(str, LOOKS))
        return (
            ("target", self.name),
            ("gpu", self.device.title),
            ("driver", hello["nvml"] or "unknown"),
            ("cuda_driver", driver.driver_version()),
            ("cuda_runtime", str(hello["runtime"])),
            ("cupy", hello["cupy"]),
            ("timing", f"ABBA blocks, looks after {looks}, interval of {CONFIDENCE:.0%}"),
        )

    def fresh(self) -> None:
        workplace = self._workplace
        if workplace is not None:
            with workplace.conversation.paused():
                workplace.child.end()

    def interrupt(self) -> None:
        workplace = self._workplace
        if workplace is not None:
            workplace.conversation.interrupt()

    def close(self) -> None:
        with self._opening:
            workplace, self._workplace = self._workplace, None
        if workplace is None:
            return
        workplace.conversation.interrupt()
        with workplace.conversation.paused():
            try:
                workplace.child.end()
            finally:
                workplace.lock.close()
                workplace.place.remove()

    def _answered(self, place: Place, request: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
        """The child's reply and the bytes of its output file (none with an error)."""
        path = place.folder / f"outputs-{next(self._count)}"
        try:
            return self._replied(place, request, path), images_in(path)
        finally:
            path.unlink(missing_ok=True)

    def relayed(self, request: Mapping[str, Any]) -> dict[str, Any]:
        reply = self._replied(self._place(), request, Path(request["outputs"]))
        return {**reply, RELAYED_BY: self.number}

    def _replied(self, place: Place, request: Mapping[str, Any], outputs: Path) -> dict[str, Any]:
        """The child's reply, its outputs in the file `outputs`."""
        reply = place.requests.reply({**request, "outputs": str(outputs)})
        with self._counting:
            for activity, spent_s in reply.get("spans", {}).items():
                self.spans[f"{request['do']}: {activity}"] += spent_s
        return reply

    def _spent(self, kind: str, seconds: float) -> None:
        with self._counting:
            self._gpu_seconds += seconds
            self.spans[kind] += seconds

    def _failure(self, problem: Problem, reply: Mapping[str, Any]) -> Failure:
        number = reply.get(RELAYED_BY)
        name = self.name if number is None else f"cuda:{number}"
        return failure_of(name, self.device.arch, problem, reply)

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
        described = [
            description(problem_, file) for problem_, file in zip(pair, images, strict=True)
        ]
        request = {
            "do": "measure",
            "cubin": str(program.path),
            "problem": described[0],
            "mode": mode,
            "l2_bytes": self.device.l2_bytes,
            "seed": problem.case.seed + number,
            "seconds": TIMING_S,
            "deadline_s": self.run_deadline_s,
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
            (DEVICE_INDEX, float(reply.get(RELAYED_BY, self.number))),
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
