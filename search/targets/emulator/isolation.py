"""The sandboxing features of this machine's kernel; native/sandbox.cpp uses those that exist."""

from __future__ import annotations

import ctypes
from pathlib import Path

LANDLOCK_CREATE_RULESET = 444  # the same number on x86-64 and arm64
LANDLOCK_CREATE_RULESET_VERSION = 1
SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")


def landlock_version() -> int:
    """The version of the kernel's Landlock interface, from 1; 0: none. Source: landlock(7)."""
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(
        LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(0, int(version))


def has_seccomp() -> bool:
    return SECCOMP.exists()
