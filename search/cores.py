"""The number of usable cores."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may run on; taskset and a container's cpuset can reduce them."""
    if hasattr(os, "sched_getaffinity"):  # missing on some systems
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
