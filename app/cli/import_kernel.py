"""`greenfast import`: a kernel and template of a plain CUDA file with #defines."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.import_files import Imported, imported_files
from greenfast.app.cli.import_in_out import copied, split_in_out
from greenfast.app.cli.import_launch import default_grid, in_small_letters, respelt
from greenfast.app.cli.import_source import (
    C_TYPES,
    Declared,
    Entry,
    ImportedArgument,
    Tuning,
    checked_restrictions,
    own_define,
    parsed_tune,
    read_cuda,
    read_entry,
)
from greenfast.app.cli.import_tune_file import read_tune_file
from greenfast.app.cli.new import Folder
from greenfast.app.cli.new_files import (
    checked_new_name,
    path_advice,
    shown,
    target_root,
    write_kernel,
)
from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import Value, expression, require_names
from greenfast.search.text import visible

_ROLES = {"in": "input", "out": "output"}  # as `greenfast check` spells them
_ARGUMENT = re.compile(
    r"(?P<name>\w+):(?P<dtype>\w+)(?:\[(?P<shape>[\w\s,]+)\])?"
    r"(?::(?P<role>input|output|inout|in|out))?(?:=(?P<value>.+))?\Z"
)


def import_(
    cuda_file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="The plain kernel.")],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The new kernel. [default: the file's name]"),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", metavar="NAME=V,V", help="A #define and its values; repeated."),
    ] = None,
    tune_file: Annotated[
        Path | None,
        typer.Option(
            "--tune-file",
            metavar="FILE.py",
            help="A script as for Kernel Tuner: tune_params, restrictions, and the grid of its "
            "tune_kernel call. It is parsed, never run.",
        ),
    ] = None,
    restrict: Annotated[
        list[str] | None,
        typer.Option("--restrict", metavar="EXPR", help="What must hold; repeated."),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="SPEC",
            help="A parameter of the entry: x:float32[n]:input, y:float32[n,64]:output, "
            "z:float32[n]:inout (read and written), or n:int32=4096; one for each.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="EXPR",
            help="Blocks along x, y, z; up to three times. [default: the tune file's]",
        ),
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(
            "--block",
            metavar="EXPR",
            help="Threads along x, y, z; up to three times. [default: block_size_x, _y and _z]",
        ),
    ] = None,
    smem: Annotated[
        str, typer.Option("--smem", metavar="EXPR", help="Bytes of dynamic shared memory.")
    ] = "0",
    entry: Annotated[
        str | None,
        typer.Option("--entry", metavar="NAME", help="The __global__ function, among several."),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="T",
            help="How far an output may be from the plain kernel's: T (|value| + their root mean "
            "square).",
        ),
    ] = 1e-4,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Make a kernel of a plain CUDA file whose tunable values are #defines.

    What the unmodified file computes at its default values, on the emulator, is taken as the
    truth: candidates that differ are wrong. Replace reference.py by a float64 computation to find
    mistakes of the plain kernel too.

    Exit codes: 0 written, 2 something does not fit.
    """
    new_name = checked_new_name(name or cuda_file.stem.lower(), "kernel")
    file, text = visible(cuda_file), read_cuda(cuda_file)
    given = _tuning(tune or [], tune_file, restrict or [])
    function = read_entry(text, entry, file)
    arguments = _arguments(argument or [], function, file)
    if not 0 <= tolerance < math.inf:
        raise UsageError("--tolerance must be 0 or more", code="bad_tolerance")
    tuning, defines = in_small_letters(given, {argument.name for argument in arguments})
    parameters = tuple(tuning.parameters)
    names = (*parameters, *(each.name for each in arguments if each.is_size))
    _check_names(parameters, arguments)

    def spelt(texts: list[str] | None) -> list[str]:
        return [respelt(text, defines) for text in texts or []]

    imported = Imported(
        name=new_name,
        source=cuda_file.name,
        text=text,
        entry=function,
        arguments=arguments,
        tuning=tuning,
        defines=defines,
        defaults=_defaults(text, tuning.parameters, defines),
        grid=_three("--grid", spelt(grid) or default_grid(tuning, arguments), names),
        block=_three("--block", spelt(block) or _default_block(tuning), parameters),
        smem=_checked("--smem", respelt(smem, defines), parameters),
        tolerance=tolerance,
    )
    root = target_root(folder)
    written = write_kernel(root, new_name, imported_files(imported))
    advice = path_advice(root)
    commands = [
        *([advice] if advice else []),
        f"greenfast lint {new_name}",
        f"greenfast search {new_name} --trials 20",
    ]
    if as_json:
        print_json({"files": [str(path) for path in sorted(written.iterdir())], "next": commands})
        return 0
    for path in sorted(written.iterdir()):
        print(shown(path))
    for copy in copied(imported.arguments):
        print(
            f"\n{copy.name} is read and written: a first launch copies {copy.before} to "
            "it, and times include the copy"
        )
    print(f"\n{imported.truth}\n\nNext:")
    for command in commands:
        print(f"  {command}")
    return 0


def _tuning(tune: list[str], tune_file: Path | None, restrict: list[str]) -> Tuning:
    from_file = read_tune_file(tune_file) if tune_file is not None else Tuning({}, ())
    parameters = {**from_file.parameters, **parsed_tune(tune)}
    if not parameters:
        raise UsageError(
            "there is nothing to tune",
            code="bad_tune",
            mend="give --tune block_size_x=32,64,128 or --tune-file FILE.py",
        )
    own = checked_restrictions(restrict, tuple(parameters), "--restrict")
    return replace(from_file, parameters=parameters, restrictions=(*from_file.restrictions, *own))


def _arguments(texts: list[str], entry: Entry, file: str) -> tuple[ImportedArgument, ...]:
    """In the order of the entry's parameters; UsageError that names every one that is missing."""
    given = {argument.name: argument for argument in map(_argument, texts)}
    missing = [each for each in entry.parameters if each.name not in given]
    unknown = [name for name in given if name not in {each.name for each in entry.parameters}]
    if missing or unknown:
        example = " ".join(f"--arg {_example(each)}" for each in missing)
        raise UsageError(
            f"{file}: {entry.name} has the parameters "
            + (", ".join(each.name for each in entry.parameters) or "none")
            + (f", and --arg names {', '.join(unknown)}" if unknown else "")
            + (f"; --arg is missing for {len(missing)}" if missing else ""),
            code="bad_argument",
            mend=f"for example {example}" if missing else "remove it",
        )
    arguments = tuple(given[each.name] for each in entry.parameters)
    for declared, argument in zip(entry.parameters, arguments, strict=True):
        _check_type(declared, argument, file)
    scalars = {argument.name for argument in arguments if argument.is_size}
    for argument in arguments:
        for size in argument.shape:
            if not size.isdigit() and size not in scalars:
                raise UsageError(
                    f"--arg {argument.name}: the size {size!r} is no number and no scalar",
                    code="bad_argument",
                    mend="known: " + (", ".join(sorted(scalars)) or "none"),
                )
    if not any(argument.role in ("output", "inout") for argument in arguments):
        raise UsageError("no --arg is an output", code="bad_argument", mend="end it with :output")
    return split_in_out(arguments, file)


def _argument(text: str) -> ImportedArgument:
    match = _ARGUMENT.match(text)
    if (
        match is None
        or match["dtype"] not in C_TYPES.values()
        or ((match["shape"] is None) == (match["value"] is None))
    ):
        raise UsageError(
            f"--arg {visible(text)!r} is not understood",
            code="bad_argument",
            mend="write x:float32[4096]:input, y:float32[n]:output, z:float32[n]:inout or "
            "n:int32=4096; types are " + ", ".join(dict.fromkeys(C_TYPES.values())),
        )
    if match["shape"] is not None:
        shape = tuple(size.strip() for size in match["shape"].split(","))
        if any(not size or (size.isdigit() and not 0 < int(size) < 2**31) for size in shape):
            raise UsageError(
                f"--arg {visible(text)!r}: a size is missing or 0", code="bad_argument"
            )
        role = match["role"] or "input"
        return ImportedArgument(match["name"], match["dtype"], shape, _ROLES.get(role, role))
    try:
        value: int | float = (
            float(match["value"]) if match["dtype"] == "float32" else int(match["value"])
        )
    except ValueError as error:
        raise UsageError(
            f"--arg {visible(text)!r}: {visible(match['value'])} is no {match['dtype']}",
            code="bad_argument",
        ) from error
    if match["dtype"] not in ("float32", "int32", "int64") or not abs(value) < 2**31:
        raise UsageError(
            f"--arg {visible(text)!r}: a scalar is float32, int32 or int64, below 2**31",
            code="bad_argument",
        )
    return ImportedArgument(match["name"], match["dtype"], (), "scalar", value)


def _check_type(declared: Declared, argument: ImportedArgument, file: str) -> None:
    if declared.is_pointer != bool(argument.shape) or (
        declared.dtype and declared.dtype != argument.dtype
    ):
        form = f"{declared.dtype or 'another type'}{'[...]' if declared.is_pointer else ''}"
        raise UsageError(
            f"--arg {argument.name}: {file} declares it as {form}",
            code="bad_argument",
            mend=f"for example {_example(declared)}",
        )
    if declared.is_pointer and declared.is_const and argument.role in ("output", "inout"):
        raise UsageError(
            f"--arg {argument.name}: {file} declares it const, so it is no output",
            code="bad_argument",
        )


def _example(declared: Declared) -> str:
    dtype = declared.dtype or "float32"
    if not declared.is_pointer:
        return f"{declared.name}:{dtype}={'1.0' if dtype == 'float32' else '1024'}"
    return f"{declared.name}:{dtype}[1024]:{'input' if declared.is_const else 'output'}"


def _check_names(parameters: tuple[str, ...], arguments: tuple[ImportedArgument, ...]) -> None:
    for name in parameters:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", name):
            raise UsageError(
                f"the parameter {name!r} does not begin with a letter",
                code="bad_tune",
                mend="rename the #define",
            )
        if any(argument.name == name for argument in arguments):
            raise UsageError(f"{name} is a parameter and an argument", code="bad_tune")


def _defaults(
    text: str, parameters: Mapping[str, tuple[Value, ...]], defines: Mapping[str, str]
) -> dict[str, Value]:
    """The value that the file itself defines, where it is among those to try; else the first."""
    defaults = {}
    for name, values in parameters.items():
        own = own_define(text, defines[name])
        defaults[name] = next((value for value in values if str(value) == own), values[0])
    return defaults


def _default_block(tuning: Tuning) -> list[str]:
    """The parameters that hold a block's sizes, by their names."""
    names, parameters = tuning.block_names, tuning.parameters
    if not set(names) & set(parameters):
        raise UsageError(
            "the threads of a block are not given",
            code="bad_command_line",
            mend="give --block EXPR, or a parameter block_size_x",
        )
    return [name if name in parameters else "1" for name in names]


def _three(option: str, texts: list[str], names: tuple[str, ...]) -> list[str]:
    if not 0 < len(texts) <= 3:
        raise UsageError(
            f"{option} is given {len(texts)} times, and it is needed once to three times",
            code="bad_command_line",
            mend=f'for example {option} "ceil_div(n, block_size_x)"',
        )
    return [*(_checked(option, text, names) for text in texts), "1", "1"][:3]


def _checked(option: str, text: str, names: tuple[str, ...]) -> str:
    try:
        require_names(expression(text, option), set(names))
    except SpecError as error:
        raise UsageError(error.message, code="bad_expression", mend=error.mend) from error
    return text
