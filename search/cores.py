"""How many cores there are to work with."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may run on: fewer than the machine has under taskset or in a container with a cpuset."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
