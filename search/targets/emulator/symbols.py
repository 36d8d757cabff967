"""From addresses in a kernel library to lines of the kernel's source."""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

Frame = tuple[str, int]
_LOCATION = re.compile(r"^(.*):(\d+)(?: \(discriminator \d+\))?$")


def source_frames(library: Path, return_addresses: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
    """The source lines of each return address's call, innermost first, with inlined functions.

    An address without line information is left out; all are, when binutils' addr2line is missing
    or the system cannot start it.
    """
    addresses = sorted({address for address in return_addresses if address > 0})
    program = shutil.which("addr2line")
    if program is None or not addresses:
        return {}
    try:
        ended = subprocess.run(
            [program, "-a", "-f", "-i", "-e", str(library)],
            input="".join(f"{address - 1:#x}\n" for address in addresses),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    frames: dict[int, list[Frame]] = {}
    current: list[Frame] = []
    function, inner = "", ""  # of a location's pair of lines, the name comes first
    for line in ended.stdout.splitlines():
        if line.startswith("0x"):
            current = frames.setdefault(int(line, 16) + 1, [])
            function, inner = "", ""
        elif not function:
            function = line
        else:
            # A function that the compiler split is a caller of its own part, and no call is there.
            match = _LOCATION.match(line)
            if match and int(match[2]) > 0 and function != inner:
                current.append((posixpath.normpath(match[1]), int(match[2])))
            function, inner = "", function
    return {address: tuple(lines) for address, lines in frames.items()}


def kernel_line(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame in the kernel's own text, whose file names are relative."""
    own = next((frame for frame in frames if not frame[0].startswith(("/", "?"))), None)
    return own or (frames[0] if frames else None)


def callers(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The lines of the kernel's own text that called the innermost one, nearest first.

    Calls on the same line of the same file are one.
    """
    own = [frame for frame in frames if not frame[0].startswith(("/", "?"))]
    return tuple(dict.fromkeys(frame for frame in own if frame != own[0]))
