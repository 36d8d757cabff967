"""Tasks and actors on a Ray cluster; the only file that imports Ray.

Ray's own retries are off: `Work` repeats a lost task, so that every executor keeps one rule.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greenfast.search.errors import Fault, UsageError
from greenfast.search.executors import gpu_actor, node
from greenfast.search.executors.cluster import Actor, Cluster, MachineLost, Task
from greenfast.search.executors.parcel import Parcel
from greenfast.search.text import one_line, shortened

CONNECT_S = 5.0
LONGEST_REASON = 200  # characters, of Ray's
LOOK_S = 1.0  # between two looks whether a machine is left
NODES_KEPT_S = 1.0
HELD_BYTES = 2**28  # of arrays that Ray keeps for later tasks
ALONE_S = 60.0  # without a machine, before a task is a fault
CALLERS = 3  # of an actor: two requests, and one that interrupts them


def ray_module() -> Any:
    """Ray; UsageError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise UsageError(
            "the executor ray needs the package ray, which is not installed",
            code="no_ray",
            mend="pip install 'greenfast[ray]'",
        ) from None
    return ray


class RayCluster(Cluster):
    """A connection to a Ray cluster, of which this machine is a node."""

    def __init__(self, address: str) -> None:
        """`address`: HOST:PORT of the head, or `auto` for the cluster of this machine.

        UsageError if there is none.
        """
        self._ray = ray_module()
        _require_answer(address)
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, one_line(str(error))) from error
        self._tasks: dict[str, Any] = {}
        self._arrays: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._array_bytes = 0
        self._running: set[Any] = set()
        self._interrupts = 0
        self._lock = threading.Lock()
        self._seen: tuple[float, list[dict[str, Any]]] = (-NODES_KEPT_S, [])

    def cores(self) -> int:
        return int(sum(each["Resources"].get("CPU", 0) for each in self._alive()))

    def gpu_count(self) -> int:
        return int(sum(each["Resources"].get("GPU", 0) for each in self._alive()))

    def run(
        self,
        task: Task,
        parcel: Parcel,
        arrays: Mapping[str, np.ndarray],
        near: str,
        avoided: Sequence[str],
    ) -> Parcel:
        interrupts = self._interrupts
        options = self._placed(near, avoided)
        sent = [self._sent(digest, arrays[digest]) for digest in parcel.digests]
        reference = self._remote(task).options(**options).remote(parcel, *sent)
        with self._lock:
            self._running.add(reference)
        try:
            return self._reply(reference, interrupts, avoided)
        finally:
            with self._lock:
                self._running.discard(reference)

    def actors(self, setup: object) -> list[Actor]:
        gpus = self._ray.remote(gpu_actor.GpuActor)
        options = {"num_gpus": 1, "num_cpus": 0, "max_restarts": 0, "max_concurrency": CALLERS}
        count = int(self._ray.available_resources().get("GPU", 0))
        return [RayActor(self._ray, gpus.options(**options).remote(setup)) for _ in range(count)]

    def interrupt(self) -> None:
        with self._lock:
            self._interrupts += 1
            running = list(self._running)
        for reference in running:
            self._ray.cancel(reference)

    def close(self) -> None:
        self._ray.shutdown()

    def _remote(self, task: Task) -> Any:
        with self._lock:
            if task.__name__ not in self._tasks:
                self._tasks[task.__name__] = self._ray.remote(num_cpus=1, max_retries=0)(
                    _on_machine(task)
                )
            return self._tasks[task.__name__]

    def _sent(self, digest: str, array: np.ndarray) -> Any:
        """Ray's reference to an array. A machine fetches it once, and keeps it while it is held."""
        with self._lock:
            if digest in self._arrays:
                self._arrays.move_to_end(digest)
                return self._arrays[digest][0]
        reference = self._ray.put(array)
        with self._lock:
            if digest not in self._arrays:
                self._arrays[digest] = (reference, array.nbytes)
                self._array_bytes += array.nbytes
            while self._array_bytes > HELD_BYTES and len(self._arrays) > 1:
                _, (_, size) = self._arrays.popitem(last=False)
                self._array_bytes -= size
        return reference

    def _alive(self) -> list[dict[str, Any]]:
        """The machines that are alive."""
        with self._lock:
            seen_s, machines = self._seen
            if time.monotonic() - seen_s >= NODES_KEPT_S:
                machines = [each for each in self._ray.nodes() if each["Alive"]]
                self._seen = (time.monotonic(), machines)
            return machines

    def _usable(self, avoided: Sequence[str]) -> list[str]:
        return [
            each["NodeID"]
            for each in self._alive()
            if each["Resources"].get("CPU", 0) >= 1 and each["NodeID"] not in avoided
        ]

    def _placed(self, near: str, avoided: Sequence[str]) -> dict[str, Any]:
        """Ray's options for a machine: the one that has compiled `near` before, unless it is busy.

        Each machine has its own order of preference for a text (rendezvous hashing), so that a
        machine that comes or goes moves no other's texts.
        """
        usable = self._usable(avoided)
        if avoided:
            selector = {"ray.io/node-id": f"in({','.join(usable)})"} if usable else {}
            return {"label_selector": selector}
        if not near or not usable:
            return {}
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        best = max(usable, key=lambda name: hashlib.sha256(f"{name} {near}".encode()).digest())
        strategy = NodeAffinitySchedulingStrategy(best, soft=True, _spill_on_unavailable=True)
        return {"scheduling_strategy": strategy}

    def _reply(self, reference: Any, interrupts: int, avoided: Sequence[str]) -> Parcel:
        errors = self._ray.exceptions
        alone_since: float | None = None
        while not self._ray.wait([reference], timeout=LOOK_S)[0]:
            if self._usable(avoided):
                alone_since = None
                continue
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since > ALONE_S:
                self._ray.cancel(reference, force=True)
                raise Fault("no machine of the cluster is left", code="no_machines")
        try:
            reply: Parcel = self._ray.get(reference)
            return reply
        except errors.TaskCancelledError:
            raise Fault("the cluster's tasks were interrupted", code="interrupted") from None
        except errors.RayTaskError as error:
            if interrupts != self._interrupts:
                raise Fault("the cluster's tasks were interrupted", code="interrupted") from None
            raise error.as_instanceof_cause() from None
        except errors.RayError as error:  # a worker, its machine, or its memory is gone
            raise MachineLost(type(error).__name__) from error


def _require_answer(address: str) -> None:
    """UsageError at once for an address at which nothing listens: Ray would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in address:
        raise UsageError(
            f"{address!r} is not the address of a Ray cluster",
            code="bad_address",
            mend="give HOST:PORT of its head, or auto",
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        raise _no_cluster(address, error.strerror or "no answer") from error


def _no_cluster(address: str, why: str) -> UsageError:
    return UsageError(
        f"no Ray cluster answers at {address!r}: {shortened(why, LONGEST_REASON)}",
        code="no_cluster",
        mend="start one with `ray start --head`, or name its HOST:PORT with --address",
    )


def _on_machine(task: Task) -> Any:
    """The task, in a process that knows Ray's name of its machine."""

    def named(parcel: Parcel, *arrays: np.ndarray) -> Parcel:
        import ray

        node.be_machine(ray.get_runtime_context().get_node_id())
        return task(parcel, *arrays)

    named.__name__ = task.__name__
    return named


class RayActor(Actor):
    """A handle on an actor, wherever it lives."""

    def __init__(self, ray: Any, handle: Any) -> None:
        self._ray, self._handle = ray, handle

    def call(self, method: str, parcel: Parcel, arrays: Mapping[str, np.ndarray]) -> Parcel:
        sent = [self._ray.put(arrays[digest]) for digest in parcel.digests]
        reference = self._handle.answer.remote(method, parcel, *sent)
        try:
            reply: Parcel = self._ray.get(reference)
            return reply
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            raise MachineLost(type(error).__name__) from error

    def end(self) -> None:
        self._ray.kill(self._handle)
