"""The sink of a running search: it writes to the store under one claim."""

from __future__ import annotations

import time
from collections.abc import Sequence

from greenfast.db.rows import Claim
from greenfast.db.store import Store
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.sink import Begun, Control, Record
from greenfast.search.loop.spending import Spent
from greenfast.search.verdict import GateResult

LONGEST_SILENCE_S = 0.5  # flags are read within this plus the loop's own interval


class StoreSink:
    """A `greenfast.search.loop.sink.Sink`. Writes are durable when a call returns.

    Every call raises LeaseLost once another worker holds the search.
    """

    def __init__(self, store: Store, claim: Claim, lease_s: float) -> None:
        self._store, self._claim, self._lease_s = store, claim, lease_s
        self._silence_s = min(LONGEST_SILENCE_S, lease_s / 4)
        self._renewed = -float("inf")
        self._control = Control.RUN

    def begin(self, begun: Sequence[Begun]) -> None:
        self._store.begin_all(self._claim, begun)

    def record(self, records: Sequence[Record]) -> None:
        self._store.record_all(self._claim, records)

    def settle(self, number: int, result: GateResult) -> None:
        self._store.settle(self._claim, number, result)

    def confirm(self, confirmation: Confirmation) -> None:
        self._store.record_confirmation(self._claim, confirmation)

    def beside(self, peer: Peer) -> None:
        self._store.record_peer(self._claim, peer)

    def control(self, spent: Spent) -> Control:
        """Renew the lease and read the flags, at intervals: the loop asks at every step."""
        now = time.monotonic()
        if now - self._renewed >= self._silence_s:
            self._control = self._store.renew(
                self._claim, self._lease_s, spent.seconds, spent.gpu_seconds
            )
            self._renewed = now
        return self._control
