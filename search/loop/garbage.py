"""Python's garbage collection while a search runs: rarer, and of what the search made alone.

A collection of everything that was loaded stops all threads for 0.1 s and more. A GPU has nothing
to do meanwhile once its requests are answered.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000  # before a collection of the youngest; Python's own number is 700


class _Searches:
    """How many searches of this process run, and the thresholds from before the first."""

    lock = threading.Lock()
    running = 0
    thresholds = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """In this block. What was loaded before is looked at again when the last such block ends."""
    with _Searches.lock:
        _Searches.running += 1
        if _Searches.running == 1:
            _Searches.thresholds = gc.get_threshold()
            gc.freeze()
            gc.set_threshold(YOUNG_OBJECTS, *_Searches.thresholds[1:])
    try:
        yield
    finally:
        with _Searches.lock:
            _Searches.running -= 1
            if not _Searches.running:
                gc.set_threshold(*_Searches.thresholds)
                gc.unfreeze()
