"""A compiled candidate as calls need it: its text, machine code, launches and scratch memory."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from greenfast.runtime.operation import (
    ELEMENT_BYTES,
    LARGEST_DIM,
    SCALAR_FORMATS,
    Argument,
    Operation,
    ScalarArgument,
    TensorArgument,
    completed,
    sizes,
)
from greenfast.search.devices.tensor_map import ELEMENT_BYTES as MAP_BYTES_OF
from greenfast.search.devices.tensor_map import UNIT_BYTES, TensorMap, misfit
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.text import filled

LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_SCRATCH_BYTES = 16 * 2**30
MOST_THREADS = 1024
LARGEST_UNUSED_STRIDE = 2**31 - 1  # elements; any scalar of a launch holds it
POINTER_BYTES = 8
MAP_BYTES = 128  # and the alignment that is used here; the driver asks for 64
LARGEST_SHARED_BYTES = 2**20  # more than any GPU has; the driver refuses what its GPU lacks

Sizes = tuple[int, int, int]
Strides = tuple[int, ...]


@dataclass(frozen=True)
class LaunchForm:
    """One launch; its sizes are expressions over dims, options, parameters and locals."""

    entry: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    smem_dynamic_bytes: Expression
    cluster: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class ScratchForm:
    """Scratch memory, passed after the operation's arguments."""

    name: str
    bytes: Expression
    zero_fill: bool


@dataclass(frozen=True)
class TensorMapForm:
    """A tensor map that every launch takes after scratch memory; axes are innermost first."""

    name: str
    tensor: str
    dtype: str
    sizes: tuple[Expression, ...]  # elements
    axes: tuple[int, ...]  # of the tensor, whose strides they have; empty if `strides` are given
    strides: tuple[Expression, ...]  # elements, of the axes after the first
    box: tuple[Expression, ...]
    swizzle_bytes: Expression
    fill: str
    l2_promotion_bytes: Expression


@dataclass(frozen=True)
class Measured:
    """A recorded time of a program on a workload, and the best of the others beside it."""

    workload: str
    time_us: float | None = None
    peer: str | None = None
    ratio_to_peer: float | None = None


@dataclass(frozen=True, repr=False)
class Program:
    """One kernel of a bundle."""

    operation: Operation
    template: str
    source_digest: str
    source: str
    compiled: Mapping[str, Value]  # compile-time dims and options
    parameters: Mapping[str, Value]
    # Compile-time values, parameters, locals and sm_count, for the expressions of launches. They
    # stay those of the GPU that the kernel was checked on.
    point: Mapping[str, Value]
    launches: tuple[LaunchForm, ...]
    scratch: tuple[ScratchForm, ...] = ()
    tensor_maps: tuple[TensorMapForm, ...] = ()
    scalars: tuple[ScalarArgument, ...] = ()  # of its template, after the operation's arguments
    cubins: Mapping[str, bytes] = field(default_factory=dict)  # by architecture, "sm_90"
    measured: tuple[Measured, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)  # that the emulator renders from
    arch: str = ""  # that it was compiled for; with the suffix `a`, it runs nowhere else

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def name(self) -> str:
        return f"{self.template} {self.source_digest[:12]}"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The operation's arguments and the template's scalars; scratch memory follows."""
        return (*self.operation.arguments, *self.scalars)

    @property
    def argument_bytes(self) -> tuple[int, ...]:
        """The size of each argument that its launches pass, in order."""
        return (
            *(
                struct.calcsize(SCALAR_FORMATS[item.dtype])
                if isinstance(item, ScalarArgument)
                else POINTER_BYTES
                for item in self.arguments
            ),
            *(POINTER_BYTES for _ in self.scratch),
            *(MAP_BYTES for _ in self.tensor_maps),
        )

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the source and of all machine code, under which modules are kept."""
        digest = hashlib.sha256(self.source_digest.encode())
        for arch in sorted(self.cubins):
            digest.update(arch.encode() + hashlib.sha256(self.cubins[arch]).digest())
        return digest.hexdigest()


@dataclass(frozen=True)
class TensorFacts:
    """A tensor without its memory; strides are in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: Strides


@dataclass(frozen=True)
class Launch:
    entry: str
    grid: Sizes
    block: Sizes
    smem_dynamic_bytes: int


@dataclass(frozen=True)
class Geometry:
    """Everything of a call but addresses: launches, the argument list, outputs and scratch."""

    launches: tuple[Launch, ...]
    # In order: the name of a tensor or of scratch memory, the packed bytes of a scalar, or a map.
    arguments: tuple[str | bytes | TensorMap, ...]
    outputs: Mapping[str, TensorFacts]
    scratch_bytes: tuple[tuple[str, int, bool], ...]  # name, bytes, zero-filled before each call
    values: Mapping[str, Value]


def mismatch(program: Program, dtypes: Mapping[str, str], values: Mapping[str, Value]) -> str:
    """Why the compile-time values of a call are not the program's; empty when they are."""
    for name, value in program.compiled.items():
        if name in values and values[name] != value:
            return f"the kernel is compiled for {name}={value}, and the call has {values[name]}"
    for argument in program.operation.tensors:
        if argument.name in dtypes:
            dtype = dtype_of(argument, program.compiled)
            if dtypes[argument.name] != dtype:
                return f"{argument.name} is {dtypes[argument.name]}; the kernel takes {dtype}"
    return ""


def dtype_of(argument: TensorArgument, compiled: Mapping[str, Value]) -> str:
    return str(compiled["dtype"]) if argument.dtype == "dtype" else argument.dtype


def geometry(
    program: Program,
    tensors: Mapping[str, TensorFacts],
    constants: Mapping[str, Value],
    *,
    without: frozenset[str] = frozenset(),
    output_strides: Mapping[str, Strides] | None = None,
) -> Geometry:
    """The launches for these inputs; UsageError with the reason when the kernel cannot take them.

    Null pointers are passed for optional outputs named in `without`, and for inputs that `tensors`
    lacks and the kernel does not read. `tensors` may hold outputs, too; those that it lacks get
    `output_strides`, or are contiguous.
    """
    operation = program.operation
    tensors = _with_used_strides(operation, tensors)
    without = without | (operation.unread(program.compiled) - tensors.keys())
    values = complete_sizes(operation, tensors, program.compiled)
    why = mismatch(program, {name: facts.dtype for name, facts in tensors.items()}, values)
    if why:
        raise UsageError(why, code="other_kernel")
    values = operation.constants_of({**values, **program.compiled}, constants)
    for requirement, because in operation.requirements:
        if not requirement(values):
            raise UsageError(filled(because, values), code="bad_shape")
    everything = _with_outputs(program, tensors, values, output_strides or {}, without)
    for argument in operation.tensors:
        facts = everything.get(argument.name)
        if facts is not None and (why := layout_fault(operation, argument, facts)):
            raise UsageError(why, code="bad_strides")
    launch_values = {**program.point, **values}
    scratch = tuple(
        (form.name, _whole(form.bytes, launch_values), form.zero_fill) for form in program.scratch
    )
    if any(amount < 0 for _, amount, _ in scratch):
        raise UsageError(
            "the kernel asks for scratch memory of less than 0 bytes", code="bad_launch"
        )
    if sum(amount for _, amount, _ in scratch) > LARGEST_SCRATCH_BYTES:
        raise UsageError(
            f"the kernel needs more than {LARGEST_SCRATCH_BYTES >> 30} GiB of scratch memory here",
            code="too_large",
        )
    return Geometry(
        tuple(filter(None, (_launch(form, launch_values) for form in program.launches))),
        (
            *_arguments(program, everything, launch_values, without),
            *_tensor_maps(program, everything, launch_values),
        ),
        {
            argument.name: everything[argument.name]
            for argument in operation.tensors
            if argument.output and argument.name not in without
        },
        scratch,
        values,
    )


def complete_sizes(
    operation: Operation, tensors: Mapping[str, TensorFacts], compiled: Mapping[str, Value]
) -> dict[str, Value]:
    """Every dim; those that no tensor has are a kernel's `compiled` values, or by default."""
    values: dict[str, Value] = {
        dim.name: compiled[dim.name] for dim in operation.unseen_dims if dim.name in compiled
    }
    shapes = {name: facts.shape for name, facts in tensors.items()}
    values = completed(operation, {**values, **sizes(operation, shapes)})
    for dim in operation.dims:
        if dim.name not in values:
            raise _unknown_size(operation, dim.name)
        smallest = 0 if dim.name in operation.empty_dims else 1
        if not dim.values and not smallest <= int(values[dim.name]) <= LARGEST_DIM:
            raise UsageError(
                f"{dim.name}={values[dim.name]} is not between {smallest} and {LARGEST_DIM}",
                code="bad_shape",
            )
        if dim.values and int(values[dim.name]) not in dim.values:
            known = ", ".join(map(str, sorted(dim.values)))
            raise UsageError(
                f"{operation.name} has no {dim.name}={values[dim.name]}; it takes {known}",
                code="bad_shape",
            )
    return values


def _unknown_size(operation: Operation, dim: str) -> UsageError:
    outputs = [tensor.name for tensor in operation.tensors if tensor.output and dim in tensor.shape]
    return UsageError(
        f"no input has the dim {dim} of {operation.name}",
        code="bad_shape",
        mend=_how_to_tell(operation, dim, outputs),
    )


def _how_to_tell(operation: Operation, dim: str, outputs: Sequence[str]) -> str:
    ways = [f"pass an output that has it: {outputs[0]}="] if outputs else []
    if any(other.name == dim for other in operation.unseen_dims):
        ways.append(f"give the size itself: {dim}=")
    return ", or ".join(ways)


def _with_outputs(
    program: Program,
    tensors: Mapping[str, TensorFacts],
    values: Mapping[str, Value],
    output_strides: Mapping[str, Strides],
    without: frozenset[str],
) -> dict[str, TensorFacts]:
    """All tensors; those left out are contiguous, since their strides may be passed, too."""
    everything = dict(tensors)
    for argument in program.operation.tensors:
        if argument.name in everything:
            continue
        if not argument.output and argument.name not in without:
            raise UsageError(f"the input {argument.name} is missing", code="missing_input")
        shape = tuple(int(values[dim]) for dim in argument.shape)
        strides = output_strides.get(argument.name) or contiguous_strides(shape)
        everything[argument.name] = TensorFacts(
            dtype_of(argument, program.compiled), shape, strides
        )
    return everything


def contiguous_strides(shape: tuple[int, ...]) -> Strides:
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def layout_fault(operation: Operation, argument: TensorArgument, facts: TensorFacts) -> str:
    """Why the strides cannot be passed to a kernel of the operation; empty when they can."""
    step = 1
    for axis in range(len(facts.shape) - 1, -1, -1):
        stride, size = facts.strides[axis], facts.shape[axis]
        if axis in argument.free_strides:
            if size > 1 and (stride < 0 or stride % operation.stride_elements):
                return (
                    f"{argument.name} has the stride {stride} in dim {axis}; the kernel takes "
                    f"multiples of {operation.stride_elements} elements from 0"
                )
            if argument.output and size > 1 and stride == 0:
                return f"{argument.name} is an output, and its elements overlap in dim {axis}"
        elif size > 1 and stride != step:
            return f"{argument.name} has the stride {stride} in dim {axis}; the kernel takes {step}"
        step *= max(size, 1)
    return ""


def _with_used_strides(
    operation: Operation, tensors: Mapping[str, TensorFacts]
) -> dict[str, TensorFacts]:
    """The tensors with a stride that fits where an axis has one element, and so never uses it."""
    return {
        name: replace(
            facts,
            strides=tuple(
                _unused_stride(operation, stride, facts.dtype) if size == 1 else stride
                for size, stride in zip(facts.shape, facts.strides, strict=True)
            ),
        )
        for name, facts in tensors.items()
    }


def _unused_stride(operation: Operation, stride: int, dtype: str) -> int:
    item = ELEMENT_BYTES.get(dtype, 1)
    step = math.lcm(operation.stride_elements, max(UNIT_BYTES // item, 1))
    return stride if 0 <= stride <= LARGEST_UNUSED_STRIDE and stride % step == 0 else step


def _launch(form: LaunchForm, values: Mapping[str, Value]) -> Launch | None:
    grid, block = _three(form.grid, values), _three(form.block, values)
    smem = _whole(form.smem_dynamic_bytes, values)
    if not all(grid):
        return None
    if any(not 0 < size <= most for size, most in zip(grid, LARGEST_GRID, strict=True)):
        raise UsageError(f"a grid of {grid} blocks is more than CUDA launches", code="too_large")
    threads = block[0] * block[1] * block[2]
    if min(block) < 1 or threads > MOST_THREADS or not 0 <= smem <= LARGEST_SHARED_BYTES:
        raise UsageError(
            f"{form.entry} asks for blocks of {block} threads and {smem} bytes of shared memory",
            code="bad_launch",
        )
    if form.cluster:
        cluster = _three(form.cluster, values)
        if any(size < 1 for size in cluster) or any(
            blocks % size for blocks, size in zip(grid, cluster, strict=True)
        ):
            raise UsageError(
                f"a grid of {grid} blocks is not a multiple of the cluster {cluster}",
                code="bad_launch",
            )
    return Launch(form.entry, grid, block, smem)


def _three(forms: tuple[Expression, ...], values: Mapping[str, Value]) -> Sizes:
    x, y, z = (_whole(form, values) for form in forms)
    return x, y, z


def _whole(form: Expression, values: Mapping[str, Value]) -> int:
    """The expression as a whole number; UsageError when it gives something else."""
    try:
        return form.whole(values)
    except (SpecError, ValueError, TypeError, OverflowError) as error:
        why = error.message if isinstance(error, SpecError) else f"{form.text!r}: {error}"
        raise UsageError(f"the kernel cannot be launched: {why}", code="bad_launch") from None


def _arguments(
    program: Program,
    tensors: Mapping[str, TensorFacts],
    values: Mapping[str, Value],
    without: frozenset[str],
) -> tuple[str | bytes, ...]:
    packed: list[str | bytes] = []
    for argument in program.arguments:
        if isinstance(argument, ScalarArgument):
            packed.append(_scalar(argument, tensors, values))
        else:
            packed.append(b"\0" * 8 if argument.name in without else argument.name)
    packed += [form.name for form in program.scratch]
    return tuple(packed)


def _scalar(
    argument: ScalarArgument, tensors: Mapping[str, TensorFacts], values: Mapping[str, Value]
) -> bytes:
    number: Any
    if argument.stride_of is not None:
        owner, axis = argument.stride_of
        number = tensors[owner].strides[axis]
    else:
        assert argument.value is not None  # a scalar is a stride or a value
        number = argument.value(values)
    try:
        return struct.pack(SCALAR_FORMATS[argument.dtype], number)
    except (struct.error, OverflowError):
        raise UsageError(
            f"{argument.name}={number} does not fit into {argument.dtype}", code="too_large"
        ) from None


def _tensor_maps(
    program: Program, tensors: Mapping[str, TensorFacts], values: Mapping[str, Value]
) -> Iterator[TensorMap]:
    """The maps for these sizes and strides; UsageError when no GPU has such a map."""
    scalars = {
        argument.name: tensors[argument.stride_of[0]].strides[argument.stride_of[1]]
        if argument.stride_of is not None
        else values.get(argument.name, 0)
        for argument in program.operation.arguments
        if isinstance(argument, ScalarArgument)
        and (argument.stride_of is None or argument.stride_of[0] in tensors)
    }
    every = {**scalars, **values}
    for form in program.tensor_maps:
        item = MAP_BYTES_OF[form.dtype]
        strides = (
            _map_strides(tensors[form.tensor], form.axes[1:], item)
            if form.axes
            else [_whole(stride, every) for stride in form.strides]
        )
        tensor_map = TensorMap(
            form.name,
            form.tensor,
            form.dtype,
            tuple(max(_whole(size, values), 1) for size in form.sizes),
            tuple(stride * item for stride in strides),
            tuple(_whole(size, values) for size in form.box),
            _whole(form.swizzle_bytes, values),
            form.fill,
            _whole(form.l2_promotion_bytes, values),
        )
        if reason := misfit(tensor_map):
            raise UsageError(f"the tensor map {form.name}: {reason}", code="tensor_map")
        yield tensor_map


def _map_strides(facts: TensorFacts, axes: tuple[int, ...], item_bytes: int) -> list[int]:
    """Strides in elements. An axis of one element never uses its stride; it may be anything."""
    unused = max(UNIT_BYTES // item_bytes, 1)
    return [facts.strides[axis] if facts.shape[axis] > 1 else unused for axis in axes]


def bytes_of(facts: TensorFacts) -> int:
    """Bytes from the first element to the last, inclusive."""
    low, high = span_of(facts)
    return high - low


def span_of(facts: TensorFacts) -> tuple[int, int]:
    """The bytes that a tensor takes, from its first element's address. They may lie before it."""
    if not all(facts.shape):
        return 0, 0
    steps = [(size - 1) * stride for size, stride in zip(facts.shape, facts.strides, strict=True)]
    item = ELEMENT_BYTES.get(facts.dtype, 1)  # no kernel takes other types
    return (
        sum(step for step in steps if step < 0) * item,
        (sum(step for step in steps if step > 0) + 1) * item,
    )
