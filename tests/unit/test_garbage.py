"""Python's garbage collection while searches of this process run."""

from __future__ import annotations

import gc
import weakref

import pytest

from greenfast.search.loop.garbage import YOUNG_OBJECTS, rare_collections


class Node:
    """One that refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.slow
def test_what_was_loaded_before_a_search_is_looked_at_again_after_the_last_one():
    thresholds, old = gc.get_threshold(), weakref.ref(Node())
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    try:
        new = weakref.ref(Node())
        gc.collect()
        assert old() is not None and new() is None
        first.__exit__(None, None, None)
        assert gc.get_threshold() == (YOUNG_OBJECTS, *thresholds[1:])
    finally:
        second.__exit__(None, None, None)
    gc.collect()
    assert old() is None and gc.get_threshold() == thresholds and not gc.get_freeze_count()
