"""What two cubins must have in common to run alike: code, constants, shared memory, resources.

Names and tables of symbols are left out.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from greenfast.search.toolchain.nvrtc import Cubin

# Code, what it reads as constants, its shared memory, and references to symbols in them.
COMPARED = re.compile(r"\.(?:text|nv\.constant\w*|nv\.shared\w*|rela?\.text)(?:\..*)?\Z")
NO_BITS = 8  # the type of a section without contents in the file


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    size: int
    contents: bytes


def sections(elf: bytes) -> Iterator[Section]:
    """The sections of a 64-bit little-endian ELF file."""
    (headers_at,) = struct.unpack_from("<Q", elf, 0x28)
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, headers_at + 64 * n) for n in range(count)]
    for name_at, kind, _, _, start, size, *_ in headers:
        begin = headers[names][4] + name_at
        name = elf[begin : elf.index(b"\0", begin)].decode()
        yield Section(name, kind, size, b"" if kind == NO_BITS else elf[start : start + size])


def machine_code(cubin: Cubin) -> dict[str, str]:
    """A digest of each compared section, and the figures of each kernel."""
    parts = {
        section.name: f"{section.size} bytes, {hashlib.sha256(section.contents).hexdigest()[:16]}"
        for section in sections(cubin.code)
        if COMPARED.match(section.name)
    }
    return parts | {f"figures of {entry.entry}": repr(entry) for entry in cubin.entries}


def difference(before: Cubin, after: Cubin) -> str:
    """The parts in which the machine code differs; empty when it is the same."""
    one, other = machine_code(before), machine_code(after)
    return ", ".join(name for name in sorted({*one, *other}) if one.get(name) != other.get(name))


def other_sections(before: Cubin, after: Cubin) -> str:
    """The names of sections that differ and are not compared, such as the table of symbols."""
    one, other = (
        {section.name: section.contents for section in sections(cubin.code)}
        for cubin in (before, after)
    )
    return ", ".join(name for name in sorted({*one, *other}) if one.get(name) != other.get(name))
