"""An operation as kernel.toml defines it, as far as calls need it: names, shapes and arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from greenfast.runtime.archive import MALFORMED, bad_bundle, toml_table
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import (
    Expression,
    Value,
    computed_size,
    expression,
    require_names,
)

LARGEST_DIM = 2**31 - 1
ELEMENT_BYTES = {
    "fp16": 2,
    "bf16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
}
SCALAR_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "float32": "<f", "float64": "<d"}
_STRIDE = re.compile(r"\s*stride\(\s*(\w+)\s*,\s*(\d)\s*\)\s*\Z")
_NAME = re.compile(r"[A-Za-z_]\w{0,99}\Z")


@dataclass(frozen=True)
class Dim:
    name: str
    default: Expression | None
    compiled: bool  # a constant in a kernel's text
    values: tuple[int, ...] = ()  # the only sizes of it, where kernel.toml lists some


@dataclass(frozen=True)
class TensorArgument:
    name: str
    output: bool
    dtype: str  # a key of ELEMENT_BYTES, or "dtype": the option of that name
    shape: tuple[str, ...]
    optional: bool
    free_strides: frozenset[int]  # axes whose stride is an argument of the launch
    read_when: Expression | None = None  # of an input, over options; else it is a null pointer


@dataclass(frozen=True)
class ScalarArgument:
    name: str
    dtype: str
    value: Expression | None
    stride_of: tuple[str, int] | None


Argument = TensorArgument | ScalarArgument


@dataclass(frozen=True, repr=False)
class Operation:
    """Dims, options and the argument list that every launch of the operation begins with."""

    name: str
    dims: tuple[Dim, ...]
    options: tuple[tuple[str, str], ...]  # with their defaults
    constants: tuple[tuple[str, Expression], ...]
    arguments: tuple[Argument, ...]
    requirements: tuple[tuple[Expression, str], ...]
    pointer_bytes: int
    stride_elements: int
    empty_dims: frozenset[str]
    option_values: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    @cached_property
    def tensors(self) -> tuple[TensorArgument, ...]:
        return tuple(item for item in self.arguments if isinstance(item, TensorArgument))

    @cached_property
    def compiled_names(self) -> tuple[str, ...]:
        """Dims and options that a kernel's text holds as constants."""
        dims = tuple(dim.name for dim in self.dims if dim.compiled)
        return (*dims, *(name for name, _ in self.options))

    @cached_property
    def unseen_dims(self) -> tuple[Dim, ...]:
        """Compile-time dims that no input's shape has; they come from a kernel or the caller."""
        seen = {name for tensor in self.tensors if not tensor.output for name in tensor.shape}
        return tuple(dim for dim in self.dims if dim.compiled and dim.name not in seen)

    def unread(self, options: Mapping[str, Value]) -> frozenset[str]:
        """The inputs that kernels with these options do not read, so that calls leave them out."""
        return frozenset(
            tensor.name
            for tensor in self.tensors
            if tensor.read_when is not None and not tensor.read_when(options)
        )

    @cached_property
    def told_by_inputs(self) -> dict[str, tuple[str, str]]:
        """Options of two values that say whether the input of their own name is read.

        Each with its value without and with the input: a call gives the input, not the option.
        """
        told: dict[str, tuple[str, str]] = {}
        values = dict(self.option_values)
        for tensor in self.tensors:
            both = values.get(tensor.name, ())
            if tensor.read_when is None or tensor.read_when.names != {tensor.name}:
                continue
            read = [value for value in both if tensor.read_when({tensor.name: value})]
            if len(both) == 2 and len(read) == 1:
                (unread,) = (value for value in both if value not in read)
                told[tensor.name] = unread, read[0]
        return told

    def constants_of(
        self, values: Mapping[str, Value], given: Mapping[str, Value]
    ) -> dict[str, Value]:
        """`values` with the operation's constants, as the caller gives them or by default."""
        complete = dict(values)
        for name, constant in self.constants:
            complete[name] = given[name] if given.get(name) is not None else constant(complete)
        return complete


def read_operation(text: bytes) -> Operation:
    """The operation of a kernel.toml; UsageError `bad_bundle` when it defines none."""
    table = toml_table({"kernel.toml": text}, "kernel.toml")
    try:
        return _operation(table)
    except SpecError as error:
        raise bad_bundle(f"kernel.toml of the bundle cannot be read: {error}") from None
    except MALFORMED as error:
        raise bad_bundle(
            f"kernel.toml of the bundle defines no operation: {type(error).__name__}: {error}"
        ) from None


def _operation(table: Mapping[str, Any]) -> Operation:
    dims = tuple(
        Dim(
            checked_name(name),
            expression(row["default"], f"dims.{name}") if "default" in row else None,
            row["time"] == "compile",
            tuple(map(int, row.get("values", ()))),
        )
        for name, row in table["dims"].items()
    )
    requires = [
        (expression(row["that"], "requires"), str(row["because"]))
        for row in table.get("requires", ())
    ]
    written = [condition for condition, _ in requires]
    for dim in dims:
        if computed := computed_size(dim.name, dim.default, dim.values, written):
            requires.append(computed)
    free = _free_strides(table["arguments"])
    alignment = table.get("alignment", {})
    return Operation(
        checked_name(table["name"]),
        dims,
        tuple(
            (checked_name(name), str(row["default"]))
            for name, row in table.get("options", {}).items()
        ),
        tuple(
            (checked_name(name), expression(text, f"constants.{name}"))
            for name, text in table.get("constants", {}).items()
        ),
        tuple(_argument(row, free, table.get("options", {})) for row in table["arguments"]),
        tuple(requires),
        int(alignment.get("pointer_bytes", 16)),
        int(alignment.get("stride_elements", 1)),
        frozenset(table.get("empty_dims", ())),
        tuple(
            (checked_name(name), tuple(map(str, row["values"])))
            for name, row in table.get("options", {}).items()
        ),
    )


def _free_strides(rows: list[Mapping[str, Any]]) -> dict[str, set[int]]:
    free: dict[str, set[int]] = {}
    for row in rows:
        if row["kind"] == "scalar" and (match := _STRIDE.match(str(row["value"]))):
            free.setdefault(match.group(1), set()).add(int(match.group(2)))
    return free


def _argument(
    row: Mapping[str, Any], free: Mapping[str, set[int]], options: Collection[str]
) -> Argument:
    name = checked_name(row["name"])
    if row["kind"] == "scalar":
        return scalar_argument(row)
    if row["kind"] not in ("input", "output"):
        raise ValueError(f"{name} is {row['kind']!r}")
    if row["dtype"] != "dtype" and row["dtype"] not in ELEMENT_BYTES:
        raise ValueError(f"{name} has the type {row['dtype']!r}")
    return TensorArgument(
        name,
        row["kind"] == "output",
        row["dtype"],
        tuple(checked_name(dim) for dim in row["shape"]),
        bool(row.get("optional", False)),
        frozenset(free.get(name, ())),
        _read_when(row, options),
    )


def _read_when(row: Mapping[str, Any], options: Collection[str]) -> Expression | None:
    if "read_when" not in row or row["kind"] != "input":
        return None
    condition = expression(row["read_when"], f"{row['name']}, read_when")
    require_names(condition, set(options))
    return condition


def scalar_argument(row: Mapping[str, Any]) -> ScalarArgument:
    """A scalar of an operation or of a template; ValueError for a type that no launch passes."""
    name = checked_name(row["name"])
    if row["dtype"] not in SCALAR_FORMATS:
        raise ValueError(f"{name} has the type {row['dtype']!r}")
    if match := _STRIDE.match(str(row["value"])):
        return ScalarArgument(name, row["dtype"], None, (match.group(1), int(match.group(2))))
    return ScalarArgument(name, row["dtype"], expression(row["value"], name), None)


def checked_name(text: object) -> str:
    """`text` if it is a name, which a path and a C++ text may hold; else ValueError."""
    if not isinstance(text, str) or not _NAME.match(text):
        raise ValueError(f"{str(text)[:40]!r} is not a name")
    return text


def completed(operation: Operation, known: Mapping[str, Value]) -> dict[str, Value]:
    """`known` with the dims that follow from it; those that do not are left out.

    A tensor's size can be that of another dim: with A_columns = "M if turned_a else K" and turned_a
    = 0, K is A_columns. With a size of "rows + 1" or "4 * rows", rows follows, too.
    """
    values = dict(known)
    for dim in operation.unseen_dims:
        if dim.name not in values and dim.default is not None and not dim.default.names:
            values[dim.name] = dim.default(values)
    names = {dim.name for dim in operation.dims}
    for dim in operation.dims:
        if dim.name in values and dim.default is not None:
            node = _meant(ast.parse(dim.default.text.strip(), mode="eval").body, values)
            name, size = _solved(node, values[dim.name])
            if name in names and size is not None:
                values.setdefault(name, size)
    for dim in operation.dims:
        if (
            dim.name not in values
            and dim.default is not None
            and dim.default.names <= values.keys()
        ):
            values[dim.name] = dim.default(values)
    return values


def _meant(node: ast.expr, values: Mapping[str, Value]) -> ast.expr:
    """The part of an expression that counts, once its conditions are decided, as far as known."""
    while isinstance(node, ast.IfExp):
        test = expression(ast.unparse(node.test), "a dim's default")
        if not test.names <= values.keys():
            return node
        node = node.body if test(values) else node.orelse
    return node


def _solved(node: ast.expr, size: Value) -> tuple[str, int | None]:
    """The name in an expression, and its value where the expression is `size`.

    Known are the name alone, and the name with a number added, subtracted or multiplied.
    """
    match node:
        case ast.Name(id=name):
            return name, int(size)
        case ast.BinOp(
            left=ast.Name(id=name), op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=int(n))
        ):
            return name, int(size) + (n if isinstance(op, ast.Sub) else -n)
        case (
            ast.BinOp(left=ast.Constant(value=int(n)), op=ast.Mult(), right=ast.Name(id=name))
            | ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=ast.Constant(value=int(n)))
        ):
            return name, int(size) // n if n and int(size) % n == 0 else None
    return "", None


def sizes(operation: Operation, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Dims by name, from the shapes of tensors; UsageError if they contradict each other."""
    values: dict[str, int] = {}
    owners: dict[str, str] = {}
    for argument in operation.tensors:
        if argument.name not in shapes:
            continue
        shape = shapes[argument.name]
        if len(shape) != len(argument.shape):
            raise UsageError(
                f"{argument.name} has {len(shape)} dims; {operation.name} needs "
                f"[{', '.join(argument.shape)}]",
                code="bad_shape",
            )
        for dim, size in zip(argument.shape, shape, strict=True):
            if values.setdefault(dim, size) != size:
                raise UsageError(
                    f"{dim} is {values[dim]} in {owners[dim]} and {size} in {argument.name}",
                    code="bad_shape",
                )
            owners.setdefault(dim, argument.name)
    return values
