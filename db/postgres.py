"""A psycopg connection with a deadline: a stopped server accepts data and never answers."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

LOOK_S = 0.1  # psycopg wakes its generators at this interval while nothing arrives


def bounded_connection(answer_s: float) -> type[psycopg.Connection[Any]]:
    """A connection type that closes itself when the server is silent for `answer_s`.

    The server ends slow statements itself, and TCP notices a dead host. Neither helps against a
    stopped server process, because its kernel still acknowledges our data.
    """

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, interval: float = LOOK_S, *rest: Any, **named: Any) -> Any:
            bounded = _with_deadline(gen, time.monotonic() + answer_s, self)
            return super().wait(bounded, interval, *rest, **named)

    return BoundedConnection


def _with_deadline(
    waiting: Generator[Any, Any, Any], deadline: float, connection: psycopg.Connection[Any]
) -> Generator[Any, Any, Any]:
    """The same generator; it closes the connection when nothing arrives by the deadline."""
    try:
        state = next(waiting)
        while True:
            ready = yield state
            if not ready and time.monotonic() > deadline:
                waiting.close()
                connection.pgconn.finish()
                raise psycopg.OperationalError("the server did not answer in time")
            state = waiting.send(ready)
    except StopIteration as end:
        return end.value
