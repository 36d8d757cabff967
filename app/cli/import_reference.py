"""reference.py of an imported kernel: the file's text with this kernel's names, types and sizes.

scaffold/imported_reference.py.txt holds what is the same for every kernel, with @NAMES@ that are
replaced here by Python's own spelling of a value.
"""

from __future__ import annotations

import re
from pathlib import Path

from greenfast.app.cli.import_in_out import copied, copy_entry
from greenfast.app.cli.import_scratch import scratch_bytes
from greenfast.app.cli.import_source import ImportedArgument
from greenfast.app.cli.imported import Imported

TOLERANCE = 1e-4  # of outputs that are no whole numbers, unless the command gives another
_TEXT = Path(__file__).parent / "scaffold" / "imported_reference.py.txt"


def reference_text(imported: Imported, plain_text: str) -> str:
    """The text of reference.py; `plain_text` is what runs as the truth."""
    parameters = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in imported.defaults.items()
    }
    first = ""
    if copied(imported.arguments):
        first = f"\n        first_entry={copy_entry(imported.entry)!r},"
    places = {
        "KERNEL": imported.name,
        "SOURCE": re.sub(r"[^\w. -]", "_", imported.source),
        "SENTENCE": f"{imported.truth[0].upper()}{imported.truth[1:]}.",
        "TRUTH": repr(imported.truth),
        "TOLERANCE": repr(TOLERANCE if imported.tolerance is None else imported.tolerance),
        "WHOLE": repr(imported.tolerance or 0.0),
        "DEFINES": repr({imported.defines[name]: value for name, value in parameters.items()}),
        "PARAMETERS": repr(parameters),
        "PLAIN": repr(plain_text),
        "INPUTS": _inputs(imported),
        "ENTRY": repr(imported.entry.name),
        "GRID": _sizes(imported.grid),
        "BLOCK": _sizes(imported.block),
        "SMEM": _size(imported.smem),
        "FIRST": first,
        "CHANGED": repr(tuple(each.name for each in copied(imported.arguments))),
        "SCRATCH": _scratch(imported),
        "OUTPUTS": _outputs(imported),
        "PASSED": ", ".join(
            _passed(imported, argument) for argument in (*imported.arguments, *imported.scratch)
        ),
    }
    # In one pass, since a value may itself look like a placeholder.
    return re.sub(r"@([A-Z]+)@", lambda match: places[match[1]], _TEXT.read_text("utf-8"))


def _inputs(imported: Imported) -> str:
    return "\n".join(
        f"        {argument.name!r}: stored(random, {_shape(argument)}, {argument.dtype!r}, recipe"
        + (f", {argument.fill})," if argument.fill else "),")
        for argument in imported.arguments
        if argument.role == "input"
    )


def _outputs(imported: Imported) -> str:
    return ", ".join(
        f"{argument.name!r}: ({argument.storage!r}, {_shape(argument)})"
        for argument in imported.arguments
        if argument.role == "output"
    )


def _scratch(imported: Imported) -> str:
    """The plain kernel's scratch memory: (name, bytes, whether it begins as zeros)."""
    if not imported.scratch:
        return ""
    each = ", ".join(
        f"({argument.name!r}, int({_size(scratch_bytes(argument))}), {bool(argument.fill)})"
        for argument in imported.scratch
    )
    return f"\n        scratch=[{each}],"


def _passed(imported: Imported, argument: ImportedArgument) -> str:
    if argument.role != "scalar":
        return repr(argument.name)
    value = repr(argument.value)
    if argument.name in imported.dims:
        value = f"dims[{argument.name!r}]"
    elif argument.name in imported.constants:  # a check may give it another value
        value = f"dims.get({argument.name!r}, {value})"
    return f"({argument.dtype!r}, {value})"


def _shape(argument: ImportedArgument) -> str:
    sizes = [
        size if size.isdigit() else f"dims[{dim!r}]"
        for size, dim in zip(argument.shape, argument.dims, strict=True)
    ]
    return f"({', '.join(sizes)},)"


def _sizes(texts: list[str]) -> str:
    return ", ".join(map(_size, texts))


def _size(text: str) -> str:
    """Code that computes an expression of the launch."""
    return f"value_of({text!r}, names)"
