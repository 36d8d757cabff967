"""The confinement that this machine's kernel offers for a process that runs a candidate.

native/sandbox.cpp uses all that exists. Sources: landlock(7), seccomp(2).
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.confinement import landlock_version

__all__ = ["Isolation", "has_seccomp", "isolation", "landlock_version"]

SECCOMP_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
FILTERED_MACHINES = ("x86_64", "aarch64")  # native/call_filter.cpp knows their calls
# What each version of Landlock added to what it can refuse.
LANDLOCK_PARTS = (
    (1, "opening and making files"),
    (2, "moving files between folders"),
    (3, "truncating files"),
    (4, "TCP"),
    (5, "device ioctls"),
    (6, "signals and abstract sockets"),
    (9, "sockets with a path"),
)


def has_seccomp() -> bool:
    """Whether system calls can be filtered, and a refused call be reported."""
    if platform.machine() not in FILTERED_MACHINES:
        return False
    try:
        return "trap" in SECCOMP_ACTIONS.read_text().split()
    except OSError:
        return False


@dataclass(frozen=True)
class Isolation:
    """The two barriers around a candidate's process, as this kernel has them."""

    landlock: int  # the version; 0: none
    seccomp: bool

    @property
    def is_complete(self) -> bool:
        """Whether both barriers exist. Either closes files and network; seccomp closes the rest."""
        return self.seccomp and self.landlock > 0

    @property
    def held(self) -> str:
        parts = [
            *(["seccomp allows only 20 system calls"] if self.seccomp else []),
            *([f"Landlock {self.landlock} lets no file be opened"] if self.landlock else []),
        ]
        return "; ".join(parts) or "process limits only"

    @property
    def not_held(self) -> str:
        """What stays open because a barrier is missing or old; empty: nothing."""
        missing = [part for version, part in LANDLOCK_PARTS if version > self.landlock]
        if not self.seccomp and not self.landlock:
            return "a candidate can read and write files, use the network and signal processes"
        if not self.seccomp:
            rest = f" and {', '.join(missing)}" if missing else ""
            return f"without seccomp these stay open: processes, shared memory, priorities{rest}"
        if not missing:
            return ""
        return f"closed only by seccomp, because this Landlock is too old: {', '.join(missing)}"


def isolation() -> Isolation:
    return Isolation(landlock_version(), has_seccomp())
