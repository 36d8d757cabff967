"""Authors' files, read within limits: no file that an author writes makes reading it endless.

Only plain files of a limited size are read, so neither a pipe nor a device in their place is waited
for. TOML is bounded before it is parsed, since its parser takes the square of a key's parts.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from greenfast.search.errors import SpecError
from greenfast.search.kernels.plain_file import NotPlain, read_plain_file
from greenfast.search.text import not_parsed, shortened

LARGEST_FILE_BYTES = 2**20
MOST_KEY_PARTS = 16
DEEPEST_TABLE = 16
LARGEST_INTEGER = 2**64
_LITERAL = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''.*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*",
    re.DOTALL,
)
_BETWEEN_KEYS = re.compile(r"[=,{}\[\]\n]")


def read_author_file(path: Path, shown_as: str) -> str:
    """The text of a file, which messages call `shown_as`; SpecError when it cannot be read."""
    try:
        data = read_plain_file(path, LARGEST_FILE_BYTES)
        if len(data) > LARGEST_FILE_BYTES:
            raise _too_large(shown_as)
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(
            f"{shown_as}:{line}: this is not UTF-8", code="unreadable", mend="save it as UTF-8"
        ) from error
    except NotPlain as error:
        raise SpecError(f"{shown_as}: this is not a plain file", code="unreadable") from error
    except OSError as error:
        raise SpecError(
            f"{shown_as}: the file is missing or unreadable", code="missing_file"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise SpecError(f"{shown_as}:{line}: it holds a NUL character", code="unreadable")
    # Editors of Windows begin a file with this mark, and end its lines with two characters.
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


_AT_LINE = re.compile(r" \(at line (?P<line>\d+), column \d+\)\Z")


def parsed_toml(text: str, shown_as: str) -> dict[str, Any]:
    """The tables of a TOML text; SpecError when it is invalid or exceeds the limits."""
    bare = _LITERAL.sub('""', text)
    if max(map(_dots, _BETWEEN_KEYS.split(bare))) >= MOST_KEY_PARTS:
        raise SpecError(f"{shown_as}: a key has more than {MOST_KEY_PARTS} parts", code="bad_toml")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = not_parsed(error)
        place = shown_as
        if at := _AT_LINE.search(reason):
            place, reason = f"{shown_as}:{at['line']}", reason[: at.start()]
        raise SpecError(f"{place}: not valid TOML: {reason}", code="bad_toml") from error
    _check_values(tables, shown_as)
    return tables


def _too_large(shown_as: str) -> SpecError:
    return SpecError(
        f"{shown_as}: the file is larger than {LARGEST_FILE_BYTES >> 10} KiB", code="unreadable"
    )


def _dots(words: str) -> int:
    return words.count(".")


def _check_values(tables: dict[str, Any], shown_as: str) -> None:
    """SpecError for a number or nesting that a message about it could not show."""
    level: list[Any] = [tables]
    for _ in range(DEEPEST_TABLE):
        values = [
            value
            for table in level
            for value in (table.values() if isinstance(table, dict) else table)
        ]
        for value in values:
            if type(value) is int and abs(value) > LARGEST_INTEGER:
                # Python writes no number of more than 4300 digits.
                digits = shortened(str(value), 40) if value.bit_length() < 10_000 else "a number"
                raise SpecError(f"{shown_as}: {digits} is beyond 2**64", code="bad_toml")
        level = [value for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise SpecError(
        f"{shown_as}: tables and lists are nested more than {DEEPEST_TABLE} deep", code="bad_toml"
    )
