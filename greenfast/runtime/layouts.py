"""Where the tensors of a call may lie: the layouts that a kernel reads, and those of copies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from greenfast.runtime.operation import ELEMENT_BYTES, TensorArgument
from greenfast.runtime.program import (
    Program,
    Strides,
    TensorFacts,
    contiguous_strides,
    dtype_of,
    layout_fault,
)
from greenfast.search.devices.tensor_map import STRIDES_BELOW_BYTES, UNIT_BYTES
from greenfast.search.errors import UsageError


@dataclass(frozen=True)
class Alignment:
    """What a kernel asks of a tensor's address and of its strides, apart from the last one."""

    pointer_bytes: int
    stride_bytes: int | None  # None: it is dense
    strides_below_bytes: int | None = None  # None: any


def alignment(program: Program) -> dict[str, Alignment]:
    """The needs of a kernel by the tensor's name: its operation's, and those of its maps."""
    operation, needs = program.operation, {}
    mapped = {form.tensor for form in program.tensor_maps}
    for argument in operation.tensors:
        item = ELEMENT_BYTES[dtype_of(argument, program.compiled)]
        by_maps = argument.name in mapped
        stride_bytes = operation.stride_elements * item if argument.free_strides else None
        if stride_bytes is not None and by_maps:
            stride_bytes = math.lcm(stride_bytes, UNIT_BYTES)
        needs[argument.name] = Alignment(
            math.lcm(operation.pointer_bytes, UNIT_BYTES) if by_maps else operation.pointer_bytes,
            stride_bytes,
            STRIDES_BELOW_BYTES if by_maps else None,
        )
    return needs


def copies_for(
    program: Program, tensors: Mapping[str, TensorFacts], misaligned: frozenset[str]
) -> dict[str, tuple[TensorFacts, str]]:
    """The layouts of copies that the kernel can read, with the reasons why it needs them.

    Only tensors that it cannot read where they lie are copied; `misaligned` are the names of those
    whose addresses do not suit. A copy of an expanded tensor is expanded, too.
    """
    copies, needs = {}, alignment(program)
    for argument in program.operation.tensors:
        if (facts := tensors.get(argument.name)) is None:
            continue
        need = needs[argument.name]
        why = (
            misaligned_sentence(argument.name, need.pointer_bytes)
            if argument.name in misaligned
            else layout_fault(program.operation, argument, facts)
            or _map_fault(argument, facts, need)
        )
        if why:
            item = ELEMENT_BYTES[facts.dtype]
            step = max((need.stride_bytes or 0) // item, 1)
            copies[argument.name] = replace(facts, strides=_strides(argument, facts, step)), why
    return copies


def misaligned_sentence(name: str, pointer_bytes: int) -> str:
    return f"{name} begins at no multiple of {pointer_bytes} bytes"


def misaligned(pointer_bytes: int, addresses: Mapping[str, int]) -> frozenset[str]:
    """The tensors whose addresses do not fit."""
    return frozenset(name for name, address in addresses.items() if address % pointer_bytes)


def require_no_repeats(name: str, facts: TensorFacts) -> None:
    """UsageError for an output whose elements share memory, as those of an expanded tensor do."""
    for axis, (size, stride) in enumerate(zip(facts.shape, facts.strides, strict=True)):
        if size > 1 and stride == 0:
            raise UsageError(
                f"the output {name} has the stride 0 in dim {axis}, so its elements overlap",
                code="overlap",
                mend=f"pass a tensor that is not expanded as {name}",
            )


def _map_fault(argument: TensorArgument, facts: TensorFacts, need: Alignment) -> str:
    """Why the kernel's maps cannot describe a tensor that its operation allows."""
    if need.strides_below_bytes is None or need.stride_bytes is None:
        return ""
    for axis in sorted(argument.free_strides):
        stride_bytes = facts.strides[axis] * ELEMENT_BYTES[facts.dtype]
        if facts.shape[axis] > 1 and (
            stride_bytes % need.stride_bytes or stride_bytes >= need.strides_below_bytes
        ):
            return (
                f"{argument.name} has a stride of {stride_bytes:,} bytes in dim {axis}; the "
                f"kernel's tensor maps take multiples of {need.stride_bytes} bytes below 2**40"
            )
    return ""


def _strides(argument: TensorArgument, facts: TensorFacts, step: int) -> Strides:
    """Strides of a copy: in the tensor's memory order, and free ones multiples of `step` elements.

    Axes along which a tensor is expanded stay so.
    """
    rank = len(facts.shape)
    if rank == 0 or not argument.free_strides >= set(range(rank - 1)):
        return contiguous_strides(facts.shape)
    strides, size = [0] * rank, 1
    order = sorted(range(rank - 1), key=lambda axis: (-abs(facts.strides[axis]), axis))
    for axis in (rank - 1, *reversed(order)):
        is_expanded = axis < rank - 1 and facts.strides[axis] == 0 and not argument.output
        if not is_expanded:
            strides[axis] = size
            size = -(-size * max(facts.shape[axis], 1) // step) * step
    return tuple(strides)
