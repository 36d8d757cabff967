"""The head, the entries and the parameters of a cubin, read before a driver sees it.

A cubin is an ELF file of machine 190. Its flags name the GPU that it is for. For each entry it
holds the sizes of the parameters, by which the driver reads the arguments of a launch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from greenfast.runtime.archive import MALFORMED

MACHINE = 190  # EM_CUDA
ABI_OF_OLD_FLAGS = 7  # EI_ABIVERSION of cubins with the SM version in the lowest byte
HEADER_BYTES, SECTION_BYTES = 64, 64
NO_BITS = 8  # sh_type of a section without bytes in the file
PARAMETER = 0x17  # the attribute of .nv.info.ENTRY with a parameter's number, place and size
SIZED = 4  # the form of an attribute that is followed by its length and data


def code_fault(image: bytes, arch: str, entries: Mapping[str, Sequence[int]]) -> str:
    """Why `image` is no machine code for `arch` with these entries; empty when it is.

    `entries` has the bytes of each argument that a launch of the entry passes. The driver reads
    as many arguments as the entry takes, so a launch that passes fewer would end the process.
    """
    if image[:4] != b"\x7fELF":
        return "it is not an ELF file"
    try:
        if image[4:6] != b"\x02\x01" or struct.unpack_from("<H", image, 0x12)[0] != MACHINE:
            return "it is an ELF file of another machine than NVIDIA's GPUs"
        stated = "".join(filter(str.isdigit, arch))
        if str(sm_version(image)) != stated:
            return f"it is machine code for sm_{sm_version(image)}"
        sections = dict(_sections(image))
        for entry, passed in entries.items():
            if not sections.get(f".text.{entry}"):
                return f"it has no entry {entry}"
            taken = _parameter_bytes(sections.get(f".nv.info.{entry}", b""))
            if taken != list(passed):
                return f"{entry} takes {_shown(taken)}, and a launch passes {_shown(passed)}"
    except (struct.error, *MALFORMED):
        return "it is cut off or damaged"
    return ""


def code_sections(image: bytes) -> dict[str, bytes]:
    """Every section but notes, which name the compiler's options; empty for a damaged file."""
    try:
        return {name: data for name, data in _sections(image) if not name.startswith(".note")}
    except (struct.error, *MALFORMED):
        return {}


def sm_version(image: bytes) -> int:
    """The number in the flags, such as 90; struct.error for too few bytes."""
    (flags,) = struct.unpack_from("<I", image, 0x30)
    return int((flags if image[8] <= ABI_OF_OLD_FLAGS else flags >> 8) & 0xFF)


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """Every section's name and bytes; ValueError for one that the file lacks, or holds twice."""
    (headers_at,) = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    headers = [
        struct.unpack_from("<IIQQQQ", image, headers_at + SECTION_BYTES * number)
        for number in range(count)
    ]
    seen: set[str] = set()
    for name_at, kind, _, _, start, size in headers:
        if kind != NO_BITS and start + size > len(image):
            raise ValueError("a section lies beyond the end")
        begin = headers[names][4] + name_at
        name = image[begin : image.index(b"\0", begin)].decode()
        if name in seen:
            raise ValueError(f"two sections {name}")
        seen.add(name)
        yield name, b"" if kind == NO_BITS else image[start : start + size]


def _parameter_bytes(info: bytes) -> list[int]:
    """The size of each parameter in order, from the attributes of an entry."""
    sizes: dict[int, int] = {}
    at = 0
    while at < len(info):
        form, kind, length = struct.unpack_from("<BBH", info, at)
        if (form, kind) == (SIZED, PARAMETER):
            _, number, _, flags = struct.unpack_from("<IHHI", info, at + 4)
            sizes[number] = flags >> 18
        at += 4 + (length if form == SIZED else 0)
    if sorted(sizes) != list(range(len(sizes))):
        raise ValueError("a parameter is missing")
    return [sizes[number] for number in sorted(sizes)]


def _shown(sizes: Sequence[int]) -> str:
    return f"{len(sizes)} arguments of {sum(sizes)} bytes"
