"""Which tests share a process when several run: those of a file, and all that look at pages."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

BROWSER = "tests/browser/"


class FileScheduling(LoadFileScheduling):
    """As xdist's, with one process for the browser: a second one would cost 15 s of its own."""

    def _split_scope(self, nodeid: str) -> str:
        return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)
