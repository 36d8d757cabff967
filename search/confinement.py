"""Confines this process to a few folders, for good, without privileges: Landlock and seccomp.

A Python child calls `confine` once it has loaded what it needs, and before its first request. From
then on it opens only files below the given folders, starts no process, reaches no network and
signals no process but itself. Where the kernel lacks a part, the others still hold. Compilers that
start further processes run under native/confine_main.cpp instead. Sources: landlock(7), seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# Numbers of calls that all architectures share.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_REQUEST, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REMOVE_FILE, _MAKE_REG, _TRUNCATE = 1 << 5, 1 << 8, 1 << 14
# The rights of files in each version of the interface: 13 at first, then REFER, TRUNCATE, and IOCTL
# on devices. TCP came with version 4, signals and abstract sockets with version 6.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 3
_SCOPES = 3

_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _SECCOMP_FILTER = 38, 4, 22, 2
# SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EPERM and with ENOSYS
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026
_LOAD, _EQUALS, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF: a word of the call's data
_X32 = 0x40000000  # x86-64's calls by other numbers
_NEWER = 443  # calls from here on were added after Landlock; programs fall back to older ones
# Calls that neither compiling nor rendering needs, by their numbers on each machine.
_REFUSED = {
    "x86_64": (
        0xC000003E,
        {
            "process": (56, 57, 58, 59, 322, 435),  # clone: threads exist before the filter
            "signal": (62, 129, 297, 424, 434, 438, 200),
            "network": (41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 53, 288, 299, 307),
            "memory of others": (101, 310, 311, 312, 440),
            "shared objects": (
                29,
                30,
                31,
                64,
                65,
                66,
                68,
                69,
                70,
                71,
                240,
                319,
                323,
                425,
                426,
                427,
            ),
            "namespaces": (155, 161, 165, 166, 272, 308, 428, 429, 430, 431, 432, 442),
            "machine": (169, 175, 176, 246, 313, 320, 298, 321, 248, 249, 250, 167, 168, 170, 171),
            "limits": (141, 142, 144, 160, 203, 251, 302, 314),
            "owners": (90, 91, 92, 93, 94, 105, 106, 113, 114, 117, 119, 260, 268, 452),
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "process": (220, 221, 281, 435),
            "signal": (129, 130, 138, 240, 424, 434, 438),
            "network": (*range(198, 213), 242, 243, 269),
            "memory of others": (117, 270, 271, 272, 440),
            "shared objects": (180, *range(186, 198), 279, 282, 425, 426, 427),
            "namespaces": (39, 40, 41, 51, 97, 268, 428, 429, 430, 431, 432, 442),
            "machine": (104, 105, 106, 142, 161, 162, 217, 218, 219, 224, 225, 241, 273, 280, 294),
            "limits": (30, 118, 119, 122, 140, 164, 261, 274),
            "owners": (52, 53, 54, 55, 143, 144, 145, 146, 147, 149, 452),
        },
    ),
}
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The version of the kernel's Landlock interface, from 1; 0: none."""
    version = _LIBRARY.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_REQUEST)
    return max(0, int(version))


def confine(readable: Iterable[str | Path] = (), writable: Iterable[str | Path] = ()) -> None:
    """Limit the calling thread, and threads that it starts, to files below these folders.

    It may list and read `readable`, and also make and remove files in `writable`.
    """
    _LIBRARY.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBRARY.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no other process of this user reads its memory
    _limit_files(readable, writable)
    _refuse_calls()


def _limit_files(readable: Iterable[str | Path], writable: Iterable[str | Path]) -> None:
    version = landlock_version()
    if version == 0:
        return
    rights = (1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1
    handled = struct.pack("=QQQ", rights, _TCP * (version >= 4), _SCOPES * (version >= 6))
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = _LIBRARY.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(size), 0)
    if rules < 0:
        return
    try:
        read = _READ_FILE | _READ_DIR
        write = read | _WRITE_FILE | _REMOVE_FILE | _MAKE_REG | (_TRUNCATE & rights)
        for path in readable:
            _allow(rules, path, read)
        for path in writable:
            _allow(rules, path, write)
        _LIBRARY.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str | Path, rights: int) -> None:
    with suppress(OSError):  # a folder that does not exist needs no rule
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
            rule = struct.pack("=Qi", rights, place)
            _LIBRARY.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
        finally:
            os.close(place)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def _refuse_calls() -> None:
    if platform.machine() not in _REFUSED:
        return
    architecture, groups = _REFUSED[platform.machine()]
    numbers = sorted({number for group in groups.values() for number in group})
    # Each step: code, jump if true, jump if false, value. A call of another architecture, such as
    # a 32-bit call, is refused.
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUALS, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        (_AT_LEAST, 0, 1, _NEWER),
        (_RETURN, 0, 0, _UNKNOWN),
    ]
    for number in numbers:
        steps += [(_EQUALS, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    _LIBRARY.prctl(
        _PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(_Filter(len(steps), program)), 0, 0
    )
