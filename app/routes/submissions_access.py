"""Who may submit sources: the role of a token of its own.

A source is a program of its sender, so the service's ordinary token does not allow it. Without any
token the service listens on loopback only, where its user may.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections import deque
from dataclasses import dataclass

from starlette.datastructures import Headers

from greenfast.app.settings import Settings

PATH = "/api/v1/submissions"
MOST_WAITING = 64  # submissions that no worker has ended
MOST_A_MINUTE = 60  # requests to submit, to one process
RETRY_AFTER_S = 30


@dataclass(frozen=True)
class RoleMissing:
    """Why a token does not allow a request, for a problem with status 403."""

    code: str
    message: str
    mend: str


class SubmitRole:
    """The role of GREENFAST_SUBMIT_TOKEN: to submit sources, and to read."""

    def __init__(self, settings: Settings) -> None:
        self._token, self._has_other_token = settings.submit_token, bool(settings.token)

    def holds(self, headers: Headers) -> bool:
        """Whether the request carries the role's token."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return (
            bool(self._token)
            and scheme.lower() == "bearer"
            and hmac.compare_digest(given.strip().encode(), self._token.encode())
        )

    def refusal(
        self, method: str, path: str, headers: Headers, *, reads: bool
    ) -> RoleMissing | None:
        """Why the request needs another token; None: this one will do."""
        submits = method == "POST" and path.rstrip("/") == PATH
        if submits and not self._token and self._has_other_token:
            return RoleMissing(
                "submissions_off",
                "this service takes no sources",
                "set GREENFAST_SUBMIT_TOKEN where it is started",
            )
        if submits and self._token and not self.holds(headers):
            return RoleMissing(
                "role_missing",
                "this token may not submit sources",
                "send the token that GREENFAST_SUBMIT_TOKEN holds",
            )
        if self._has_other_token and self.holds(headers) and not (submits or reads):
            return RoleMissing(
                "role_missing",
                "this token may submit sources and read, and nothing else",
                "send the token that GREENFAST_TOKEN holds",
            )
        return None


class Rate:
    """At most `most` requests in a minute; safe for several threads."""

    def __init__(self, most: int = MOST_A_MINUTE) -> None:
        self._most, self._times, self._lock = most, deque[float](), threading.Lock()

    def allows(self) -> bool:
        now = time.monotonic()
        with self._lock:
            while self._times and self._times[0] < now - 60:
                self._times.popleft()
            if len(self._times) >= self._most:
                return False
            self._times.append(now)
            return True
