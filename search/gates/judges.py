"""Worker processes that judge the outputs of candidates, where there are cores to spare.

Laying out a candidate's cases, computing their references and comparing the outputs take about
0.1 s of Python and NumPy. In the process of a search that would hold Python's global lock longer
than everything else, and bound the rate of a search on any number of cores and GPUs.

A worker runs the gate as it is. Where the gate runs problems, the worker writes their files and
asks this process, which owns the GPUs. The outputs go from the GPU's child to the worker in a file.
"""

from __future__ import annotations

import atexit
import base64
import hashlib
import os
import pickle
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.children import ChildDied, Children, ChildTimeout, Limits
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import Device
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.scratch import scratch_of
from greenfast.search.space.candidate import Candidate
from greenfast.search.verdict import CorrectnessEvidence, Failed, Passed

MODULE = "greenfast.search.gates.judging_child"
DEADLINE_S = 300.0  # of a step; a worker that takes longer is stuck
MEMORY_BYTES = 8 * 2**30
CORES_A_WORKER = 2
KERNELS_KEPT = 16
LEAST_CORES = 8  # below it every core compiles

CorrectnessResult = Passed[CorrectnessEvidence] | Failed[CorrectnessEvidence]


@dataclass(frozen=True)
class Commission:
    """What a worker needs in addition to the kernel to judge a candidate."""

    candidate: Candidate
    sibling: Candidate | None  # the first correct one
    keeps_promises: bool  # whether siblings are compared
    compiled: Items
    workloads: tuple[Workload, ...]
    seed: int
    mode: str
    sizes_secret: int | None
    target: str
    device: Device
    check_flop_limit: float


def workers_for(cores: int) -> int:
    """The number of workers for a machine with this many cores."""
    return cores // CORES_A_WORKER if cores >= LEAST_CORES else 0


class Judges:
    """Up to `count` workers, each started when it is first needed. They end with this process."""

    def __init__(self, count: int) -> None:
        self._folder, self._remove = scratch_of(self, "judges")
        limits = Limits(memory_bytes=MEMORY_BYTES, file_bytes=None)
        self.pool = Children(count, MODULE, limits, (str(self._folder),))
        self._lock = threading.Lock()
        # Files of pickled kernels. A kernel is kept alive, so that its id stays its own.
        self._kernels: OrderedDict[int, tuple[KernelSpec, Path]] = OrderedDict()

    def judged(self, subject: Subject) -> CorrectnessResult | None:
        """The correctness gate's result; None if this process must judge the candidate.

        A worker that fails, dies or exceeds its deadline tells nothing about the candidate. Raises
        Fault as the target does.
        """
        target = subject.target
        if not target.takes_descriptions:
            return None
        request = {
            "kernel": str(self._kernel_file(subject.kernel)),
            "commission": base64.b64encode(pickle.dumps(_commission(subject))).decode(),
        }
        tiles = tuple(sorted(subject.point.tiles.items()))
        try:
            with self.pool.taken((request["kernel"], tiles)) as worker:
                reply = worker.call(request, DEADLINE_S)
                while "problems_file" in reply:
                    if subject.conditions.stop.is_set():
                        raise Fault(f"{target.name} was interrupted", code="interrupted")
                    with target.answered(subject.program, reply) as (answer, outputs):
                        reply = worker.call({"reply": answer, "outputs": str(outputs)}, DEADLINE_S)
        except (ChildDied, ChildTimeout, OSError):
            return None
        except Fault as fault:
            if fault.code != "child_start":
                raise
            return None
        if "unknown" in reply:
            return None
        result: CorrectnessResult = pickle.loads(base64.b64decode(reply["result"]))
        return result

    def close(self) -> None:
        """End the idle workers and remove their files."""
        self.pool.close()
        self._remove()

    def _kernel_file(self, kernel: KernelSpec) -> Path:
        with self._lock:
            if id(kernel) not in self._kernels:
                data = pickle.dumps(kernel)
                path = self._folder / f"kernel-{hashlib.sha256(data).hexdigest()[:32]}"
                path.write_bytes(data)
                self._kernels[id(kernel)] = kernel, path
                self._forget_kernels()
            self._kernels.move_to_end(id(kernel))
            return self._kernels[id(kernel)][1]

    def _forget_kernels(self) -> None:
        """Each search of a service has kernels of its own; a file that goes too soon costs no more
        than judging here."""
        while len(self._kernels) > KERNELS_KEPT:
            _, (_, path) = self._kernels.popitem(last=False)
            if all(path != other for _, other in self._kernels.values()):
                path.unlink(missing_ok=True)


def _commission(subject: Subject) -> Commission:
    conditions, siblings = subject.conditions, subject.conditions.siblings
    return Commission(
        subject.candidate,
        siblings.first(subject.candidate) if siblings is not None else None,
        siblings is not None,
        subject.compiled,
        subject.workloads,
        subject.seed,
        conditions.mode,
        conditions.sizes_secret,
        subject.target.name,
        subject.target.device,
        subject.target.check_flop_limit,
    )


class _Shared:
    """The workers of this process, from the first search on."""

    judges: Judges | None = None
    lock = threading.Lock()


def use_judges(count: int | None = None) -> None:
    """Judge outputs in worker processes from now on, where there are cores to spare.

    For a single candidate the start-up would cost more than it saves.
    """
    with _Shared.lock:
        count = workers_for(usable_cores()) if count is None else count
        if _Shared.judges is None and count:
            _Shared.judges = Judges(count)
            atexit.register(_Shared.judges.close)


def judges_in_use() -> Judges | None:
    """The workers of this process; None if it judges itself."""
    return _Shared.judges


def judged_elsewhere(subject: Subject) -> CorrectnessResult | None:
    """The result of a worker; None if there is none, and this process must judge."""
    judges = _Shared.judges
    return judges.judged(subject) if judges is not None else None


def _forget() -> None:
    _Shared.judges, _Shared.lock = None, threading.Lock()


# A forked process starts its own: its parent's workers answer the parent.
os.register_at_fork(after_in_child=_forget)
