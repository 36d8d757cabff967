"""The text of a file of another tuner, plain or compressed, within limits of memory."""

from __future__ import annotations

import io
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

from greenfast.search.errors import UsageError
from greenfast.search.kernels.plain_file import read_plain_file
from greenfast.search.text import one_line, shortened

LARGEST_BYTES = 2**30  # inflated
CHUNK_BYTES = 2**20
# Recorded spaces shrink to a tenth or a thirtieth. What shrinks to less is no space, but costs
# memory: it is refused as soon as more than this is inflated.
HARMLESS_BYTES, LARGEST_RATIO = 2**26, 200
# Compressed files: the first bytes, the module that opens them, and the program that unpacks them.
# Some installations of Python lack a module.
FORMS = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"BZh", "bz2", "bunzip2"),
    (b"\xfd7zXZ\x00", "lzma", "unxz"),
    (b"\x28\xb5\x2f\xfd", "compression.zstd", "unzstd"),
)
ZIP = b"PK\x03\x04"
TAR = slice(257, 262), b"ustar"
PAGES = ("<!doctype", "<html")


def bad(path: Path, why: str) -> UsageError:
    """The error for a file that cannot be read as a space."""
    return UsageError(
        f"{path.name} cannot be imported: {shortened(one_line(why))}",
        code="space_damaged",
        mend="correct it, or copy it again from its source",
    )


def packed(path: Path, form: str, program: str) -> UsageError:
    """The error for a file that has to be unpacked first."""
    return UsageError(
        f"{path.name} cannot be imported: it is {form}",
        code="space_packed",
        mend=f"unpack it with `{program}`, and import the file in it",
    )


def text_of(path: Path) -> str:
    """The file's text; UsageError with one sentence if it has none."""
    try:
        content = read_plain_file(path, LARGEST_BYTES)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}",
            code="space_unreadable",
            mend="give the path of a T4 file or a Kernel Tuner cache",
        ) from error
    data = _unpacked(path, content)
    if len(data) > LARGEST_BYTES:
        raise bad(path, f"it holds more than {LARGEST_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad(path, "it is not UTF-8 text") from error
    if not text.strip():
        raise bad(path, "it is empty")
    if text[:200].lstrip().lower().startswith(PAGES):
        raise bad(path, "it is a web page, not the file that the page shows")
    return text


def _unpacked(path: Path, content: bytes) -> bytes:
    if content.startswith(ZIP):
        raise packed(path, "a zip archive", "unzip")
    data = content
    for start, name, program in FORMS:
        if content.startswith(start):
            data = _inflated(path, content, name, program)
    place, mark = TAR
    if data[place] == mark:
        raise packed(path, "a tar archive", "tar -xf")
    return data


def _inflated(path: Path, content: bytes, name: str, program: str) -> bytes:
    try:
        module: Any = import_module(name)
    except ImportError as error:
        form = f"compressed, and this Python has no module {name}"
        raise packed(path, form, program) from error
    chunks, size = [], 0
    try:
        with module.open(io.BytesIO(content)) as file:
            while size <= LARGEST_BYTES and (chunk := file.read(CHUNK_BYTES)):
                chunks.append(chunk)
                size += len(chunk)
                if size > HARMLESS_BYTES and size > LARGEST_RATIO * len(content):
                    raise bad(path, f"it inflates to more than {LARGEST_RATIO} times its size")
    except UsageError:
        raise
    except (OSError, EOFError, zlib.error, _own_error(module)) as error:
        raise bad(path, f"its compression is damaged or cut off ({error})") from error
    return b"".join(chunks)


def _own_error(module: Any) -> type[Exception]:
    """The module's own exception for damaged data, if it is not one of Python's."""
    for name in ("LZMAError", "ZstdError"):
        if hasattr(module, name):
            error: type[Exception] = getattr(module, name)
            return error
    return OSError
