"""Reading TOML strictly: every key is read by name, and unread keys are refused."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import parsed_toml, read_author_file
from greenfast.search.kernels.expressions import SM_COUNT, Expression, expression
from greenfast.search.text import shortened

# Begins the names that `greenfast check` gives to kernels of any spelling (ns::foo<float, 4>). They
# are references to functions, so that the emulator does not compare them with a symbol.
ENTRY_ALIAS = "greenfast_entry_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_FUNCTION = re.compile(r"[A-Za-z_]\w{0,200}\Z", re.ASCII)
_REQUIRED = object()


def checked_name(text: str, where: str) -> str:
    """`text` if it is a valid name; else SpecError."""
    if not _NAME.match(text):
        raise SpecError(
            f"{where}: the name {text!r}; names are small letters, digits and _", code="bad_spec"
        )
    return text


def unreserved(text: str, where: str) -> str:
    """`text` if it is not a name that expressions get from the device; else SpecError."""
    if text == SM_COUNT:
        raise SpecError(
            f"{where}: the name {text!r} is reserved for the device's number of SMs",
            code="bad_spec",
            mend="choose another name",
        )
    return text


def checked_entry(text: str, where: str) -> str:
    """`text` if a kernel may have this name; else SpecError.

    The emulator writes the name into code that it compiles, so it is one word.
    """
    if not _FUNCTION.match(text) or text.startswith("__"):
        raise SpecError(
            f"{where}: entry = {text!r} is not a valid name of a kernel",
            code="bad_spec",
            mend="letters, digits and _; names that begin with __ are the compilers'",
        )
    if text.startswith(ENTRY_ALIAS):
        raise SpecError(
            f"{where}: the entry {text!r} has a name that `greenfast check` gives",
            code="bad_spec",
            mend=f"a name that does not begin with {ENTRY_ALIAS}",
        )
    return text


class Table:
    """A TOML table that remembers its place in the file and which of its keys were read.

    Its methods raise SpecError for missing keys and unsuitable values.
    """

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise SpecError(f"{where}: a table is needed here", code="bad_spec")
        self._data = data
        self._read: set[str] = set()
        self.where = where

    @classmethod
    def read(cls, path: Path, shown_as: str) -> Table:
        """The table of a file, which messages call `shown_as`."""
        if not path.exists():
            raise SpecError(f"{shown_as}: the file is missing", code="missing_file")
        return cls(parsed_toml(read_author_file(path, shown_as), shown_as), shown_as)

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        """The value of `key`, which must be of `kind`; a bool is not an int here."""
        self._read.add(key)
        if key not in self._data:
            if default is _REQUIRED:
                close = get_close_matches(key, self._data, n=1)
                raise SpecError(
                    f"{self.where}: {key!r} is missing",
                    code="bad_spec",
                    mend=f"did you mean it by {close[0]!r}?" if close else "",
                )
            return default
        value = self._data[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(each.__name__ for each in kinds)
            is_table = isinstance(value, dict)
            shown = "a table" if is_table else shortened(repr(value), 60)
            raise SpecError(
                f"{self.where}: {key} must be {names}, not {shown}",
                code="bad_spec",
                mend=f"write [[{key}]] for a list of tables" if is_table and list in kinds else "",
            )
        return value

    def one_of(self, key: str, choices: tuple[str, ...], default: Any = _REQUIRED) -> str:
        """The value of `key`, which must be one of `choices`."""
        value: str = self.get(key, str, default)
        if value not in choices:
            raise SpecError(
                f"{self.where}: {key} = {value!r}; it may be " + ", ".join(choices), code="bad_spec"
            )
        return value

    def strings(self, key: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        values = self.get(key, list, default)
        if not all(isinstance(value, str) for value in values):
            raise SpecError(f"{self.where}: {key} must be a list of strings", code="bad_spec")
        return tuple(values)

    def expression(self, key: str, default: Any = _REQUIRED) -> Expression:
        text = self.get(key, (str, int, float, bool), default)
        return expression(text, f"{self.where}, {key}")

    def optional_expression(self, key: str) -> Expression | None:
        self._read.add(key)
        return self.expression(key) if key in self._data else None

    def table(self, key: str) -> Table:
        """A sub-table; empty when the key is missing."""
        return Table(self.get(key, dict, {}), f"{self.where}, [{key}]")

    def tables(self, key: str) -> tuple[Table, ...]:
        """An array of tables; messages number them from 1."""
        return tuple(
            Table(data, f"{self.where}, [[{key}]] {number}")
            for number, data in enumerate(self.get(key, list, []), 1)
        )

    def named(self, key: str) -> tuple[tuple[str, Table], ...]:
        """The [key.NAME] tables, in order."""
        return tuple(
            (name, Table(data, f"{self.where}, [{key}.{name}]"))
            for name, data in self.get(key, dict, {}).items()
        )

    def items_of(self, key: str) -> tuple[tuple[str, Any], ...]:
        """The names and unread values of a sub-table whose keys are the author's own names."""
        return tuple(self.get(key, dict, {}).items())

    def items(self) -> tuple[tuple[str, Any], ...]:
        """All keys with their values, for tables whose keys are the author's own names."""
        self._read.update(self._data)
        return tuple(self._data.items())

    def finish(self) -> None:
        """Refuse unread keys, so that a misspelt key does not go unnoticed."""
        extra = sorted(set(self._data) - self._read)
        if extra:
            close = get_close_matches(extra[0], self._read, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise SpecError(
                f"{self.where}: unknown key {extra[0]!r}",
                code="unknown_key",
                mend=f"{hint}known: " + ", ".join(sorted(self._read)),
            )
