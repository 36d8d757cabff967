"""An `--arg` as it is typed, and the refusal of one."""

from __future__ import annotations

from dataclasses import dataclass

from greenfast.search.errors import UsageError

GRAMMAR = (
    "NAME:TYPE[SIZES]=FILL:ROLE for an array, NAME:TYPE=VALUE for a scalar, NAME=null; a role is "
    "in, out, inout or workspace; `greenfast docs check` has textures and structs, too"
)


@dataclass(frozen=True)
class ArgumentText:
    """An `--arg`, read without its kernel."""

    text: str
    name: str
    type: str  # empty: the parameter's
    sizes: tuple[int, ...] | None  # None: no array
    value: str | None
    role: str  # empty: by the parameter


def refused(text: str, why: str) -> UsageError:
    return UsageError(f"--arg {text!r} {why}", code="bad_command_line", mend=GRAMMAR)
