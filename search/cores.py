"""The cores and the memory that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_STATISTICS = Path("/proc/stat")
_IDLE_FIELDS = slice(4, 6)  # of a core's line: idle, and waiting for a disk
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def usable_cores() -> int:
    """Cores that this process may run on; taskset and a container's cpuset can reduce them."""
    if hasattr(os, "sched_getaffinity"):  # missing on some systems
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_memory_bytes() -> int:
    """The memory of the machine, or the limit of the container."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        memory = min(memory, int(_CONTAINER_LIMIT.read_text()))
    return memory


def idle_core_seconds() -> float | None:
    """The seconds for which the usable cores were idle since the machine started, summed.

    None: this system does not tell.
    """
    try:
        lines = _STATISTICS.read_text().splitlines()
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        ticks = [
            sum(map(int, fields[_IDLE_FIELDS]))
            for fields in map(str.split, lines)
            if fields and fields[0] in usable
        ]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None
    except (OSError, ValueError, AttributeError):
        return None
