"""Deadlines and a limit for connections, so that a client with many cannot block the others.

uvicorn waits for a request's headers for ever. Here a connection has a deadline for complete
headers and a longer one for the body. There are never more connections than file descriptors allow:
a new one replaces the connection that has waited longest without a complete request.

A body in chunks of a byte costs a thousand times as much to read as one in large chunks. Such a
connection is closed, and no connection gives the event loop more than 4 KiB to read in one turn.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from h11._connection import DEFAULT_MAX_INCOMPLETE_EVENT_SIZE
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from greenfast.app.routes.auth import BODY_DEADLINE_S
from greenfast.app.views.problems import problem_response

WANTED_DESCRIPTORS = 8192
RESERVED_DESCRIPTORS = 256  # database, event loop, files, pipes of the workers
BODY_SLACK_S = 5.0  # the application refuses a late body first, with a problem document
READ_BYTES = 4096  # of a connection, in one turn of the event loop
CHUNKS_OF_ANY_SIZE, SMALLEST_MEAN_CHUNK_BYTES = 1000, 16


def last_answer(response: Response) -> bytes:
    """A response as it travels, for a connection that is closed after it."""
    head = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join((*head, b"connection: close", b"", bytes(response.body)))


MALFORMED = last_answer(
    problem_response(
        400,
        "bad_request",
        "this is no HTTP request, or one with a head that is too long, or a body of two lengths",
    )
)
SMALL_CHUNKS = last_answer(
    problem_response(
        400,
        "small_chunks",
        f"chunks of a body may have {SMALLEST_MEAN_CHUNK_BYTES} bytes each or more, on average",
    )
)
REQUEST_TIMEOUT = last_answer(
    problem_response(
        408,
        "request_timeout",
        "the request did not arrive in time",
        "send it at once; GREENFAST_REQUEST_TIMEOUT_S is the limit for its headers",
    )
)
FULL = last_answer(
    problem_response(
        503,
        "connections_full",
        "too many connections are open",
        "close some, try again, or raise GREENFAST_CONNECTIONS",
    )
)


def raise_descriptor_limit() -> int:
    """Raise this process's limit as far as possible; returns the number of connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    usable = WANTED_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, WANTED_DESCRIPTORS)
    return max(16, usable - RESERVED_DESCRIPTORS)


def bounded_protocol(
    header_timeout_s: float,
    most_connections: int,
    body_timeout_s: float = BODY_DEADLINE_S + BODY_SLACK_S,
) -> type[H11Protocol]:
    """uvicorn's protocol with deadlines for headers and body, and a limit on connections."""

    class BoundedProtocol(DeadlineProtocol):
        header_deadline_s = header_timeout_s
        body_deadline_s = body_timeout_s
        connection_limit = most_connections
        waiting: ClassVar[OrderedDict[DeadlineProtocol, None]] = OrderedDict()

    return BoundedProtocol


class CountedConnection(h11.Connection):
    """Counts the chunks and bytes of the present request's body, which has one stated length.

    A proxy in front that goes by the other length would take a part of the body for a request.
    """

    chunks = body_bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self.chunks += event.chunk_start
            self.body_bytes += len(event.data)
        elif isinstance(event, h11.Request):
            self.chunks = self.body_bytes = 0
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("content-length beside transfer-encoding")
        return event

    @property
    def has_small_chunks(self) -> bool:
        return self.chunks > CHUNKS_OF_ANY_SIZE + self.body_bytes // SMALLEST_MEAN_CHUNK_BYTES


class DeadlineProtocol(H11Protocol):
    """One connection: closed when a request is not complete in time."""

    header_deadline_s: float
    body_deadline_s: float
    connection_limit: int
    waiting: ClassVar[OrderedDict[DeadlineProtocol, None]]  # for a request, the oldest first
    _timer: asyncio.TimerHandle | None = None
    _awaited: Any = None  # the part of a request that the timer is for: h11.IDLE, h11.SEND_BODY

    conn: CountedConnection

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        most_bytes = self.config.h11_max_incomplete_event_size
        self.conn = CountedConnection(h11.SERVER, most_bytes or DEFAULT_MAX_INCOMPLETE_EVENT_SIZE)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if hasattr(transport, "max_size"):  # asyncio's own
            transport.max_size = READ_BYTES
        super().connection_made(transport)
        if len(self.connections) > self.connection_limit:
            if self.waiting:
                next(iter(self.waiting)).give_up()
            else:
                self.give_up(FULL)
                return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.has_small_chunks:
            self.give_up(SMALL_CHUNKS if self.conn.our_state is h11.SEND_RESPONSE else b"")
            return
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._stop_timer()  # the keep-alive timer runs until the next request
            self.waiting[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request, in the form of all our refusals."""
        answers = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        self.give_up(MALFORMED if answers else b"")

    def _should_upgrade(self) -> bool:
        """A request to change to another protocol gets its answer over HTTP, and needs no line."""
        return False

    def give_up(self, answer: bytes = b"") -> None:
        """Close at once, after sending `answer`."""
        self._stop_timer()
        if not self.transport.is_closing():
            if answer:
                self.transport.write(answer)
            self.transport.close()

    def _watch(self) -> None:
        """Start the deadline of the awaited part. More bytes of that part do not extend it."""
        state = self.conn.their_state
        if state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._stop_timer()
        elif state is not self._awaited:
            self._stop_timer()
            self._awaited = state
            self.waiting[self] = None
            deadline_s = self.header_deadline_s if state is h11.IDLE else self.body_deadline_s
            self._timer = self.loop.call_later(deadline_s, self.give_up, REQUEST_TIMEOUT)

    def _stop_timer(self) -> None:
        self.waiting.pop(self, None)
        self._awaited = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
