"""The default executor: children of this process do the work."""

from __future__ import annotations

from pathlib import Path

from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import Device
from greenfast.search.executors.base import Executor
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.targets.cuda.driver import gpu_count
from greenfast.search.toolchain import Toolchain
from greenfast.search.toolchain.toolkit import Place


class ThisMachine(Executor):
    """All cores and GPUs of this machine."""

    name = "local"
    is_here = True

    def cores(self) -> int:
        return usable_cores()

    def gpu_count(self) -> int:
        return gpu_count()

    def device(self, target: str) -> Device | None:
        return None

    def toolchain(self, cache_folder: Path, children: int, place: Place | None) -> Toolchain:
        return Toolchain(cache_folder, children, place=place)

    def target(self, name: str, settings: TargetSettings) -> Target:
        return open_target(name, settings)
