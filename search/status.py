"""The statuses of a search, from its submission to its end."""

from __future__ import annotations

from enum import StrEnum


class SearchStatus(StrEnum):
    """queued -> running -> completed, failed or cancelled. A paused search can be queued again."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


STATUSES = tuple(SearchStatus)
ENDED = (SearchStatus.COMPLETED, SearchStatus.CANCELLED, SearchStatus.FAILED)
