"""The tensor maps of a kernel in the C++ header: encoded for each call, as the runtime does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from greenfast.runtime.cpp_expression import cpp
from greenfast.runtime.operation import ScalarArgument
from greenfast.runtime.program import Program, TensorMapForm
from greenfast.runtime.tensor_maps import FILLS, L2_PROMOTIONS, SWIZZLES, TYPES
from greenfast.search.devices.tensor_map import ELEMENT_BYTES, UNIT_BYTES
from greenfast.search.kernels.expressions import Value

ENCODE = (Path(__file__).parent / "cpp" / "tensor_maps.h.in").read_text("utf-8")


def stride_lines(program: Program) -> list[str]:
    """Local variables for the scalars that hold strides, which the maps' expressions may name."""
    if not program.tensor_maps:
        return []
    dims = {dim.name for dim in program.operation.dims}
    return [
        f"    [[maybe_unused]] const int64_t {argument.name} = "
        f"{_stride(program, argument.stride_of[0], argument.stride_of[1], UNIT_BYTES)};"
        for argument in program.operation.arguments
        if isinstance(argument, ScalarArgument)
        and argument.stride_of is not None
        and argument.name not in dims
    ]


def map_lines(program: Program, known: Mapping[str, Value]) -> list[str]:
    """Storage for every map, named `argument_NAME`, and its encoding."""
    lines = []
    for form in program.tensor_maps:
        name = f"argument_{form.name}"
        numbers = _numbers(program, form, known)
        lines += [
            f"    CUtensorMap {name};",
            f"    if (CUresult status = encode(&{name}, (void*)argument_{form.tensor}, {numbers}))",
            "        return status;",
        ]
    return lines


def _numbers(program: Program, form: TensorMapForm, known: Mapping[str, Value]) -> str:
    item = ELEMENT_BYTES[form.dtype]
    if form.axes:
        unused = max(UNIT_BYTES // item, 1)
        strides = [_stride(program, form.tensor, axis, unused) for axis in form.axes[1:]]
    else:
        strides = [cpp(stride, known) for stride in form.strides]
    parts = [
        _listed(cpp(size, known) for size in form.sizes),
        _listed(f"{stride} * {item}" for stride in strides),
        _listed(cpp(size, known) for size in form.box),
        str(SWIZZLES[int(form.swizzle_bytes(known))]),
        str(L2_PROMOTIONS[int(form.l2_promotion_bytes(known))]),
        str(FILLS[form.fill]),
    ]
    return f"{{{TYPES[form.dtype]}, {len(form.sizes)}, {', '.join(parts)}}}"


def _stride(program: Program, tensor: str, axis: int, unused: int) -> str:
    """In elements. The stride of an axis of one element is never used, and may be anything."""
    (argument,) = (item for item in program.operation.tensors if item.name == tensor)
    return f"({argument.shape[axis]} > 1 ? call.{tensor}.strides[{axis}] : {unused})"


def _listed(texts: Iterable[str]) -> str:
    return f"{{{', '.join(f'int64_t({text})' for text in texts)}}}"
