"""[[tensor_maps]] of a template: the maps that its entries take, as expressions.

    [[tensor_maps]]
    name = "k_map"
    tensor = "k"                 # an argument, or a workspace of this template
    axes = [3, 2, 1, 0]          # innermost first; this is the default
    box = ["64", "tile_n", "1", "1"]
    swizzle_bytes = 128
    fill = "zero"
    l2_promotion_bytes = 256

Instead of `axes`, `sizes` and `strides` (of the axes after the first, in elements) merge axes or
split them: `sizes = ["D", "group", "S_q"]`, `strides = ["sqh", "sqs"]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, Value, expression, require_names
from greenfast.search.kernels.tables import Table, checked_name

DTYPES = ("fp16", "bf16", "float32", "int32", "int64", "uint8")  # of workspaces
FILLS = ("zero", "nan")
MOST_AXES = 5


@dataclass(frozen=True)
class MappedTensor:
    """An argument of the kernel, or a workspace of the template, that a map can describe."""

    name: str
    shape: tuple[str, ...]  # names of dims; empty for a workspace
    dtype: str  # "dtype": the option's value; "" of a workspace, whose maps name a type
    optional: bool = False


@dataclass(frozen=True)
class TensorMapSpec:
    """A map, with its axes innermost first."""

    name: str
    tensor: str
    dtype: str  # "dtype": the option's value
    sizes: tuple[Expression, ...]  # elements; over dims, options, parameters and locals
    # The tensor's axes, whose strides are those of its layout; empty when `strides` are given.
    axes: tuple[int, ...]
    # In elements, of the axes after the first; also over the kernel's scalars, such as strides.
    strides: tuple[Expression, ...]
    box: tuple[Expression, ...]  # over what is known when a candidate is rendered, as are the rest
    swizzle_bytes: Expression
    fill: str
    l2_promotion_bytes: Expression
    when: Expression | None = None  # it is an argument only when this holds


@dataclass(frozen=True)
class KnownNames:
    """Names that the expressions of a map may use."""

    rendered: frozenset[str]  # parameters, locals, compile-time dims and options
    launched: frozenset[str]  # these and the dims of a launch
    scalars: frozenset[str]  # the kernel's scalar arguments
    tensors: tuple[MappedTensor, ...] = field(default=())


def whole(number: Expression, values: Mapping[str, Value]) -> int:
    """The value of an expression; SpecError when it is no whole number."""
    value = number(values)
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value != int(value)
    ):
        raise SpecError(
            f"{number.where}: {number.text!r} gives {value!r}; a tensor map needs whole numbers",
            code="bad_expression",
        )
    return int(value)


def read_tensor_maps(tables: Iterable[Table], known: KnownNames) -> tuple[TensorMapSpec, ...]:
    """The maps of a template, in the order in which its entries take them."""
    maps: list[TensorMapSpec] = []
    for table in tables:
        tensor_map = _tensor_map(table, known)
        taken = {*(other.name for other in maps), *(each.name for each in known.tensors)}
        if tensor_map.name in taken | known.scalars:
            raise SpecError(
                f"{table.where}: {tensor_map.name!r} is the name of another argument",
                code="bad_spec",
            )
        maps.append(tensor_map)
    return tuple(maps)


def _tensor_map(table: Table, known: KnownNames) -> TensorMapSpec:
    tensor = _tensor(table, known.tensors)
    is_workspace = not tensor.dtype
    dtype = table.one_of("dtype", DTYPES) if is_workspace else tensor.dtype
    name = checked_name(table.get("name", str), table.where)
    sizes, axes, strides = _axes(table, tensor, known)
    box = _expressions(table, "box", known.rendered)
    if len(box) != len(sizes):
        raise SpecError(
            f"{table.where}: box has {len(box)} sizes, and the map has {len(sizes)} axes",
            code="bad_spec",
            mend="one size for each axis, innermost first; 1 where a copy moves one element",
        )
    tensor_map = TensorMapSpec(
        name,
        tensor.name,
        dtype,
        sizes,
        axes,
        strides,
        box,
        _checked(table.expression("swizzle_bytes", 0), known.rendered),
        table.one_of("fill", FILLS, FILLS[0]),
        _checked(table.expression("l2_promotion_bytes", 0), known.rendered),
        _optional(table, known.rendered),
    )
    table.finish()
    return tensor_map


def _tensor(table: Table, tensors: tuple[MappedTensor, ...]) -> MappedTensor:
    name = table.get("tensor", str)
    tensor = next((each for each in tensors if each.name == name), None)
    if tensor is None:
        raise SpecError(
            f"{table.where}: tensor = {name!r} is neither a tensor of the kernel nor a "
            "workspace of the template",
            code="bad_spec",
            mend="known: " + (", ".join(each.name for each in tensors) or "none"),
        )
    if tensor.optional:
        raise SpecError(
            f"{table.where}: {name} is optional, and a map needs a tensor that is always there",
            code="bad_spec",
            mend="write it without a map",
        )
    return tensor


def _axes(
    table: Table, tensor: MappedTensor, known: KnownNames
) -> tuple[tuple[Expression, ...], tuple[int, ...], tuple[Expression, ...]]:
    """Sizes, and either axes of the tensor or strides."""
    last = len(tensor.shape) - 1
    given = table.get("sizes", list, None)
    if given is not None or not tensor.shape:
        sizes = _expressions(table, "sizes", known.launched)
        strides = _expressions(table, "strides", known.launched | known.scalars)
        if len(strides) != len(sizes) - 1:
            raise SpecError(
                f"{table.where}: {len(sizes)} sizes and {len(strides)} strides",
                code="bad_spec",
                mend="one stride for each axis after the first, in elements",
            )
        return _bounded(table, sizes), (), strides
    axes = tuple(table.get("axes", list, list(range(last, -1, -1))))
    if (
        any(type(axis) is not int or not 0 <= axis <= last for axis in axes)
        or len(set(axes)) != len(axes)
        or not axes
        or axes[0] != last
    ):
        raise SpecError(
            f"{table.where}: axes = {list(axes)}",
            code="bad_spec",
            mend=f"different axes of {tensor.name}, from 0 to {last}, innermost first; the first "
            f"is {last}, whose elements lie side by side",
        )
    where = f"{table.where}, axes"
    return (
        _bounded(table, tuple(expression(tensor.shape[axis], where) for axis in axes)),
        axes,
        (),
    )


def _bounded(table: Table, sizes: tuple[Expression, ...]) -> tuple[Expression, ...]:
    if not 1 <= len(sizes) <= MOST_AXES:
        raise SpecError(
            f"{table.where}: {len(sizes)} axes",
            code="bad_spec",
            mend=f"1 to {MOST_AXES}; `axes` selects some, `sizes` and `strides` merge them",
        )
    return sizes


def _expressions(table: Table, key: str, known: frozenset[str]) -> tuple[Expression, ...]:
    where = f"{table.where}, {key}"
    texts = table.get(key, list, []) if key == "strides" else table.get(key, list)
    return tuple(_checked(expression(text, where), known) for text in texts)


def _checked(checked: Expression, known: frozenset[str]) -> Expression:
    require_names(checked, set(known))
    return checked


def _optional(table: Table, known: frozenset[str]) -> Expression | None:
    when = table.optional_expression("when")
    return None if when is None else _checked(when, known)
