"""A public CUDA file as one text: local includes inserted, headers of the host left out.

Includes of files that exist beside the file or in a folder of `-I` are replaced by their text.
Includes that the emulator answers are kept. All others are dropped and remembered: most of them
(`<vector>`, `cublas_v2.h`) serve host code alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from greenfast.search.diagnose.brought import LARGEST_FILE_BYTES, shown_name
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.plain_file import NotPlain, read_plain_file
from greenfast.search.kernels.template_text import Line
from greenfast.search.targets.emulator.source_tokens import line_directive
from greenfast.search.toolchain.includes import is_allowed

MOST_CHARACTERS = 8_000_000  # of the whole text
DEEPEST_INCLUDE = 64
COMMAND_LINE = "command line"  # the file of `-D` lines in messages
# The device pass of nvcc has the macros of a host system, and is no NVRTC.
NVCC_MACROS = (
    "#undef __CUDACC_RTC__",
    "#define __linux__ 1",
    "#define __linux 1",
    "#define __unix__ 1",
    "#define __x86_64__ 1",
    "#define __NVCC__ 1",
)
_INCLUDE = re.compile(r'\s*#\s*include(?:_next)?\s*(?:"([^"]+)"|<([^<>]+)>)')
_ANY_INCLUDE = re.compile(r"\s*#\s*include")
_PRAGMA_ONCE = re.compile(r"\s*#\s*pragma\s+once\b")
_DEFINE = re.compile(r"([A-Za-z_]\w*(?:\([\w\s,.]*\))?)(?:=(.*))?\Z", re.DOTALL)


@dataclass(frozen=True)
class MissingInclude:
    """An include that names no file at hand."""

    name: str
    where: Line
    is_local: bool = True  # `#include "..."`, or of a macro's name


@dataclass(frozen=True)
class PlainText:
    """The lines of a file and of what it includes, each with its origin."""

    body: tuple[tuple[str, Line], ...]
    files: dict[str, Path]  # by the names that reports use
    missing: tuple[MissingInclude, ...]


@dataclass
class _Reading:
    include_dirs: Sequence[Path]
    headers: Collection[str]
    is_allowed: Callable[[str], bool]
    files: dict[str, Path] = field(default_factory=dict)
    once: set[Path] = field(default_factory=set)
    open: list[Path] = field(default_factory=list)
    missing: dict[str, MissingInclude] = field(default_factory=dict)
    characters: int = 0


def read_plain_text(
    files: Sequence[Path],
    include_dirs: Sequence[Path],
    defines: Sequence[str],
    headers: Collection[str],
    is_allowed: Callable[[str], bool] = is_allowed,
) -> PlainText:
    """The text of the files, one behind the other; `headers` are those that the compiler answers.

    Raises SpecError for a file that cannot be read, UsageError for a malformed definition.
    """
    reading = _Reading(include_dirs, headers, is_allowed)
    body = [(text, Line("nvcc", number)) for number, text in enumerate(NVCC_MACROS)]
    body += [(_definition(text), Line(COMMAND_LINE, number)) for number, text in enumerate(defines)]
    for path in files:
        body += _lines(path, reading)
    return PlainText(tuple(body), reading.files, tuple(reading.missing.values()))


def _definition(text: str) -> str:
    match = _DEFINE.match(text)
    if match is None or "\n" in text:
        raise UsageError(
            f"-D {text!r} is not a definition",
            code="bad_command_line",
            mend="-D NAME or -D NAME=VALUE",
        )
    return f"#define {match[1]} {'1' if match[2] is None else match[2]}"


def _lines(path: Path, reading: _Reading) -> Iterator[tuple[str, Line]]:
    shown, text = shown_name(path), _text(path)
    reading.characters += len(text)
    if reading.characters > MOST_CHARACTERS or len(reading.open) > DEEPEST_INCLUDE:
        raise SpecError(
            f"{shown}: with its includes the text exceeds {MOST_CHARACTERS:,} characters "
            f"or {DEEPEST_INCLUDE} levels",
            code="bad_spec",
        )
    if (directive := line_directive(text)) is not None:
        raise SpecError(f"{shown}:{directive[0]}: {directive[1]}", code="bad_source")
    reading.files[shown] = path
    if any(_PRAGMA_ONCE.match(line) for line in text.splitlines()):
        reading.once.add(path.resolve())
    reading.open.append(path.resolve())
    for number, line in enumerate(text.splitlines(), 1):
        yield from _line(line, Line(shown, number), path, reading)
    reading.open.pop()


def _line(line: str, where: Line, path: Path, reading: _Reading) -> Iterator[tuple[str, Line]]:
    if _PRAGMA_ONCE.match(line):
        return
    if not _ANY_INCLUDE.match(line):
        yield line, where
        return
    include = _INCLUDE.match(line)
    if include is None:  # of a macro's name
        reading.missing.setdefault(line.strip(), MissingInclude(line.strip(), where))
        return
    name, is_local = include[1] or include[2], include[1] is not None
    folders = ((path.parent,) if is_local else ()) + tuple(reading.include_dirs)
    included = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if included is not None and name not in reading.headers:
        resolved = included.resolve()
        if resolved not in reading.once and resolved not in reading.open:
            yield from _lines(included, reading)
    elif name in reading.headers and reading.is_allowed(name):
        yield f"#include <{name}>", where
    else:
        reading.missing.setdefault(name, MissingInclude(name, where, is_local))


def _text(path: Path) -> str:
    try:
        data = read_plain_file(path, LARGEST_FILE_BYTES)
    except FileNotFoundError as error:
        raise SpecError(f"{path} does not exist", code="missing_file") from error
    except NotPlain as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", code="unreadable") from error
    except OSError as error:
        raise SpecError(f"{path} cannot be read", code="unreadable") from error
    if len(data) > LARGEST_FILE_BYTES:
        raise SpecError(f"{path} is larger than {LARGEST_FILE_BYTES >> 20} MiB", code="unreadable")
    return data.decode("utf-8", "replace").removeprefix("\ufeff")
