"""Machines that take tasks, whatever starts them; and the rule for a machine that dies.

A task is a function of greenfast with one parcel. It has no effect but its result and files below
the cache of its machine, so it may run twice. Only the searching process records trials: a machine
that dies can neither lose nor double one.
"""

from __future__ import annotations

import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenfast.search.errors import Fault, GreenfastError, SpecError, UsageError
from greenfast.search.executors.parcel import Parcel, packed, unpacked
from greenfast.search.targets.base import SourceRefused
from greenfast.search.targets.emulator.target import CannotCompile

ATTEMPTS = 4  # of a task whose machines die; then its trial is a fault
Task = Callable[..., Parcel]


class MachineLost(Exception):
    """The machine or process that did the work is gone; nothing is known about the work."""


@dataclass(frozen=True)
class Differs:
    """A machine's answer that it runs other versions, so that its results do not count here."""

    machine: str
    sentence: str


@dataclass(frozen=True)
class Raised:
    """An error of greenfast, raised on another machine."""

    kind: str
    message: str
    code: str
    mend: str
    log: str = ""

    @staticmethod
    def of(error: GreenfastError) -> Raised:
        kind = next(name for name, known in KINDS.items() if isinstance(error, known))
        return Raised(kind, error.message, error.code, error.mend, getattr(error, "log", ""))

    def error(self) -> GreenfastError:
        if self.kind == "cannot_compile":
            return CannotCompile(self.message, self.log)
        error: GreenfastError = KINDS[self.kind](self.message, code=self.code, mend=self.mend)
        return error


# The narrower kinds first.
KINDS: dict[str, Any] = {
    "cannot_compile": CannotCompile,
    "source_refused": SourceRefused,
    "spec": SpecError,
    "usage": UsageError,
    "fault": Fault,
    "other": GreenfastError,
}


class Actor(ABC):
    """A process on some machine that holds one GPU."""

    @abstractmethod
    def call(self, method: str, parcel: Parcel, arrays: Mapping[str, np.ndarray]) -> Parcel:
        """The reply of a method. MachineLost when the process is gone."""

    @abstractmethod
    def end(self) -> None:
        """End the process; its GPU is free again."""


class Cluster(ABC):
    """Starts tasks and actors on machines. The methods may be called by several threads."""

    @abstractmethod
    def cores(self) -> int:
        """The cores of the machines that are alive."""

    @abstractmethod
    def gpu_count(self) -> int:
        """The GPUs of the machines that are alive."""

    @abstractmethod
    def run(
        self,
        task: Task,
        parcel: Parcel,
        arrays: Mapping[str, np.ndarray],
        near: str,
        avoided: Sequence[str],
    ) -> Parcel:
        """The task's reply, from a machine that is not `avoided`.

        Tasks with the same `near` prefer the same machine. MachineLost when it died; Fault
        `no_machines` where none is left; Fault `interrupted`.
        """

    @abstractmethod
    def actors(self, setup: object) -> list[Actor]:
        """An actor for each GPU that is free."""

    @abstractmethod
    def interrupt(self) -> None:
        """End the tasks in progress: their calls raise Fault. Later ones work."""

    @abstractmethod
    def close(self) -> None:
        """Leave the cluster."""


class Work:
    """Runs tasks on a cluster, and again on another machine where one dies or differs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.repeated = 0  # tasks that ran again because a machine died
        self.remarks: list[str] = []
        self._avoided: list[str] = []
        self._lock = threading.Lock()

    def run(self, task: Task, request: object, near: str = "") -> Any:
        """The task's result; an error that greenfast raised there is raised here."""
        parcel, arrays = packed(request)
        deaths = 0
        while True:
            try:
                reply = self.cluster.run(task, parcel, arrays, near, tuple(self._avoided))
            except MachineLost as lost:
                deaths += 1
                if deaths >= ATTEMPTS:
                    raise Fault(
                        f"{deaths} machines in a row were lost with a task: {lost}",
                        code="machine_lost",
                    ) from lost
                near = ""  # elsewhere
                with self._lock:
                    self.repeated += 1
                continue
            result = unpacked(reply, {})
            if isinstance(result, Raised):
                raise result.error()
            if not isinstance(result, Differs):
                return result
            self._avoid(result)

    def _avoid(self, differs: Differs) -> None:
        with self._lock:
            if differs.machine not in self._avoided:
                self._avoided.append(differs.machine)
                self.remarks.append(f"{differs.sentence}; it is not used")


def replied(work: Callable[[], object]) -> Parcel:
    """The reply of a task: its result, or the error of greenfast that it raised."""
    try:
        result = work()
    except GreenfastError as error:
        result = Raised.of(error)
    return _whole(result)


def _whole(result: object) -> Parcel:
    """A reply with its arrays in it: each is used once."""
    return Parcel(pickle.dumps(result, pickle.HIGHEST_PROTOCOL), ())
