"""A worker's turns on GPUs: one worker of a database at a time uses a GPU."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from greenfast.db.devices import Devices
from greenfast.db.faults import DeviceLost
from greenfast.db.rows import DeviceLease
from greenfast.search.errors import Fault

LEASE_S = 30.0
FRESH_S = 2.0  # a lease is renewed, or given to a waiting worker, no more often
POLL_S = 0.1
DEADLINE_S = 120.0  # of waiting for other workers


class DeviceTurns:
    """Keeps one worker's leases between its uses of a GPU, so most uses need no database."""

    def __init__(
        self,
        store: Devices,
        worker: str,
        *,
        lease_s: float = LEASE_S,
        fresh_s: float = FRESH_S,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._store, self._worker = store, worker
        self._lease_s, self._fresh_s, self._deadline_s = lease_s, fresh_s, deadline_s
        self._lock = threading.Lock()
        # By UUID: the lease, and when it was renewed.
        self._held: dict[str, tuple[DeviceLease, float]] = {}
        self._uses: Counter[str] = Counter()  # by UUID: turns in progress
        self._idle: threading.Event | None = None  # ends the thread that renews, while there is one

    @contextmanager
    def turn(self, uuid: str) -> Iterator[None]:
        """Use the GPU alone among the workers of the database. Threads of a worker share turns.

        Fault `gpu_busy` when others keep it beyond the deadline. DeviceLost when another worker
        took it before the turn ended, for example because this process was stopped for longer than
        the lease: the times of this turn may be disturbed.
        """
        self._take(uuid)
        try:
            yield
        finally:
            with self._lock:
                self._uses[uuid] -= 1
                lease, renewed = self._held[uuid]
        if time.monotonic() - renewed >= self._lease_s:  # another worker may have had it
            with self._lock:
                self._store.renew_device(lease, self._lease_s)
                self._held[uuid] = lease, time.monotonic()

    def give_back(self) -> None:
        """Release every GPU for now. A lease whose release fails runs out by itself."""
        with self._lock, suppress(Fault):
            if self._idle is not None:
                self._idle.set()
                self._idle = None
            while self._held:
                self._store.release_device(self._held.popitem()[1][0])

    def _take(self, uuid: str) -> None:
        end = time.monotonic() + self._deadline_s
        while not self._begin_use(uuid):
            if time.monotonic() >= end:
                holder = self._store.device_holder(uuid) or "others"
                raise Fault(
                    f"another worker ({holder}) has used the GPU for {self._deadline_s:g} s",
                    code="gpu_busy",
                    mend="wait for it, or choose another target",
                )
            time.sleep(POLL_S)

    def _begin_use(self, uuid: str) -> bool:
        """Whether this worker has the GPU; if so, the use is counted."""
        with self._lock:
            lease, renewed = self._held.get(uuid, (None, 0.0))
            now = time.monotonic()
            if lease is None:
                self._ask(uuid, now)
            elif not self._uses[uuid] and now - renewed >= self._fresh_s:
                self._renew_or_let_go(uuid, lease, now)
            if uuid not in self._held:
                return False
            self._uses[uuid] += 1
            return True

    def _ask(self, uuid: str, now: float) -> None:
        lease = self._store.lease_device(uuid, self._worker, self._lease_s)
        if lease is None:
            return
        self._held[uuid] = lease, now
        if self._idle is None:
            self._idle = threading.Event()
            threading.Thread(
                target=self._keep_alive, args=(self._idle,), name="gpu leases", daemon=True
            ).start()

    def _renew_or_let_go(self, uuid: str, lease: DeviceLease, now: float) -> None:
        """While no turn is in progress; `_keep_alive` renews during turns."""
        try:
            is_awaited = self._store.renew_device(lease, self._lease_s)
        except DeviceLost:
            del self._held[uuid]  # it can be leased again
            return
        self._held[uuid] = lease, now
        if is_awaited:
            del self._held[uuid]
            self._store.release_device(lease)
            time.sleep(3 * POLL_S)  # the waiting worker looks sooner

    def _keep_alive(self, idle: threading.Event) -> None:
        """Renew the leases in use, because some turns take longer than a lease."""
        while not idle.wait(self._lease_s / 3):
            with self._lock:
                for uuid, (lease, renewed) in self._held.items():
                    now = time.monotonic()
                    if self._uses[uuid] and self._lease_s / 3 <= now - renewed < self._lease_s:
                        with suppress(Fault):  # the end of the turn renews again
                            self._store.renew_device(lease, self._lease_s)
                            self._held[uuid] = lease, now
