"""What can go wrong, and whose it is.

    GreenfastError            code, message, mend
    ├── SpecError             the author's: a kernel.toml, template or reference that does not hold together
    ├── UsageError            the caller's: an unknown name, a value out of range, a budget of 0
    └── Fault                 ours: the compiler is missing, a child was lost, the disk is full

A bad *candidate* is no exception at all: it is a verdict (search/verdict.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GreenfastError(Exception):
    """One clear sentence for a person, a stable `code` for programs, and a `mend` when one is known."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, mend: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mend = mend
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.mend})" if self.mend else self.message


class SpecError(GreenfastError):
    """The author's: something under kernel_templates/ does not hold together."""

    code = "spec_error"


class UsageError(GreenfastError):
    """The caller's: exit code 2 on the command line, a 4xx over REST."""

    code = "usage_error"


class Fault(GreenfastError):
    """Ours: retried, then reported as ours. Never a verdict on a candidate, never told to a strategy."""

    code = "fault"


def unknown_name(
    kind: str, name: object, known: Iterable[object], *, where: str = ""
) -> UsageError:
    """The refusal of an unknown name, with the known ones and the closest of them."""
    names = sorted(str(one) for one in known)
    close = get_close_matches(str(name), names, n=1)
    place = f" of {where}" if where else ""
    hint = f"did you mean {close[0]!r}? " if close else ""
    listing = ", ".join(names) if names else "none"
    code = "unknown_" + kind.replace(" ", "_")
    return UsageError(
        f"unknown {kind} {str(name)!r}{place}", code=code, mend=f"{hint}known: {listing}"
    )
