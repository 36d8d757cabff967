"""Several mistakes of an author, gathered so that all of them are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from greenfast.search.errors import SpecError
from greenfast.search.kernels.places import located

MOST_REPORTED = 20

Entry = TypeVar("Entry")
Value = TypeVar("Value")
Default = TypeVar("Default")


class SpecErrors(SpecError):
    """More than one mistake; `mistakes` holds the error of each."""

    def __init__(self, name: str, mistakes: tuple[SpecError, ...]) -> None:
        self.mistakes = mistakes
        shown = "".join(f"\n  {mistake}" for mistake in mistakes[:MOST_REPORTED])
        hidden = len(mistakes) - MOST_REPORTED
        more = f"\n  and {hidden} more" if hidden > 0 else ""
        super().__init__(
            f"{name} has {len(mistakes)} mistakes:{shown}{more}", code=mistakes[0].code
        )


class Mistakes:
    """The mistakes found so far in one kernel's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._errors: list[SpecError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    def value(self, read: Callable[[], Value], default: Default) -> Value | Default:
        """The result of `read`, or the default if it raises SpecError."""
        try:
            return read()
        except SpecError as error:
            self.add(error)
            return default

    def each(self, entries: Iterable[Entry], read: Callable[[Entry], Value]) -> tuple[Value, ...]:
        """The results of `read` for the entries, except those for which it raises SpecError."""
        values: list[Value] = []
        for entry in entries:
            try:
                values.append(read(entry))
            except SpecError as error:
                self.add(error)
        return tuple(values)

    def add(self, error: SpecError) -> None:
        self._errors += error.mistakes if isinstance(error, SpecErrors) else (error,)

    def raise_any(self) -> None:
        """Raise the mistake, or all of them in one error."""
        errors = tuple(located(error, self._folder) for error in self._errors)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise SpecErrors(self._folder.name, errors)
