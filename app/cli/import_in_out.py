"""Tensors that an imported kernel both reads and writes: `--arg x:float32[n]:inout`.

A candidate's inputs may not change. Such a tensor therefore becomes two arguments: the input
x_before, and the output x, to which a first launch copies the input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from greenfast.app.cli.import_sizes import size_in_c
from greenfast.app.cli.import_source import ENTRY, Entry, ImportedArgument, without_comments
from greenfast.search.errors import UsageError

BEFORE = "_before"
COPY_THREADS = 256
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


def split_in_out(arguments: Sequence[ImportedArgument], file: str) -> tuple[ImportedArgument, ...]:
    """The arguments with an input NAME_before in front of each tensor that is also read."""
    names = {argument.name for argument in arguments}
    split: list[ImportedArgument] = []
    for argument in arguments:
        if argument.role == "inout":
            before = argument.name + BEFORE
            if before in names:
                raise UsageError(
                    f"{file}: {argument.name} is read and written, and its first value would be "
                    f"the argument {before}, a name that the entry has",
                    code="bad_argument",
                    mend=f"rename the parameter {before}",
                )
            split.append(replace(argument, name=before, role="input"))
            split.append(replace(argument, role="output", before=before, fill=""))
        else:
            split.append(argument)
    return tuple(split)


def copied(arguments: Sequence[ImportedArgument]) -> tuple[ImportedArgument, ...]:
    """The outputs that begin as copies of an input."""
    return tuple(argument for argument in arguments if argument.before)


def copy_entry(entry: Entry) -> str:
    return f"{entry.name}_copy"


def copy_grid(arguments: Sequence[ImportedArgument]) -> str:
    """Blocks along x that copy the largest of these tensors."""
    counts = [
        " * ".join(
            f"({size})" if size in argument.computed.values() else size for size in argument.shape
        )
        for argument in copied(arguments)
    ]
    largest = counts[0] if len(counts) == 1 else f"max({', '.join(counts)})"
    return f"ceil_div({largest}, {COPY_THREADS})"


def with_copies(text: str, entry: Entry, arguments: Sequence[ImportedArgument]) -> str:
    """The text with an entry that copies, and with the inputs among the entry's parameters."""
    outputs = copied(arguments)
    if not outputs:
        return text
    match = next(
        match for match in ENTRY.finditer(without_comments(text)) if match["name"] == entry.name
    )
    begin, end = match.span("parameters")
    parameters = text[begin:end]
    for output in outputs:
        own = re.search(rf"(?:^|,)(?P<text>[^,]*\b{output.name}\s*)(?=,|$)", parameters)
        assert own is not None  # the entry was read with this parameter
        given = re.sub(rf"\b{output.name}\b(?=\s*$)", str(output.before), own["text"].strip())
        at = own.start("text")
        parameters = f"{parameters[:at]} const {given}, {parameters[at:].lstrip()}"
    copies = "\n".join(
        f"    for (long long i_ = first_; i_ < {_product(output)}; i_ += step_)\n"
        f"        {_element(output, entry)};"
        for output in outputs
    )
    return (
        f"{text[:begin]}{parameters.strip()}{text[end:].rstrip()}\n\n"
        "// The tensors that the kernel above reads and writes begin as copies of inputs.\n"
        f'extern "C" __global__ void {copy_entry(entry)}({parameters.strip()})\n'
        "{\n"
        "    const long long first_ = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "    const long long step_ = gridDim.x * (long long)blockDim.x;\n"
        f"{copies}\n"
        "}\n"
    )


def _element(output: ImportedArgument, entry: Entry) -> str:
    """The copy of an element, also where the entry's pointer is to a vector such as half2."""
    declared = next(each for each in entry.parameters if each.name == output.name)
    if declared.dtype:
        return f"{output.name}[i_] = {output.before}[i_]"
    from greenfast.search.oracle.storage import DTYPES  # NumPy: no help needs it

    word = WORDS[DTYPES[output.dtype].itemsize]
    return f"(({word}*){output.name})[i_] = ((const {word}*){output.before})[i_]"


def _product(argument: ImportedArgument) -> str:
    computed = argument.computed.values()
    return " * ".join(
        _size_in_c(argument, size) if size in computed else f"(long long){size}"
        for size in argument.shape
    )


def _size_in_c(argument: ImportedArgument, size: str) -> str:
    try:
        return size_in_c(size)
    except ValueError as error:
        raise UsageError(
            f"--arg {argument.name}: the copy of this tensor cannot compute its size {size!r}",
            code="bad_argument",
            mend="write it with + - * / and ceil_div, round_up, min, max, abs",
        ) from error
