"""Answers with bundles, of which a few are made at once: their machine code may be compiled first.

A request that waits for a compiler holds a thread, and with all of them no request is answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fastapi import Response

from greenfast.app.bundle.download import Bundle
from greenfast.search.errors import Fault

MOST_AT_ONCE = 16  # of the 40 threads that answer requests
_SLOTS = threading.BoundedSemaphore(MOST_AT_ONCE)


def zip_response(make: Callable[[], Bundle]) -> Response:
    """The zip file; Fault `bundles_busy` while too many are being made."""
    if not _SLOTS.acquire(blocking=False):
        raise Fault(
            f"{MOST_AT_ONCE} bundles are being made already",
            code="bundles_busy",
            mend="try again in a minute",
        )
    try:
        package = make()
    finally:
        _SLOTS.release()
    return Response(
        package.content,
        media_type="application/zip",
        headers={"content-disposition": f'attachment; filename="{package.file_name}"'},
    )
