"""The GPUs of a search, as a process sees them that evaluates candidates for it.

The process lays out problems and reads outputs itself. Its requests go through the process that has
the GPUs, which chooses a free one and repeats a request that a GPU failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from greenfast.search.devices.facts import Device
from greenfast.search.targets.cuda.target import CudaTarget, Place, new_place

ANY = -1  # instead of a GPU's number: each reply names its own
Ask = Callable[[Mapping[str, Any]], dict[str, Any]]  # `Runner.relayed` of the other process


class _Asking:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask(request)


class RelayedGpus(CudaTarget):
    """All GPUs of a target of another process. Only what gates need of a target works here."""

    def __init__(self, name: str, device: Device, run_deadline_s: float, ask: Ask) -> None:
        self.name, self.device, self.number = name, device, ANY
        self._begin(run_deadline_s)
        self._own_place = new_place(_Asking(ask), self)

    def _place(self) -> Place:
        return self._own_place

    def prepare(self) -> None:
        """The other process has done that."""

    def identity(self) -> tuple[tuple[str, str], ...]:
        raise NotImplementedError

    def interrupt(self) -> None:
        """The other process ends the requests in progress."""

    def close(self) -> None:
        self._own_place.remove()
