"""A kernel that a release of NVRTC compiles to wrong code, by which that release is recognised.

attention_wmma.cu is the `wmma` candidate of bench/results/h200/compiler_fault.json. Compiled by
NVRTC 13.0.88, it was wrong in 6 of 10 runs on an H200, and by 12.9.86 in 20 of 20; compiled by
13.5.37, it was correct in 20 of 20. The digests below are those of the wrong machine code, so
recognising it needs no GPU. bench.gpu.known_answer runs it. Releases whose code was never run pass.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

SOURCE = Path(__file__).parent / "attention_wmma.cu"
ARCH = "sm_90"
ENTRY = "attention_wmma"
# SHA-256 of the entry's machine code -> its observed error.
WRONG_CODE = {
    "0088db4548ca95e1ea6f84cb559f8baee3fd2b310f083c1d351d454aeaeb10d8": (
        "8192 of 16640 outputs were wrong on an H200"
    ),
    "3f4a768b26cf2dd2ddb64fb44b0a93a06561792a36ce61f4882a81abb11d7832": (
        "8192 of 16640 outputs were wrong on an H200"
    ),
}


def wrong_answer(cubin: bytes) -> str:
    """The known error of this machine code of SOURCE; empty when none is known."""
    return WRONG_CODE.get(code_digest(cubin), "")


def code_digest(cubin: bytes) -> str:
    """SHA-256 of the machine code of ENTRY alone; other sections differ between builds."""
    return hashlib.sha256(section(cubin, f".text.{ENTRY}")).hexdigest()


def section(elf: bytes, name: str) -> bytes:
    """A section of a 64-bit little-endian ELF file; empty if none has that name."""
    (headers_at,) = struct.unpack_from("<Q", elf, 0x28)
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", elf, headers_at + 64 * number) for number in range(count)
    ]
    for name_at, _, _, _, start, size, *_ in headers:
        begin = headers[names][4] + name_at
        if elf[begin : elf.index(b"\0", begin)].decode() == name:
            return elf[start : start + size]
    return b""
