"""A worker's turns on GPUs: as long as one uses a GPU, no other worker of the same database does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from db.devices import Devices
from db.faults import DeviceLost
from db.rows import DeviceLease
from search.errors import Fault

LEASE_S = 30.0
FRESH_S = 2.0                    # a lease is renewed, and lent to whoever waits, not more often
POLL_S = 0.1
DEADLINE_S = 600.0               # of waiting for other workers


class DeviceTurns:
    """Holds the leases of one worker between its uses of a GPU, so that most uses ask the database nothing."""

    def __init__(self, store: Devices, worker: str, *, lease_s: float = LEASE_S, fresh_s: float = FRESH_S,
                 deadline_s: float = DEADLINE_S) -> None:
        self._store, self._worker = store, worker
        self._lease_s, self._fresh_s, self._deadline_s = lease_s, fresh_s, deadline_s
        self._lock = threading.Lock()
        self._held: dict[str, tuple[DeviceLease, float]] = {}        # by UUID: the lease, and when it was renewed

    @contextmanager
    def turn(self, uuid: str) -> Iterator[None]:
        """Have the GPU alone among the workers of the database. Threads of one worker have to take turns themselves.

        Fault `gpu_busy` when others keep it beyond the deadline, DeviceLost when another took it before we were
        done: then what was timed may have been disturbed.
        """
        self._take(uuid)
        yield
        with self._lock:
            lease, renewed = self._held[uuid]
            if time.monotonic() - renewed >= self._lease_s:          # so long that another may have had it
                self._held[uuid] = lease, time.monotonic()
                self._store.renew_device(lease, self._lease_s)

    def give_back(self) -> None:
        """Release every GPU: nothing is to run for a while. Where that fails, the lease runs out."""
        with self._lock, suppress(Fault):
            while self._held:
                self._store.release_device(self._held.popitem()[1][0])

    def _take(self, uuid: str) -> None:
        end = time.monotonic() + self._deadline_s
        while not self._have(uuid):
            if time.monotonic() >= end:
                holder = self._store.device_holder(uuid) or "others"
                raise Fault(f"another worker ({holder}) has used the GPU for {self._deadline_s:g} s", code="gpu_busy",
                            mend="wait for it, or choose another target")
            time.sleep(POLL_S)

    def _have(self, uuid: str) -> bool:
        with self._lock:
            lease, renewed = self._held.get(uuid, (None, 0.0))
            now = time.monotonic()
            if lease is not None and now - renewed < self._fresh_s:
                return True
            if lease is not None:
                self._renew_or_let_go(uuid, lease, now)
            elif (taken := self._store.lease_device(uuid, self._worker, self._lease_s)) is not None:
                self._held[uuid] = taken, now
            return uuid in self._held

    def _renew_or_let_go(self, uuid: str, lease: DeviceLease, now: float) -> None:
        del self._held[uuid]                     # whatever comes: then it is asked for anew
        try:
            if not self._store.renew_device(lease, self._lease_s):
                self._held[uuid] = lease, now
                return
        except DeviceLost:
            return                               # nothing was in progress
        self._store.release_device(lease)
        time.sleep(3 * POLL_S)                   # whoever waits looks sooner than we do
