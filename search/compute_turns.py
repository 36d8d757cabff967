"""A limit on the threads that compute in Python at once: two.

One thread at a time holds Python's global lock, and NumPy releases it in every call on more than a
few hundred numbers. With sixteen computing threads, each waits far longer for the lock than it
works, and so does the loop that coordinates a search: its own steps take more than ten times as
long, and the sixteen threads finish less work than two would (bench/speed/compute_turns.py).
Threads that compute therefore take turns. A thread must not wait for another thread or for a child
while it has a turn.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

AT_ONCE = 2  # one computes while the other is in NumPy, without the lock
LARGE_BYTES = 2**22  # steps over this much data run without the lock and need no turn

_turns = threading.BoundedSemaphore(AT_ONCE)


def turn(size_bytes: int) -> AbstractContextManager[object]:
    """A context for computing in steps over about `size_bytes` of data; not reentrant."""
    return _turns if size_bytes < LARGE_BYTES else nullcontext()
