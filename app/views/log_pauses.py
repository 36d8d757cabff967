"""Lines of the service's log that clients can cause at will: at most one a minute of each kind."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable

PAUSE_S = 60.0
MOST_KINDS = 100  # codes and sentences of programs, not of clients


class LogPauses:
    """Counts lines by their kind, and tells when the next one is due."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._kinds: dict[Hashable, tuple[float, int]] = {}  # when, and how many since

    def due(self, kind: Hashable) -> str | None:
        """None for a line to leave out; else its end, with the number of those left out before."""
        now_s = self._now_s()
        said_s, unsaid = self._kinds.get(kind, (-math.inf, 0))
        if now_s - said_s < PAUSE_S:
            self._kinds[kind] = said_s, unsaid + 1
            return None
        if len(self._kinds) < MOST_KINDS or kind in self._kinds:
            self._kinds[kind] = now_s, 0
        return f" ({unsaid:,} more since the last line)" if unsaid else ""


class RepeatedWarnings(logging.Filter):
    """For a library's logger: its warnings about what clients send, such as a malformed request."""

    def __init__(self) -> None:
        super().__init__()
        self._pauses = LogPauses()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        more = self._pauses.due(record.msg)
        if more:
            record.msg, record.args = record.getMessage().replace("%", "%%") + more, None
        return more is not None
