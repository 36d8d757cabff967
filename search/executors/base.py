"""The seam between a search and the machines that compile, emulate and measure for it.

An evaluation is a thread of the searching process. It asks a toolchain, a target and a checker, and
waits. An executor supplies these, so the loop, the gates, the strategy and the database are the
same whichever machines do the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from greenfast.search.devices.facts import Device
from greenfast.search.targets import TargetSettings
from greenfast.search.targets.base import Target
from greenfast.search.toolchain import Toolchain
from greenfast.search.toolchain.toolkit import Place


class Executor(ABC):
    """Supplies toolchains and targets. Their methods raise Fault when a machine fails."""

    name: str
    is_here = False  # whether all work is done on this machine

    @abstractmethod
    def cores(self) -> int:
        """The cores that compile and emulate."""

    @abstractmethod
    def gpu_count(self) -> int:
        """The GPUs that `cuda:all` means."""

    @abstractmethod
    def device(self, target: str) -> Device | None:
        """The device of `cuda:...` where only the executor can know it; None: this machine can."""

    @abstractmethod
    def toolchain(self, cache_folder: Path, children: int, place: Place | None) -> Toolchain:
        """A compiler whose cubins are kept below `cache_folder` of this machine."""

    @abstractmethod
    def target(self, name: str, settings: TargetSettings) -> Target:
        """The target of that name, not prepared yet."""

    def close(self) -> None:  # noqa: B027  optional
        """Give machines back."""
