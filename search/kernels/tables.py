"""Reading TOML strictly: every key is asked for by name, and a key that nobody asked for is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, expression

_REQUIRED = object()


class Table:
    """A TOML table that remembers where it stands and which of its keys were read."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise SpecError(f"{where}: a table is needed here", code="bad_spec")
        self._data = data
        self._asked: set[str] = set()
        self.where = where

    @classmethod
    def read(cls, path: Path, shown_as: str) -> Table:
        try:
            return cls(tomllib.loads(path.read_text("utf-8")), shown_as)
        except FileNotFoundError as error:
            raise SpecError(f"{shown_as}: the file is missing", code="missing_file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SpecError(f"{shown_as}: not valid TOML: {error}", code="bad_toml") from error
        except OSError as error:
            raise SpecError(
                f"{shown_as}: cannot be read: {error.strerror}", code="unreadable"
            ) from error

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        """The value of `key`, checked to be of `kind` (bool is no int here)."""
        self._asked.add(key)
        if key not in self._data:
            if default is _REQUIRED:
                raise SpecError(f"{self.where}: {key!r} is missing", code="bad_spec")
            return default
        value = self._data[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(one.__name__ for one in kinds)
            raise SpecError(f"{self.where}: {key} must be {names}, not {value!r}", code="bad_spec")
        return value

    def one_of(self, key: str, choices: tuple[str, ...], default: Any = _REQUIRED) -> str:
        value = self.get(key, str, default)
        if value not in choices:
            raise SpecError(
                f"{self.where}: {key} = {value!r}; it may be " + ", ".join(choices), code="bad_spec"
            )
        return value

    def strings(self, key: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        found = self.get(key, list, default)
        if not all(isinstance(one, str) for one in found):
            raise SpecError(f"{self.where}: {key} must be a list of strings", code="bad_spec")
        return tuple(found)

    def expression(self, key: str, default: Any = _REQUIRED) -> Expression | None:
        text = self.get(key, (str, int, float, bool), default)
        return None if text is None else expression(text, f"{self.where}, {key}")

    def table(self, key: str) -> Table:
        """A sub-table; empty when it is not there."""
        return Table(self.get(key, dict, {}), f"{self.where}, [{key}]")

    def tables(self, key: str) -> tuple[Table, ...]:
        """An array of tables, each knowing its number."""
        found = self.get(key, list, [])
        return tuple(
            Table(one, f"{self.where}, [[{key}]] {number}") for number, one in enumerate(found, 1)
        )

    def named(self, key: str) -> tuple[tuple[str, Table], ...]:
        """[key.NAME] tables, in order."""
        outer = self.get(key, dict, {})
        return tuple(
            (name, Table(one, f"{self.where}, [{key}.{name}]")) for name, one in outer.items()
        )

    def items(self) -> tuple[tuple[str, Any], ...]:
        """All keys as they stand: for tables whose keys are names of the author's choice."""
        self._asked.update(self._data)
        return tuple(self._data.items())

    def finish(self) -> None:
        """Refuse what nobody asked for: a misspelt key must not be silently without effect."""
        extra = sorted(set(self._data) - self._asked)
        if extra:
            raise SpecError(
                f"{self.where}: unknown key {extra[0]!r}",
                code="unknown_key",
                mend="known: " + ", ".join(sorted(self._asked)),
            )
