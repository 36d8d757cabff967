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
    """For each return address the source lines of its call, innermost first, through inlined functions.

    An address without line information has none; so have all, when binutils' addr2line is missing.
    """
    wanted = sorted({one for one in return_addresses if one > 0})
    program = shutil.which("addr2line")
    if program is None or not wanted:
        return {}
    asked = "".join(f"{one - 1:#x}\n" for one in wanted)
    answer = subprocess.run(
        [program, "-a", "-i", "-e", str(library)],
        input=asked,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    frames: dict[int, list[Frame]] = {}
    current: list[Frame] = []
    for line in answer.stdout.splitlines():
        if line.startswith("0x"):
            current = frames.setdefault(int(line, 16) + 1, [])
        elif (match := _LOCATION.match(line)) and int(match[2]) > 0:
            current.append((posixpath.normpath(match[1]), int(match[2])))
    return {address: tuple(found) for address, found in frames.items()}


def kernel_line(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame in the kernel's own text: line markers and the text itself have relative names."""
    own = next((frame for frame in frames if not frame[0].startswith(("/", "?"))), None)
    return own or (frames[0] if frames else None)
