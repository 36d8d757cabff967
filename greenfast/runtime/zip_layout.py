"""Whether every program that unpacks a zip file finds the same files in it.

Python goes by the directory at the end. Programs that unpack a stream go by the head in front of
each file, so a file that only has a head would be unpacked, and nobody would have checked it.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence

_HEAD = struct.Struct("<4s5H3I2H")  # of a file; its name, extra field and data follow
_END = struct.Struct("<4s4H2IH")  # of the directory; a comment may follow
_SIZES_FOLLOW = 8  # a flag: sizes and checksum are behind the data, in 12 to 24 bytes


def layout_fault(data: bytes, entries: Sequence[zipfile.ZipInfo]) -> str:
    """Why other programs may unpack `data` to other files than `entries`; empty if none can."""
    signature, *_, count, size, begin, comment = _END.unpack(data[-_END.size :].rjust(_END.size))
    if signature != b"PK\x05\x06" or comment or begin + size != len(data) - _END.size:
        return "it does not end with its directory"
    if count != len(entries):
        return f"it states {count} files and holds {len(entries)}"
    place = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        head = data[entry.header_offset : entry.header_offset + _HEAD.size]
        if not 0 <= entry.header_offset - place < _HEAD.size or len(head) < _HEAD.size:
            return f"there are bytes of no file before {entry.filename[:80]!r}"
        _, _, flags, method, *_, crc, packed_size, file_size, name, extra = _HEAD.unpack(head)
        listed = (entry.compress_type, entry.CRC, entry.compress_size, entry.file_size)
        is_streamed = flags & _SIZES_FOLLOW and method == zipfile.ZIP_DEFLATED
        if not is_streamed and listed != (method, crc, packed_size, file_size):
            return f"the head of {entry.filename[:80]!r} is not as the directory has it"
        place = entry.header_offset + _HEAD.size + name + extra + entry.compress_size
    return "" if 0 <= begin - place < _HEAD.size else "there are bytes of no file"
