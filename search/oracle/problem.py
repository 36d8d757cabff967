"""A case laid out in memory: a byte image for each tensor, its strides, and the argument list."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from greenfast.search.devices.clusters import ALONE, Shape, misfit
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.kernels.spec import Argument, KernelSpec, TemplateSpec
from greenfast.search.oracle import far
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.storage import DTYPES, SCALAR_FORMATS
from greenfast.search.oracle.tensor_maps import tensor_maps
from greenfast.search.space.space import Resolved

POISON = 0xFF  # NaN in fp16, bf16, fp32, e4m3 and e5m2
# Whole numbers have no NaN. Kernels often write -1 and the largest number, and never this one.
WHOLE_POISON = 0xA5


def poison_of(dtype: np.dtype) -> int:
    """Each byte of an output, and of the gaps of a tensor, before a run."""
    return WHOLE_POISON if dtype.kind in "iu" else POISON


@dataclass(frozen=True)
class Tensor:
    """A tensor and its place in its image; strides are in elements."""

    name: str
    role: str  # "input" | "output"
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    image: np.ndarray  # uint8; gaps and outputs hold the poison of their type
    filled: bool = False  # an output that starts as its image, for kernels that add to it
    spread: far.Spread | None = None  # where a target lays its parts out; None: as in the image

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the image, which is read-only."""
        return hashlib.sha256(self.image.data).hexdigest()

    @property
    def passed_strides(self) -> tuple[int, ...]:
        """The strides that a kernel is given, in elements."""
        if self.spread is None:
            return self.strides
        step = self.spread.distance_bytes // self.dtype.itemsize
        outer = tuple(
            step * math.prod(self.shape[axis + 1 : self.spread.axis + 1])
            for axis in range(self.spread.axis + 1)
        )
        return outer + self.strides[self.spread.axis + 1 :]

    @property
    def starts_poisoned(self) -> bool:
        return self.role != "input" and not self.filled

    def view(self, image: np.ndarray) -> np.ndarray:
        """The tensor's elements inside `image` (uint8), in logical order and with its shape."""
        steps = tuple(stride * self.dtype.itemsize for stride in self.strides)
        return np.ndarray(
            self.shape, self.dtype, buffer=image.data if image.size else b"", strides=steps
        )

    def gaps_changed(self, image: np.ndarray) -> int:
        """The number of bytes outside the tensor's elements that differ from the original image."""
        owned = self.owned_bytes
        return 0 if owned is None else int(np.count_nonzero((image != self.image) & ~owned))

    @cached_property
    def owned_bytes(self) -> np.ndarray | None:
        """A mask of the image's bytes that belong to the tensor's elements; None: all of them."""
        if self.image.size == math.prod(self.shape) * self.dtype.itemsize:
            return None
        mask = np.zeros(self.image.size, np.uint8)
        if mask.size and all(self.shape):
            self.view(mask).view(np.dtype(f"u{self.dtype.itemsize}"))[...] = (
                -1 % 256**self.dtype.itemsize
            )
        return mask.astype(bool)


@dataclass(frozen=True)
class Scalar:
    dtype: str
    value: int | float


@dataclass(frozen=True)
class Packed:
    """A value of any type by its bytes.

    `pointers` are the offsets of pointers to tensors in it. The bytes there say how far behind the
    tensor's begin each points. `maps` are the offsets of tensor maps in it.
    """

    data: bytes
    pointers: tuple[tuple[int, str], ...] = ()
    maps: tuple[tuple[int, TensorMap], ...] = ()


@dataclass(frozen=True)
class WorkspaceMemory:
    name: str
    bytes: int
    zero_fill: bool


# None: a null pointer
GivenArgument = Tensor | Scalar | Packed | WorkspaceMemory | TensorMap | None
Arguments = tuple[GivenArgument, ...]


@dataclass(frozen=True)
class LaunchPlan:
    """One launch with concrete sizes."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_dynamic_bytes: int
    arguments: Arguments | None = None  # None: the problem's
    cluster: tuple[int, int, int] = ALONE  # in blocks; divides the grid
    # Arguments that the kernel promises not to write, though it has another way to their buffers.
    read_only: tuple[int, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Everything that a target needs to run a case."""

    case: Case
    tensors: tuple[Tensor, ...]
    workspaces: tuple[WorkspaceMemory, ...]
    arguments: Arguments  # in order: the kernel's, then scalars, workspaces and tensor maps
    launches: tuple[LaunchPlan, ...]
    work_flop: float  # of the operation, independent of the template
    work_bytes: float  # compulsory traffic
    mode: str = "auto"  # the state of the caches when timing: "auto" | "hot" | "cold"
    ends_only: bool = False  # an emulator runs the first and the last blocks of each launch
    pointer_bytes: int = 256  # every tensor starts at a multiple of it, and may at no larger one


def lay_out(
    kernel: KernelSpec,
    template: TemplateSpec,
    point: Resolved,
    case: Case,
    data: CaseData,
    *,
    optional_outputs: bool = True,
    unread_inputs: bool = False,
) -> Problem:
    """The problem that `case` poses to one point of `template`.

    Without `optional_outputs` their arguments are null pointers; so are those of inputs that the
    case's options leave unread, unless `unread_inputs`. Raises SpecError when a launch's
    grid is not a multiple of its cluster, or for a tensor map that no GPU has.
    """
    values = case.values(kernel)
    tensors: dict[str, Tensor] = {}
    arguments: list[GivenArgument] = []
    scalars: dict[str, Value] = {}
    for argument in kernel.arguments:
        if argument.kind == "scalar":
            scalar = _scalar(argument, tensors, values)
            scalars[argument.name] = scalar.value
            arguments.append(scalar)
            continue
        key = argument.name, case.layout
        if key not in data.laid_out:  # every candidate that runs this case shares the tensor
            data.laid_out[key] = _tensor(kernel, argument, case, data)
        tensors[argument.name] = data.laid_out[key]
        absent = argument.optional and not optional_outputs
        absent |= argument.is_left_out(values) and not unread_inputs
        arguments.append(None if absent else tensors[argument.name])
    launch_values = {**values, **point.values}
    arguments += [
        _number(scalar.dtype, scalar.value, launch_values)
        for scalar in template.own_scalars(launch_values)
    ]
    workspaces = tuple(
        WorkspaceMemory(workspace.name, workspace.bytes.whole(launch_values), workspace.zero_fill)
        for workspace in template.scratch(launch_values)
    )
    used = tuple(
        tensor for tensor in tensors.values() if any(tensor is argument for argument in arguments)
    )
    strides = {tensor.name: tensor.passed_strides for tensor in tensors.values()}
    maps = tensor_maps(template, launch_values, strides, scalars)
    return Problem(
        case,
        used,
        workspaces,
        (*arguments, *workspaces, *maps),
        launches(template, launch_values),
        float(kernel.work_flop.amount(values)),
        float(kernel.work_bytes.amount(values)),
        pointer_bytes=kernel.pointer_bytes,
    )


def check_arguments(kernel: KernelSpec, values: Mapping[str, Value]) -> None:
    """SpecError where an expression of [[arguments]] has no suitable value for these sizes."""
    for argument in kernel.arguments:
        argument.is_left_out(values)
        if argument.value is not None:
            _number(argument.dtype, argument.value, values)


def _scalar(
    argument: Argument, tensors: Mapping[str, Tensor], values: Mapping[str, Value]
) -> Scalar:
    if argument.stride_of is not None:
        owner, axis = argument.stride_of
        return Scalar(argument.dtype, tensors[owner].passed_strides[axis])
    assert argument.value is not None, "the catalogue gives every scalar a value or a stride"
    return _number(argument.dtype, argument.value, values)


def _number(dtype: str, value: Expression, values: Mapping[str, Value]) -> Scalar:
    number = value(values)
    try:
        struct.pack(SCALAR_FORMATS[dtype], number)
    except (struct.error, OverflowError):
        raise SpecError(
            f"{value.where}: {value.text!r} gives {number!r}, which is not of type {dtype}",
            code="bad_expression",
            mend=f"a number that {dtype} can hold; // and ceil_div give whole numbers",
        ) from None
    assert not isinstance(number, str)  # no format takes one
    return Scalar(dtype, number)


def launches(template: TemplateSpec, values: Mapping[str, Value]) -> tuple[LaunchPlan, ...]:
    """The template's launches for concrete values; those with a zero in their grid are left out.

    Raises SpecError when a grid is negative, or not a multiple of its cluster.
    """
    plans = []
    for launch in template.launched(values):
        grid, cluster = _shape(launch.grid, values), _shape(launch.cluster, values)
        if min(grid) < 0:
            raise SpecError(
                f"template {template.name}, launch {launch.entry}: a grid of "
                f"{' x '.join(map(str, grid))} blocks",
                code="bad_grid",
                mend="make it 0 or more at every size, for example max(N - 1, 0)",
            )
        if not all(grid):
            continue
        if sentence := misfit(cluster, grid):
            raise SpecError(
                f"template {template.name}, launch {launch.entry}: {sentence}",
                code="bad_cluster",
                mend="round the grid up: round_up(ceil_div(N, tile), 2) for a cluster of 2",
            )
        block, smem_bytes = _shape(launch.block, values), launch.smem_dynamic_bytes.whole(values)
        plans.append(LaunchPlan(launch.entry, grid, block, smem_bytes, cluster=cluster))
    return tuple(plans)


def _shape(sizes: tuple[Expression, Expression, Expression], values: Mapping[str, Value]) -> Shape:
    x, y, z = sizes
    return x.whole(values), y.whole(values), z.whole(values)


def _tensor(kernel: KernelSpec, argument: Argument, case: Case, data: CaseData) -> Tensor:
    options = dict(case.options)
    dtype = DTYPES[str(options["dtype"]) if argument.dtype == "dtype" else argument.dtype]
    shape = tuple(int(dict(case.dims)[name]) for name in argument.shape)
    spread = far.spread_of(kernel, argument, case, shape, dtype.itemsize)
    layout = "contiguous" if argument.contiguous or far.axis_of(case) is not None else case.layout
    strides, elements = layout_strides(kernel, argument, shape, layout)
    image = np.full(elements * dtype.itemsize, poison_of(dtype), np.uint8)
    tensor = Tensor(argument.name, argument.kind, dtype, shape, strides, image, spread=spread)
    if argument.kind == "input" and all(shape):
        tensor.view(image)[...] = data.inputs[argument.name]
    image.flags.writeable = False
    return tensor


def layout_strides(
    kernel: KernelSpec, argument: Argument, shape: tuple[int, ...], layout: str
) -> tuple[tuple[int, ...], int]:
    """Element strides of the argument in a layout, and the number of elements of its image."""
    # The padding differs between tensors, so that using another tensor's strides is detected.
    padding = kernel.stride_elements * (1 + kernel.arguments.index(argument))
    return _strides(shape, layout, padding, kernel.stride_elements)


def _strides(
    shape: tuple[int, ...], layout: str, padding: int, multiple: int
) -> tuple[tuple[int, ...], int]:
    """Element strides, and the number of elements of the image.

    `padded` adds `padding` elements to each row, and at each outer level one whole row, head, and
    so on, plus `padding` elements. These gaps hold NaN, and no two tensors have the same strides.
    Strides are multiples of `multiple`. `bshd` stores a logical [B, H, S, D] as [B, S, H, D].
    """
    order = list(range(len(shape)))
    if layout == "bshd" and len(shape) == 4:
        order = [0, 2, 1, 3]
    strides, step = [0] * len(shape), 1
    for position, axis in enumerate(reversed(order)):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if layout == "padded" and position < len(shape) - 1:
            step += padding if position == 0 else step // max(shape[axis], 1) + padding
            step = -(-step // multiple) * multiple
    return tuple(strides), step
