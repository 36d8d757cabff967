"""Reading [[arguments]] of a kernel.toml: the parameter list of every entry."""

from __future__ import annotations

import re
from dataclasses import replace

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, expression, require_names
from greenfast.search.kernels.mistakes import Mistakes
from greenfast.search.kernels.spec import Argument
from greenfast.search.kernels.tables import Table
from greenfast.search.kernels.workloads import Dim, Option

KINDS = ("input", "output", "scalar")
STORAGE_DTYPES = (
    "fp16", "bf16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
)  # fmt: skip
DTYPES = ("dtype", *STORAGE_DTYPES)  # "dtype": the type that the option `dtype` names
SCALAR_DTYPES = ("float32", "float64", "int32", "int64")
_STRIDE = re.compile(r"stride\((\w+), (\d)\)\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,47}\Z", re.ASCII)


def read_arguments(
    table: Table,
    known: set[str],
    dims: tuple[Dim, ...],
    options: tuple[Option, ...],
    mistakes: Mistakes,
) -> tuple[Argument, ...]:
    """The arguments in order; `known` are the names that a scalar's value may use."""
    arguments: list[Argument] = []
    for entry in mistakes.value(lambda: table.tables("arguments"), ()):
        try:
            argument = _argument(entry, known, arguments, dims)
            argument = replace(argument, read_when=_read_when(entry, argument, options))
            entry.finish()
            _check_dtype(argument, options, entry.where)
        except SpecError as error:
            mistakes.add(error)
        else:
            arguments.append(argument)
    if not mistakes and not any(argument.kind == "output" for argument in arguments):
        mistakes.add(SpecError(f"{table.where}: no [[arguments]] of kind output", code="bad_spec"))
    return tuple(arguments)


def _argument(
    entry: Table, known: set[str], earlier: list[Argument], dims: tuple[Dim, ...]
) -> Argument:
    name, kind = entry.get("name", str), entry.one_of("kind", KINDS)
    if not _IDENTIFIER.match(name):
        raise SpecError(
            f"{entry.where}: the name {name!r}; an argument's name is letters, digits and _",
            code="bad_spec",
        )
    if any(argument.name == name for argument in earlier):
        raise SpecError(f"{entry.where}: a second argument {name!r}", code="bad_spec")
    value, stride_of = _scalar(entry, known, earlier) if kind == "scalar" else (None, None)
    return Argument(
        name,
        kind,
        entry.one_of("dtype", DTYPES),
        () if kind == "scalar" else _shape(entry, dims),
        value,
        stride_of,
        entry.get("optional", bool, False),
        entry.get("contiguous", bool, False),
    )


def _read_when(entry: Table, argument: Argument, options: tuple[Option, ...]) -> Expression | None:
    """The condition over options under which kernels read an input."""
    condition = entry.optional_expression("read_when")
    if condition is None:
        return None
    if argument.kind != "input":
        raise SpecError(
            f"{entry.where}: read_when belongs to an input, and {argument.name} is "
            f"{'an output' if argument.kind == 'output' else 'a scalar'}",
            code="bad_spec",
            mend="an output that a call may leave out is optional = true",
        )
    require_names(condition, {option.name for option in options})
    return condition


def _shape(entry: Table, dims: tuple[Dim, ...]) -> tuple[str, ...]:
    """The names of dims; a size without a name would be unknown to workloads and checks."""
    sizes, names = entry.get("shape", list), [dim.name for dim in dims]
    for size in sizes:
        if isinstance(size, int) or (isinstance(size, str) and size.isdigit()):
            raise SpecError(
                f"{entry.where}: shape holds the number {size}, but a shape consists of dims",
                code="literal_shape",
                mend=f'give it a name: under [dims] write size_{size} = {{ time = "compile", '
                f'values = [{size}], default = "{size}" }}, and here "size_{size}"',
            )
        if size in names:
            continue
        if isinstance(size, str) and not _IDENTIFIER.match(size):
            raise SpecError(
                f"{entry.where}: shape holds {size!r}, but a shape consists of the names of dims",
                code="unknown_dim",
                mend='give the size a name: under [dims] write NAME = { time = "run", '
                f'default = "{size}" }}, and here "NAME"',
            )
        raise SpecError(
            f"{entry.where}: shape names {size!r}, which is not a dim",
            code="unknown_dim",
            mend="known: " + (", ".join(names) or "none"),
        )
    if not sizes:
        raise SpecError(
            f"{entry.where}: shape is empty, and a tensor has at least one dim",
            code="bad_spec",
            mend="a single number is a scalar, or a tensor with a dim of 1: One = { time = "
            '"compile", values = [1], default = "1" }',
        )
    return tuple(sizes)


def _check_dtype(argument: Argument, options: tuple[Option, ...], where: str) -> None:
    """SpecError for a type that a buffer or a launch cannot have."""
    if argument.kind == "scalar":
        if argument.dtype not in SCALAR_DTYPES:
            raise SpecError(
                f"{where}: dtype = {argument.dtype!r}; a scalar may be " + ", ".join(SCALAR_DTYPES),
                code="bad_spec",
            )
        return
    if argument.dtype != "dtype":
        return
    option = next((option for option in options if option.name == "dtype"), None)
    if option is None:
        raise SpecError(
            f"{where}: dtype = 'dtype' is the type that the option dtype names, and there is no "
            "such option",
            code="unknown_option",
            mend="name a type, or add an option: under [options] write dtype = { values = "
            '["fp16", "bf16"], default = "fp16" }',
        )
    unknown = [value for value in option.values if value not in STORAGE_DTYPES]
    if unknown:
        raise SpecError(
            f"{where}: the option dtype may be {unknown[0]!r}, which is not a tensor type",
            code="bad_spec",
            mend="known: " + ", ".join(STORAGE_DTYPES),
        )


def _scalar(
    entry: Table, known: set[str], earlier: list[Argument]
) -> tuple[Expression | None, tuple[str, int] | None]:
    """A scalar's expression, or the tensor and axis whose stride it is."""
    text = str(entry.get("value", (str, int, float)))
    match = _STRIDE.match(text)
    if match is None:
        value = expression(text, f"{entry.where}, value")
        require_names(value, known)
        return value, None
    name, axis = match.group(1), int(match.group(2))
    owner = next((argument for argument in earlier if argument.name == name), None)
    if owner is None or axis >= len(owner.shape):
        raise SpecError(
            f"{entry.where}: {text} names no axis of an argument before it", code="bad_spec"
        )
    return None, (name, axis)
