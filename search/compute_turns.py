"""How many threads compute in Python at once: two.

One thread at a time holds Python's lock, and NumPy gives it away in every call on more than a few hundred numbers. Where
sixteen threads compute, each waits far longer for the lock than it works, and so does the loop that coordinates a search: its
own steps then take more than ten times as long, and the sixteen together do less than two would (bench/speed/compute_turns.py). So those
that compute take turns. Nobody who has a turn may wait for another thread or a child.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

AT_ONCE = 2  # one computes while the other is in NumPy, without the lock
LARGE_BYTES = (
    2**22
)  # steps over so much data take long, and all without the lock: no turn is needed

_turns = threading.BoundedSemaphore(AT_ONCE)


def turn(size_bytes: int) -> AbstractContextManager[object]:
    """To compute in steps over about so much data; not to be taken twice."""
    return _turns if size_bytes < LARGE_BYTES else nullcontext()
