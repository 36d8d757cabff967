"""Scratch memory of an imported kernel: `--arg sums:float32[ceil_div(n, threads)]:workspace`.

It becomes a [[workspaces]] entry of the template, so that each candidate has the size it needs.
Workspaces come after the other arguments of a launch, and so do their parameters in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenfast.app.cli.import_launch_names import Known, checked
from greenfast.app.cli.import_parameters import QUALIFIERS, split_at_commas
from greenfast.app.cli.import_source import ENTRY, Entry, ImportedArgument, without_comments
from greenfast.search.errors import UsageError

ROLE = "workspace"


def without_scratch(
    arguments: Sequence[ImportedArgument],
) -> tuple[tuple[ImportedArgument, ...], tuple[ImportedArgument, ...]]:
    """The arguments that are no scratch memory, and those that are."""
    others = tuple(argument for argument in arguments if argument.role != ROLE)
    return others, tuple(argument for argument in arguments if argument.role == ROLE)


def checked_scratch(
    arguments: Sequence[ImportedArgument], known: Known
) -> tuple[ImportedArgument, ...]:
    """Scratch memory with its sizes as expressions over parameters and sizes of the problem."""
    for argument in arguments:
        if argument.fill not in ("", "0"):
            raise UsageError(
                f"--arg {argument.name}: scratch memory holds zeros or nothing before a launch",
                code="bad_argument",
                mend=f"write {argument.name}:{argument.dtype}[...]=zeros:workspace, or make it an "
                "input",
            )
    return tuple(
        replace(
            each, shape=tuple(checked(f"--arg {each.name}", size, known) for size in each.shape)
        )
        for each in arguments
    )


def scratch_bytes(argument: ImportedArgument) -> str:
    """The expression of its size."""
    from greenfast.search.oracle.storage import DTYPES  # NumPy: no help needs it

    sizes = " * ".join(
        size if size.isalnum() else f"({size})" for size in argument.shape if size != "1"
    )
    itemsize = DTYPES[argument.storage].itemsize
    return f"{itemsize} * {sizes}" if sizes else f"{itemsize}"


def with_scratch_last(text: str, entry: Entry, scratch: Sequence[ImportedArgument]) -> str:
    """The text with the entry's parameters for scratch memory behind the others."""
    names = [argument.name for argument in scratch]
    bare = without_comments(text)
    match = next(match for match in ENTRY.finditer(bare) if match["name"] == entry.name)
    parts = [" ".join(part.split()) for part in split_at_commas(match["parameters"])]
    ordered = sorted(parts, key=lambda part: _name(part) in names)  # stable
    if not names or ordered == parts:
        return text
    begin, end = match.span("parameters")
    return f"{text[:begin]}{', '.join(ordered)}{text[end:]}"


def _name(parameter: str) -> str:
    """The name that a parameter declares: `float* __restrict__ x`, `int x[]`."""
    words = QUALIFIERS.sub(" ", parameter.partition("=")[0]).partition("[")[0]
    return words.replace("*", " ").split()[-1]
