"""The errors that greenfast raises, by who can correct them.

    GreenfastError            code, message, mend (the remedy)
    ├── SpecError             the author: an invalid kernel.toml, template or reference.py
    ├── UsageError            the caller: an unknown name, a value out of range, a budget of 0
    └── Fault                 neither: no compiler, a child process died, the disk is full

A bad *candidate* raises nothing. It gets a verdict (search/verdict.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

MOST_REFUSALS = 20  # wrong fields that one refusal names; a request may have thousands
LONGEST_NAME = 120  # characters of an unknown name that its refusal repeats


class GreenfastError(Exception):
    """Base of all errors.

    `message` is one sentence for people, `code` a stable word for programs, and `mend` the
    remedy, empty when none is known. `field` names the wrong field of a request, and `also` holds
    the errors of its other wrong fields (Refusals).
    """

    code = "error"
    field = ""
    also: tuple[GreenfastError, ...] = ()

    def __init__(self, message: str, *, code: str | None = None, mend: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mend = mend
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.mend})" if self.mend else self.message


class SpecError(GreenfastError):
    """A kernel's files are invalid or contradict each other; its author can correct them."""

    code = "spec_error"


class UsageError(GreenfastError):
    """The caller's mistake: exit code 2 on the command line, a 4xx status over REST."""

    code = "usage_error"


class Fault(GreenfastError):
    """A failure of greenfast or of its machine: exit code 3, or 2 where the caller can help.

    It is retried and then reported. It is never a verdict on a candidate, and strategies never
    learn of it.
    """

    code = "fault"


class Refusals:
    """Collects the errors of independent checks, so that one refusal names all wrong fields."""

    def __init__(self) -> None:
        self.errors: list[GreenfastError] = []

    @property
    def is_full(self) -> bool:
        return len(self.errors) >= MOST_REFUSALS

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(error.field for error in self.errors)

    @contextmanager
    def at(self, field: str) -> Iterator[None]:
        """A block whose UsageError or SpecError is kept as one about `field`."""
        try:
            yield
        except (UsageError, SpecError) as error:
            error.field = error.field or field
            self.errors += [error, *error.also][: MOST_REFUSALS - len(self.errors)]

    def raise_all(self) -> None:
        """Raise the first error, if there is one; it carries the others."""
        if self.errors:
            first, *others = self.errors
            first.also = tuple(others)
            raise first


def unknown_name(
    kind: str, name: object, known: Iterable[object], *, where: str = ""
) -> UsageError:
    """A UsageError that lists the known names and suggests the closest; `where` is their owner."""
    names = sorted(str(name) for name in known)
    written = str(name)[:LONGEST_NAME] + "..." if len(str(name)) > LONGEST_NAME else str(name)
    cased = {name.casefold(): name for name in names}
    close = [cased[each] for each in get_close_matches(written.casefold(), cased, n=1)]
    place = f" of {where}" if where else ""
    hint = f"did you mean {close[0]!r}? " if close else ""
    listing = ", ".join(names) if names else "none"
    code = "unknown_" + kind.replace(" ", "_")
    return UsageError(
        f"unknown {kind} {written!r}{place}", code=code, mend=f"{hint}known: {listing}"
    )
