"""Names of parameters and the grid, as `greenfast import` takes them from a tuning script.

Parameters are in small letters here, and often in capitals in a CUDA file. A grid is the problem's
size along each axis over the product of that axis's divisors (Kernel Tuner, "Grid dimensions").
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from greenfast.app.cli.import_source import ImportedArgument, ProblemSize, Tuning
from greenfast.search.errors import UsageError

_LARGE = 256  # a smaller number in an expression is rather a tile's size than an argument


def in_small_letters(tuning: Tuning, arguments: Container[str]) -> tuple[Tuning, dict[str, str]]:
    """The tuning with its parameters in small letters, and each one's name in the file.

    A parameter N beside an argument n becomes n_value.
    """
    defines: dict[str, str] = {}
    for define in tuning.parameters:
        name = define.lower()
        if name != define and name in arguments:
            name += "_value"
        if name in defines:
            raise UsageError(
                f"the parameters {defines[name]} and {define} differ in capitals only",
                code="bad_tune",
                mend="rename one #define",
            )
        defines[name] = define

    def respelt_all(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(respelt(text, defines) for text in texts)

    renamed = replace(
        tuning,
        parameters={name: tuning.parameters[define] for name, define in defines.items()},
        restrictions=respelt_all(tuning.restrictions),
        grid_divisors=tuple(
            each if each is None else respelt_all(each) for each in tuning.grid_divisors
        ),
        block_names=respelt_all(tuning.block_names),
        smem=respelt(tuning.smem, defines),
        problem_size=tuple(
            replace(each, text=respelt(each.text, defines)) for each in tuning.problem_size
        ),
    )
    return renamed, defines


def respelt(text: str, defines: Mapping[str, str]) -> str:
    """An expression with the parameters' names of the file in small letters."""
    for name, define in defines.items():
        if name != define:
            text = re.sub(rf"\b{define}\b", name, text)
    return text


def default_grid(tuning: Tuning, arguments: Sequence[ImportedArgument]) -> list[str]:
    """Blocks along x, y, z if the script has the problem's size; else none."""
    grid = []
    for axis, size in enumerate(tuning.problem_size):
        divisors = tuning.grid_divisors[axis]
        if divisors is None:
            block = tuning.block_names[axis : axis + 1]
            divisors = tuple(name for name in block if name in tuning.parameters)
        is_parameter = size.value is None and size.name in tuning.parameters
        blocks = size.name if is_parameter else _size(size, arguments)
        product = " * ".join(f"({each})" for each in divisors)
        grid.append(f"ceil_div({blocks}, {product})" if product else blocks)
    return grid


def _size(size: ProblemSize, arguments: Sequence[ImportedArgument]) -> str:
    """The argument that holds the size, by name or else by its value; else the number."""
    sizes = [argument for argument in arguments if argument.is_size]
    if size.text:
        return _with_names(size.text, sizes)
    if any(argument.name == size.name for argument in sizes):
        return size.name
    if size.value is None:
        raise UsageError(
            f"the problem's size {size.name} is neither a number nor an argument",
            code="bad_tune_file",
            mend="give --grid EXPR",
        )
    same = [argument.name for argument in sizes if argument.value == size.value]
    return same[0] if len(same) == 1 else str(size.value)


def _with_names(text: str, sizes: Sequence[ImportedArgument]) -> str:
    """An expression with arguments in place of their values, if these are large enough to tell."""
    values = [int(argument.value) for argument in sizes]
    for argument in sizes:
        if argument.value >= _LARGE and values.count(int(argument.value)) == 1:
            text = re.sub(rf"(?<![\w.]){int(argument.value)}(?![\w.])", argument.name, text)
    return text
