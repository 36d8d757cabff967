"""The lines of an author's TOML files to which messages belong.

tomllib gives no positions. A message begins with its file and table in words, such as
`axpy/right.toml, [parameters.threads]: ...`; the words lead to a line of the file, and the message
then begins with `axpy/right.toml:12, [parameters.threads]: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from greenfast.search.errors import GreenfastError, SpecError
from greenfast.search.kernels.author_files import MOST_KEY_PARTS, read_author_file

Key = tuple[str | int, ...]  # ("arguments", 2, "shape"): positions in arrays count from 0

_PLACE = re.compile(r"(?P<file>[\w.-]+/[\w.-]+\.toml)(?P<rest>[,:].*)\Z", re.DOTALL)
_TABLE = re.compile(r", (?:\[\[(?P<array>\w+)\]\] (?P<number>\d+)|\[(?P<name>[\w.]+)\])")
_WORD = re.compile(r"(?:, |: | )'?(?P<word>\w+)'?")
_UNKNOWN = re.compile(r": unknown (?:key|dim|option) '?(?P<word>\w+)")
_MEANT = re.compile(r"mean it by '(?P<word>\w+)'")  # in the place of a key that is missing
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''.*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|\[\[|\]\]|[\[\]{}=,.\n]"
    r"|[^\s\[\]{}=,.#\"']+",
    re.DOTALL,
)


def located(error: SpecError, folder: Path) -> SpecError:
    """The same error with the line in its message, for an error in a file of a kernel's folder."""
    match = _PLACE.match(error.message)
    if error.code == "bad_toml":  # tomllib has named the line, or the text is out of bounds
        return error
    if match is None or match["file"].split("/")[0] != folder.name:
        return error
    try:
        text = read_author_file(folder / match["file"].split("/")[1], match["file"])
    except GreenfastError:
        return error
    lines = key_lines(text)
    line = _line(match["rest"], lines)
    if line is None and (meant := _MEANT.search(error.mend)):
        line = lines.get((meant["word"],))
    if line is None:
        return error
    located_error = SpecError(
        f"{match['file']}:{line}{match['rest']}", code=error.code, mend=error.mend
    )
    located_error.__cause__ = error.__cause__
    return located_error


def _line(rest: str, lines: dict[Key, int]) -> int | None:
    """The line for a message's words after its file; None when no key is named or found."""
    key: Key = ()
    while table := _TABLE.match(rest):
        rest = rest[table.end() :]
        key += (
            (table["array"], int(table["number"]) - 1)
            if table["array"]
            else tuple(table["name"].split("."))
        )
    for pattern in (_UNKNOWN, _WORD):
        while word := pattern.match(rest):
            here = (*key, word["word"])
            if here not in lines:
                if (*here, 0) in lines:  # an array of tables
                    key = (*here, 0)
                break
            key, rest = here, rest[word.end() :]
    while key and key not in lines:
        key = key[:-1]
    return lines[key] if key else None


def key_lines(text: str) -> dict[Key, int]:
    """The line of each table and key of a TOML text, from 1; as far as the text can be read."""
    reader = _Reader(text)
    with suppress(StopIteration):  # the end of the text
        reader.read()
    return reader.lines


class _Reader:
    """Follows the structure of a TOML text, without its values."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._counts: dict[Key, int] = {}
        self._tokens = _tokens(text)
        self._token, self._number = "", 1

    def read(self) -> None:
        table: Key = ()
        self._next()
        while True:
            if self._token in ("[", "[["):
                table = self._header()
            elif self._token != "\n":
                self._pair(table)
            else:
                self._next()

    def _next(self) -> None:
        self._token, self._number = next(self._tokens)

    def _header(self) -> Key:
        array, number = self._token == "[[", self._number
        self._next()
        key: Key = ()
        while self._token not in ("]", "]]", "\n"):
            if self._token != ".":
                key = self._entered((*key, _bare(self._token)))
            self._next()
        if array:
            self._counts[key] = self._counts.get(key, -1) + 1
            key = (*key, self._counts[key])
        self.lines.setdefault(key, number)
        while self._token != "\n":
            self._next()
        return key

    def _entered(self, key: Key) -> Key:
        """Below an array of tables, its last one is meant."""
        return (*key, self._counts[key]) if key in self._counts and self._token == "." else key

    def _pair(self, table: Key) -> None:
        key = table
        number = self._number
        while self._token not in ("=", "\n", "}", "]"):
            if self._token != ".":
                key = (*key, _bare(self._token))
                self.lines.setdefault(key, number)
                if len(key) > MOST_KEY_PARTS:
                    raise StopIteration
            self._next()
        if self._token == "=":
            self._next()
            self._value(key)
        elif self._token != "\n":
            self._next()

    def _value(self, key: Key) -> None:
        if self._token == "{":
            self._next()
            while self._token != "}":
                if self._token in (",", "\n"):
                    self._next()
                else:
                    self._pair(key)
            self._next()
        elif self._token in ("[", "[["):
            depth = 0
            while True:
                depth += self._token.count("[") - self._token.count("]")
                if self._token in ("]", "]]") and depth <= 0:
                    break
                self._next()
            self._next()
        else:
            while self._token not in ("\n", ",", "}", "]"):
                self._next()


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """(token, its line) without comments; a newline at the end."""
    number, position = 1, 0
    for match in _TOKEN.finditer(text):
        number += text.count("\n", position, match.start())
        position = match.start()
        if not match[0].startswith("#"):
            yield match[0], number
    yield "\n", number + 1


def _bare(token: str) -> str:
    return token[1:-1] if token[:1] in "\"'" else token
