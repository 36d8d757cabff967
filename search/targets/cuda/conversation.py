"""The requests to the measuring child of one GPU, each sent before the last one is answered.

Between a reply and the next request a thread of a busy process has to wake up, which takes
milliseconds in which the GPU has nothing to do. So the next request lies in the child's pipe while
the child works, and the child goes on by itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from greenfast.search.children import Child, encoded
from greenfast.search.targets.cuda.lock import GpuLock
from greenfast.search.targets.cuda.measuring_child import MeasuringChild

AT_ONCE = 3  # requests that the child has: it works on the first
STRETCH_S = 2.0  # of requests without a pause; then other workers of the database may have the GPU
SHORT_STRETCH_S = 0.2  # where another process of the machine waits

Turn = Callable[[], AbstractContextManager[None]]
Spent = Callable[[str, float], None]  # of a kind of request, seconds


@dataclass(eq=False)
class _Place:
    """A thread's place in the order of requests."""

    called: threading.Condition  # the thread may go on
    is_pause: bool = False  # it has no request
    is_admitted: bool = False
    interrupts: int = 0  # of the child, when it was admitted
    behind: Child | None = None  # which has the request before this one; None: there is none
    child: Child | None = None  # which has this one, or a part of it
    is_sent: bool = False  # the whole
    sent_s: float = 0.0
    is_answered: bool = False


class Conversation:
    """Gives each thread the reply to its request. The child has up to `AT_ONCE` of them.

    The GPU's lock is held as long as it has any, and a turn for each.
    """

    def __init__(self, child: MeasuringChild, gpu: GpuLock, turn: Turn, spent: Spent) -> None:
        """`spent` receives the time that the child spent on each request, also on faults."""
        self._child, self._gpu, self._turn, self._spent = child, gpu, turn, spent
        self._lock = threading.Lock()  # of the fields below
        self._waiting: deque[_Place] = deque()
        self._admitted: deque[_Place] = deque()
        self._begun_s = 0.0  # since when the GPU's lock is held
        self._replied_s = 0.0  # when the last reply came

    def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The child's reply. Fault when the child is lost with it, or others keep the GPU.

        A run that did damage is repeated with inputs copied anew to the GPU: an earlier candidate
        may have damaged the copies that stay there.
        """
        reply = self._reply(request)
        if any(reply.get("damage", ())):
            reply = self._reply({**request, "anew": True})
        return reply

    def _reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        message = encoded(request)
        with self._place() as own, self._turn():
            if own.behind is None:
                self._gpu.take()
                self._begun_s = time.monotonic()
            try:
                self._send(own, message)
                self._wait_to_be_first(own)
                return self._received(own, message)
            finally:
                self._count(own, request["do"])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The child has no request in this block, and the GPU's lock is free."""
        with self._place(is_pause=True):
            yield

    def interrupt(self) -> None:
        """End the requests that the child has, from another thread: Fault `interrupted`."""
        with self._lock:
            if self._admitted:
                self._child.interrupt()

    def _send(self, own: _Place, message: bytes) -> None:
        if own.behind is None:
            self._send_first(own, message)
            return
        own.sent_s = time.monotonic()
        with suppress(OSError):  # the child was lost with the request before: it is sent later
            self._write(own, message, own.behind)

    def _send_first(self, own: _Place, message: bytes) -> None:
        """Send to a child that has no other request, and is started if need be."""
        own.sent_s = time.monotonic()
        self._child.require_no_interrupt_since(own.interrupts)
        child = self._child.start()
        with suppress(OSError):  # it has died, which `receive` reports
            self._write(own, message, child)

    def _write(self, own: _Place, message: bytes, child: Child) -> None:
        with self._lock:
            own.child, own.is_sent = child, False
        child.send(message)
        with self._lock:
            own.is_sent = True
            self._admit()

    def _wait_to_be_first(self, own: _Place) -> None:
        with self._lock:
            own.called.wait_for(lambda: self._admitted[0] is own)

    def _received(self, own: _Place, message: bytes) -> dict[str, Any]:
        """The reply to the first request, whose deadline counts from now."""
        if not own.is_sent or own.child is not self._child.running:
            self._send_first(own, message)  # the child was lost before it came to this one
        reply = self._child.receive(own.interrupts)
        own.is_answered = True
        return reply

    def _count(self, own: _Place, kind: str) -> float:
        """Note for how many seconds the child had this request and none before it."""
        now_s = time.monotonic()
        with self._lock:
            if self._admitted[0] is not own:
                return 0.0
            spent_s = now_s - max(own.sent_s, self._replied_s)
            self._replied_s = now_s
        self._spent(kind, spent_s)
        return spent_s

    @contextmanager
    def _place(self, *, is_pause: bool = False) -> Iterator[_Place]:
        """A place in the order, once the child may have its request."""
        own = _Place(threading.Condition(self._lock), is_pause)
        try:
            with self._lock:
                self._waiting.append(own)
                self._admit()
                own.called.wait_for(lambda: own.is_admitted)
            yield own
        finally:
            with self._lock:
                self._leave(own)

    def _admit(self) -> None:
        """Let the next one go on, if the child may have its request."""
        if not self._waiting or (self._admitted and not self._may_send_ahead(self._waiting[0])):
            return
        place = self._waiting.popleft()
        place.is_admitted, place.interrupts = True, self._child.interrupts
        place.behind = self._admitted[-1].child if self._admitted else None
        self._admitted.append(place)
        place.called.notify()

    def _may_send_ahead(self, place: _Place) -> bool:
        last, held_s = self._admitted[-1], time.monotonic() - self._begun_s
        return (
            not place.is_pause
            and len(self._admitted) < AT_ONCE
            and last.is_sent
            and last.child is self._child.running
            and self._child.takes(len(self._admitted) + 1)
            and held_s < STRETCH_S
            and not (held_s >= SHORT_STRETCH_S and self._gpu.is_awaited())
        )

    def _leave(self, own: _Place) -> None:
        if not own.is_admitted:
            self._waiting.remove(own)
            return
        if own.child is not None and own.child is self._child.running and not own.is_answered:
            self._child.interrupt()  # its reply would be taken for the next one's
        self._admitted.remove(own)
        if self._admitted:
            self._admitted[0].called.notify()
        elif not own.is_pause:
            self._gpu.release()
        self._admit()
