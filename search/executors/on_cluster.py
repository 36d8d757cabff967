"""`--executor ray`: compiles and emulated runs on a cluster's processors, times on its GPUs."""

from __future__ import annotations

import threading
from pathlib import Path

from greenfast.search.devices.facts import Device
from greenfast.search.errors import Fault, GreenfastError, UsageError
from greenfast.search.executors.base import Executor
from greenfast.search.executors.cluster import Actor, Cluster, MachineLost, Raised, Work
from greenfast.search.executors.gpu_actor import GpuFacts, GpuOpener, GpuSetup
from greenfast.search.executors.parcel import packed, unpacked
from greenfast.search.executors.remote_emulator import RemoteEmulator
from greenfast.search.executors.remote_gpu import RemoteGpu, Turn
from greenfast.search.executors.remote_toolchain import RemoteToolchain
from greenfast.search.shipped import own_version
from greenfast.search.targets import RUN_DEADLINE_S, TargetSettings, check_target_name, open_target
from greenfast.search.targets.base import Target
from greenfast.search.targets.cuda.several import SeveralGpus
from greenfast.search.targets.gpu_names import numbers_of, require_one_model
from greenfast.search.toolchain import Toolchain
from greenfast.search.toolchain.toolkit import Place


class OnCluster(Executor):
    """All machines of a cluster. Recordings answer here, since they run nothing."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        run_deadline_s: float = RUN_DEADLINE_S,
        opened: GpuOpener | None = None,
    ) -> None:
        """`opened` opens an actor's GPU there (default: the one that the cluster gave it)."""
        self.name = name
        self.work = Work(cluster)
        self._gpu_setup = GpuSetup(run_deadline_s, own_version(), opened)
        self._gpus: list[tuple[Actor, GpuFacts]] | None = None
        self._models: list[Device] = []  # of the GPUs that were free at the last look
        self._lock = threading.Lock()

    def cores(self) -> int:
        return max(1, self.work.cluster.cores())

    def gpu_count(self) -> int:
        return self.work.cluster.gpu_count()

    def device(self, target: str) -> Device | None:
        """A look at the GPUs takes them for a moment only: a service plans what workers run."""
        family, which = check_target_name(target)
        if family != "cuda":
            return None
        with self._lock:
            if self._gpus is None and not self._models:
                gpus = self._opened()
                self._models = [facts.device for _, facts in gpus]
                for actor, _ in gpus:
                    actor.end()
            elif self._gpus is not None:
                self._models = [facts.device for _, facts in self._gpus]
        numbers = self._numbers(which, len(self._models))
        return self._models[numbers[0]]

    def toolchain(self, cache_folder: Path, children: int, place: Place | None) -> Toolchain:
        return RemoteToolchain(self.work, cache_folder, place)

    def target(self, name: str, settings: TargetSettings) -> Target:
        family, which = check_target_name(name)
        if family == "emulator":
            return RemoteEmulator(
                self.work,
                which,
                settings.cache_folder,
                settings.include_dirs,
                settings.run_deadline_s,
            )
        if family == "cuda":
            return self._several(which, settings.turn)
        return open_target(name, settings)

    def close(self) -> None:
        for actor, _ in self._gpus or ():
            actor.end()
        self.work.cluster.close()

    def _several(self, which: str, turn: Turn) -> Target:
        return SeveralGpus([RemoteGpu(number, *gpu, turn) for number, gpu in self._selected(which)])

    def _selected(self, which: str) -> list[tuple[int, tuple[Actor, GpuFacts]]]:
        """The GPUs that `which` names, by number. UsageError for one that is not there."""
        with self._lock:
            if self._gpus is None:
                self._gpus = self._opened()
            gpus = self._gpus
        numbers = self._numbers(which, len(gpus))
        require_one_model(which, [(number, gpus[number][1].device) for number in numbers])
        return [(number, gpus[number]) for number in numbers]

    def _numbers(self, which: str, free: int) -> tuple[int, ...]:
        numbers = numbers_of(which, free)
        if not numbers or max(numbers) >= free:
            raise UsageError(
                f"cuda:{which} cannot be used: {free} GPUs of the cluster are free",
                code="no_gpu",
                mend="use emulator:h200, or add machines with GPUs to the cluster",
            )
        return numbers

    def _opened(self) -> list[tuple[Actor, GpuFacts]]:
        """An actor for each free GPU, in the order of machines and boards."""
        opened: list[tuple[Actor, GpuFacts]] = []
        for actor in self.work.cluster.actors(self._gpu_setup):
            try:
                opened.append((actor, _facts(actor)))
            except GreenfastError as error:
                actor.end()
                self.work.remarks.append(f"a GPU of the cluster is left out: {error.message}")
        return sorted(opened, key=lambda gpu: (gpu[1].machine, gpu[1].uuid))


def _facts(actor: Actor) -> GpuFacts:
    parcel, arrays = packed(None)
    try:
        reply = unpacked(actor.call("facts", parcel, arrays), {})
    except MachineLost as lost:
        raise Fault(f"its process does not start ({lost})", code="gpu_lost") from lost
    if isinstance(reply, Raised):
        raise reply.error()
    if reply.version != own_version():
        raise Fault(
            f"{reply.machine} has greenfast {reply.version}, and this machine {own_version()}",
            code="machine_differs",
        )
    facts: GpuFacts = reply
    return facts
