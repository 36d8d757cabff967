"""`greenfast import`: a kernel and template of a plain CUDA file with #defines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from greenfast.app.cli.import_cluster import cluster_sizes
from greenfast.app.cli.import_constant_memory import as_parameters, with_constants
from greenfast.app.cli.import_constants import constants_as_defines
from greenfast.app.cli.import_fill import checked_fill
from greenfast.app.cli.import_host_functions import without_host_functions
from greenfast.app.cli.import_in_out import split_in_out
from greenfast.app.cli.import_instance import instantiated
from greenfast.app.cli.import_launch import default_grid, in_small_letters
from greenfast.app.cli.import_launch_names import Known, checked, three
from greenfast.app.cli.import_notebook import SUFFIX as NOTEBOOK
from greenfast.app.cli.import_options import (
    Block,
    CudaFile,
    EntryName,
    GivenArguments,
    Grid,
    Multiple,
    Name,
    Restrict,
    SharedMemory,
    Tolerance,
    Tune,
    TuneFile,
)
from greenfast.app.cli.import_parameters import C_TYPES, Declared
from greenfast.app.cli.import_point import first_point
from greenfast.app.cli.import_report import Notes, report
from greenfast.app.cli.import_scratch import ROLE as WORKSPACE
from greenfast.app.cli.import_scratch import checked_scratch, without_scratch
from greenfast.app.cli.import_script import (
    Script,
    ScriptKernel,
    read_script,
    script_entry,
    script_kernel,
    short_name,
)
from greenfast.app.cli.import_script_arguments import (
    check_told,
    script_arguments,
    script_constants,
    script_place,
)
from greenfast.app.cli.import_source import (
    ENTRY,
    SPELLINGS,
    CudaText,
    Entry,
    ImportedArgument,
    Tuning,
    checked_restrictions,
    own_define,
    parsed_tune,
    read_cuda,
    read_entry,
    without_comments,
)
from greenfast.app.cli.import_tune_file import read_tune_file
from greenfast.app.cli.imported import Imported
from greenfast.app.cli.new import Folder
from greenfast.app.cli.new_files import checked_kernel_name, target_root, write_kernel
from greenfast.app.cli.options import AsJson
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.argument_specs import SCALAR_DTYPES
from greenfast.search.kernels.expressions import Value, expression
from greenfast.search.text import visible

SCRIPTS = (".py", NOTEBOOK)
_ROLES = {"in": "input", "out": "output"}  # as `greenfast check` spells them
_ARGUMENT = re.compile(
    r"(?P<name>\w+):(?P<dtype>\w+)(?:\[(?P<shape>[\w\s,+*/()-]+)\])?"
    r"(?:=(?P<first>[^:]+))?(?::(?P<role>input|output|inout|in|out|workspace))?(?:=(?P<last>.+))?\Z"
)


@dataclass(frozen=True)
class Given:
    """The launch as the command line gives it."""

    grid: list[str]
    block: list[str]
    smem: str | None
    tolerance: float | None
    multiples: list[str]


def import_(
    cuda_file: CudaFile,
    name: Name = None,
    tune: Tune = None,
    tune_file: TuneFile = None,
    restrict: Restrict = None,
    argument: GivenArguments = None,
    grid: Grid = None,
    block: Block = None,
    smem: SharedMemory = None,
    multiple: Multiple = None,
    entry: EntryName = None,
    tolerance: Tolerance = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Convert a plain CUDA file with #defines for its tunable values into a kernel.

    The reference is the output of the unmodified file with its default values, on the emulator.
    To find mistakes of the plain kernel, too, replace reference.py by a float64 computation.

    Exit codes: 0 written, 2 something does not fit.
    """
    from greenfast.app.cli.import_files import check_elements, imported_files
    from greenfast.app.cli.import_host_names import with_host_names

    new_name = checked_kernel_name(name or cuda_file.stem.lower())
    given = Given(grid or [], block or [], smem, tolerance, multiple or [])
    kernel, script = _read(cuda_file, tune_file, entry)
    source, file, wanted = kernel.source, kernel.file, kernel.entry
    entry = wanted
    tuning = _tuning(tune or [], script, entry, restrict or [], given)
    source, host_functions = without_host_functions(source)
    source = constants_as_defines(with_host_names(source), tuning.parameters)
    filled = [*_names_of(argument or []), *script_constants(script, entry)]
    source, constants = with_constants(source, short_name(entry) or None, file, filled)
    argument = as_parameters(argument or [], constants)
    source, entry, macros = instantiated(source, entry, file, tuning.parameters)
    text = source.text
    function = read_entry(source, entry, file)
    _check_tuned_types(function, source, tuning)
    told = _told_by(script, wanted, function, text, argument, constants)
    place, unread = file, ""
    if cuda_file.suffix in SCRIPTS:
        place, unread = script_place(script, wanted), ", which only running the script would tell"
    arguments = _arguments([*argument, *told], function, place, unread)
    imported = _imported(new_name, cuda_file.name, text, function, arguments, tuning, given, macros)
    root = target_root(folder)
    written = write_kernel(root, new_name, imported_files(imported))
    notes = Notes(told, host_functions, constants)
    report(imported, written, notes, root, check_elements(imported), as_json)
    others = [each for each in script.entries() if each != wanted] if script is not None else []
    if others and cuda_file.suffix in SCRIPTS and not as_json:
        print(
            f"\nThe script also tunes {', '.join(others)}. To import it, give --entry and --name."
        )
    return 0


def _read(
    cuda_file: Path, tune_file: Path | None, entry: str | None
) -> tuple[ScriptKernel, Script | None]:
    """The kernel of a file, and the tuning script; UsageError for a file of another kind."""
    file = visible(cuda_file)
    if ".json" in cuda_file.suffixes:
        raise UsageError(
            f"{file} is JSON, neither a CUDA file nor a Kernel Tuner script",
            code="bad_source",
            mend=f"greenfast import-space {file} reads another tuner's measurements",
        )
    script = read_script(tune_file) if tune_file is not None else None
    if cuda_file.suffix in SCRIPTS:
        tuned = read_script(cuda_file)
        return script_kernel(tuned, entry), script or tuned
    source = read_cuda(cuda_file)
    entry = entry or (script_entry(script, source.text) if script is not None else None)
    return ScriptKernel(entry, source, file), script


def _names_of(arguments: Iterable[str]) -> list[str]:
    return [each.partition(":")[0] for each in arguments]


def _told_by(
    script: Script | None,
    wanted: str | None,
    entry: Entry,
    text: str,
    given: list[str],
    constants: tuple[str, ...],
) -> list[str]:
    """--arg texts from the tuning script, for the parameters that `given` does not name."""
    if script is None:
        return []
    named = set(_names_of(given))
    told = script_arguments(script, entry, text, wanted, named, constants)
    told = {name: each for name, each in told.items() if name not in named}
    check_told(told, entry, script_place(script, wanted))
    return list(told.values())


def _imported(
    name: str,
    source: str,
    text: str,
    entry: Entry,
    arguments: tuple[ImportedArgument, ...],
    given_tuning: Tuning,
    given: Given,
    macros: Mapping[str, str],
) -> Imported:
    """The kernel, with its expressions checked; UsageError for what does not fit."""
    if given.tolerance is not None and not 0 <= given.tolerance < math.inf:
        raise UsageError("--tolerance must be 0 or more", code="bad_tolerance")
    tuning, defines = in_small_letters(given_tuning, {argument.name for argument in arguments})
    parameters = tuple(tuning.parameters)
    sizes = tuple(each.name for each in arguments if each.is_size)
    _check_names(parameters, arguments)
    in_launch = set(tuning.block_names)  # a kernel may read blockDim instead
    _check_spelling([define for name, define in defines.items() if name not in in_launch], text)
    block, smem = given.block or _default_block(tuning), given.smem
    known = Known(text, defines, sizes)
    arguments, scratch = without_scratch(arguments)
    return Imported(
        name=name,
        source=source,
        text=text,
        entry=entry,
        arguments=arguments,
        scratch=checked_scratch(scratch, known),
        tuning=tuning,
        defines={name: macros.get(define, define) for name, define in defines.items()},
        defaults=_defaults(text, tuning, defines),
        grid=three("--grid", given.grid or default_grid(tuning, arguments), known),
        block=three("--block", block, known),
        cluster=cluster_sizes(text, entry.name, defines),
        smem=checked("--smem", tuning.smem if smem is None else smem, known),
        tolerance=given.tolerance,
        multiples=_multiples(given.multiples, arguments),
    )


def _multiples(texts: Iterable[str], arguments: Iterable[ImportedArgument]) -> dict[str, int]:
    """What each size is a multiple of, from texts such as n=64."""
    sizes = {each.name: int(each.value) for each in arguments if each.is_size}
    multiples = {}
    for text in texts:
        name, _, step = (part.strip() for part in text.partition("="))
        if name not in sizes:
            raise UsageError(
                f"--multiple {text}: there is no size {visible(name)!r}",
                code="bad_multiple",
                mend="sizes: " + (", ".join(sizes) or "none"),
            )
        if not (step.isdecimal() and 0 < int(step) <= sizes[name]) or sizes[name] % int(step):
            raise UsageError(
                f"--multiple {text}: the import has {name} = {sizes[name]}",
                code="bad_multiple",
                mend="give a whole number that divides it",
            )
        multiples[name] = int(step)
    return multiples


def _tuning(
    tune: list[str], script: Script | None, entry: str | None, restrict: list[str], given: Given
) -> Tuning:
    from_file = Tuning({}, ())
    if script is not None:
        has_smem = given.smem is not None
        from_file = read_tune_file(script, entry, has_grid=bool(given.grid), has_smem=has_smem)
    parameters = {**from_file.parameters, **parsed_tune(tune)}
    if not parameters:
        raise UsageError(
            "there is nothing to tune",
            code="bad_tune",
            mend="give --tune block_size_x=32,64,128 or --tune-file FILE.py",
        )
    own = checked_restrictions(restrict, tuple(parameters), "--restrict")
    return replace(from_file, parameters=parameters, restrictions=(*from_file.restrictions, *own))


def _arguments(
    texts: list[str], entry: Entry, file: str, unread: str = ""
) -> tuple[ImportedArgument, ...]:
    """In the order of the entry's parameters; UsageError that names every one that is missing.

    `unread` says why the script does not tell them.
    """
    given = {argument.name: argument for argument in map(_argument, texts)}
    missing = [each for each in entry.parameters if each.name not in given]
    unknown = [name for name in given if name not in {each.name for each in entry.parameters}]
    if missing or unknown:
        example = " ".join(f"--arg {_example(each)}" for each in missing)
        raise UsageError(
            f"{file}: {entry.name} has the parameters "
            + (", ".join(each.name for each in entry.parameters) or "none")
            + (f", and --arg names {', '.join(unknown)}" if unknown else "")
            + (
                f"; --arg is missing for {', '.join(each.name for each in missing)}{unread}"
                if missing
                else ""
            ),
            code="bad_argument",
            mend=f"for example {example}" if missing else "remove it",
        )
    arguments = tuple(given[each.name] for each in entry.parameters)
    for declared, argument in zip(entry.parameters, arguments, strict=True):
        _check_type(declared, argument, file)
    scalars = {argument.name: int(argument.value) for argument in arguments if argument.is_size}
    for argument in arguments:
        for size in argument.shape if argument.role != WORKSPACE else ():
            _check_size(size, argument.name, scalars)
    arguments = tuple(_with_fill(argument, scalars.keys()) for argument in arguments)
    if not any(argument.role in ("output", "inout") for argument in arguments):
        raise UsageError("no --arg is an output", code="bad_argument", mend="end it with :output")
    return split_in_out(arguments, file)


def _with_fill(argument: ImportedArgument, scalars: Set[str]) -> ImportedArgument:
    if not argument.fill:
        return argument
    if argument.role == "output":
        raise UsageError(
            f"--arg {argument.name}: an output has no first values",
            code="bad_argument",
            mend=f"end it with :inout if the kernel reads {argument.name}, else leave them out",
        )
    return replace(argument, fill=checked_fill(argument.fill, argument.name, scalars))


def _check_size(size: str, name: str, scalars: Mapping[str, int]) -> None:
    """UsageError for a size that is no number, no scalar, and no expression over these."""
    if size.isdigit() or size in scalars:
        return
    try:
        checked = expression(size, f"--arg {name}")
        if not checked.names or not scalars.keys() >= checked.names:
            raise _unknown_size(size, name, scalars)
        value = checked(scalars)
    except SpecError as error:
        raise UsageError(error.message, code="bad_argument", mend=error.mend) from error
    if not 0 < value < 2**31:
        raise UsageError(f"--arg {name}: the size {size} is {value:g}", code="bad_argument")


def _unknown_size(size: str, name: str, scalars: Mapping[str, int]) -> UsageError:
    return UsageError(
        f"--arg {name}: the size {visible(size)!r} is neither a number nor a scalar, nor an "
        "expression over scalars",
        code="bad_argument",
        mend="known: " + (", ".join(sorted(scalars)) or "none") + "; a size cannot depend on a "
        "tuned parameter, since all candidates get the same tensors",
    )


def _argument(text: str) -> ImportedArgument:
    match = _ARGUMENT.match(text)
    if (
        match is None
        or _dtype(match["dtype"]) not in C_TYPES.values()
        or None not in (match["first"], match["last"])
        or (match["shape"] is None and (match["role"] or not (match["first"] or match["last"])))
    ):
        raise UsageError(
            f"--arg {visible(text)!r} is not understood",
            code="bad_argument",
            mend="write x:float32[4096]:input, y:float32[2*n]:output, z:float32[n]=zeros:inout or "
            "n:int32=4096; types are " + ", ".join(dict.fromkeys(C_TYPES.values())),
        )
    dtype, value = _dtype(match["dtype"]), match["first"] or match["last"] or ""
    if match["shape"] is None:
        is_unsigned = match["dtype"].startswith("u")
        number = _scalar(text, value, dtype, is_unsigned)
        return ImportedArgument(match["name"], dtype, (), "scalar", number)
    whole = re.sub(r"/+", "//", match["shape"])  # C's division, which is kernel.toml's `//`
    shape = tuple(_split_sizes(whole))
    if any(not size or (size.isdigit() and not 0 < int(size) < 2**31) for size in shape):
        raise UsageError(f"--arg {visible(text)!r}: a size is missing or 0", code="bad_argument")
    role = match["role"] or "input"
    return ImportedArgument(match["name"], dtype, shape, _ROLES.get(role, role), fill=value)


def _split_sizes(text: str) -> list[str]:
    """The sizes between commas that are in no brackets; an empty text where one is missing."""
    sizes, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            sizes.append("")
        else:
            sizes[-1] += character
    return [size.strip() for size in sizes]


def _dtype(text: str) -> str:
    """The name of a type in kernel.toml; C's name of it is understood too."""
    return SPELLINGS.get(text, C_TYPES.get(text, text))


def _scalar(text: str, given: str, dtype: str, is_unsigned: bool) -> int | float:
    if dtype not in SCALAR_DTYPES:
        raise UsageError(
            f"--arg {visible(text)!r}: a scalar cannot be {dtype}",
            code="bad_argument",
            mend="a launch passes "
            + ", ".join(SCALAR_DTYPES)
            + "; let the kernel take one of these (float for half), and convert it there",
        )
    try:
        value = float(given) if dtype.startswith("float") else int(given)
    except ValueError as error:
        raise UsageError(
            f"--arg {visible(text)!r}: {visible(given)} is not of type {dtype}",
            code="bad_argument",
        ) from error
    bits = 32 if dtype == "int32" else 64
    if is_unsigned and 2 ** (bits - 1) <= value < 2**bits:  # the signed number of these bits
        value -= 2**bits
    if not abs(value) < 2 ** (bits - 1):
        raise UsageError(
            f"--arg {visible(text)!r}: a scalar of this type must be below 2**{bits - 1}",
            code="bad_argument",
        )
    return value


def _check_type(declared: Declared, argument: ImportedArgument, file: str) -> None:
    if declared.is_pointer != bool(argument.shape) or (
        declared.dtype and declared.dtype != argument.dtype
    ):
        if not declared.is_pointer and not argument.shape and declared.dtype not in SCALAR_DTYPES:
            _scalar(declared.name, "", declared.dtype, False)  # which no launch passes
        form = f"{declared.dtype or 'another type'}{'[...]' if declared.is_pointer else ''}"
        raise UsageError(
            f"--arg {argument.name}: {file} declares it as {form}",
            code="bad_argument",
            mend=f"for example {_example(declared)}",
        )
    if declared.is_pointer and declared.is_const and argument.role != "input":
        raise UsageError(
            f"--arg {argument.name}: {file} declares it const, so the kernel does not write it",
            code="bad_argument",
        )


def _check_tuned_types(entry: Entry, source: CudaText, tuning: Tuning) -> None:
    """UsageError for a parameter whose type is tuned: all candidates get the same tensors."""
    bare = without_comments(source.text)
    for match in ENTRY.finditer(bare):
        words = re.sub(r"\[[^\]]*\]", "", match["parameters"])
        names = {each.name for each in entry.parameters}
        tuned = [name for name in tuning.parameters if re.search(rf"\b{name}\b", words)]
        tuned = [name for name in tuned if name not in names]
        if match["name"] == entry.name and tuned:
            place = source.places[bare.count("\n", 0, match.start("parameters"))]
            raise UsageError(
                f"{place}: the parameter {tuned[0]} is the type of an argument of {entry.name}, "
                "and all candidates get the same tensors",
                code="bad_tune",
                mend=f"import the kernel once for each type, with {tuned[0]} as a #define",
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


def _check_spelling(names: Iterable[str], text: str) -> None:
    """UsageError for a parameter that the text does not have, and has a #define much like it."""
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    own = re.findall(r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\S", text)
    for name in sorted(set(names) - words):
        if close := get_close_matches(name, own, n=1, cutoff=0.8):
            raise UsageError(
                f"the file has no {name} to tune", code="bad_tune", mend=f"did you mean {close[0]}?"
            )


def _defaults(text: str, tuning: Tuning, defines: Mapping[str, str]) -> dict[str, Value]:
    """The point that is compared with: what the file itself defines, else the first values.

    Where the restrictions exclude that point, it is the next one that they leave.
    """
    ordered = {
        name: _own_first(values, own_define(text, defines[name]))
        for name, values in tuning.parameters.items()
    }
    point = first_point(ordered, [expression(each, "restriction") for each in tuning.restrictions])
    if point is None:
        raise UsageError(
            "no combination of the parameters' values fulfils the restrictions "
            + ", ".join(tuning.restrictions),
            code="bad_restriction",
            mend="change the restrictions, or give the parameters other values",
        )
    return point


def _own_first(values: tuple[Value, ...], own: str | None) -> list[Value]:
    if values and isinstance(values[0], bool):
        own = {"1": "True", "0": "False"}.get(own or "", (own or "").capitalize())
    return sorted(values, key=lambda value: str(value) != own)


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
