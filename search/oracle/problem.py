"""A case laid out in memory: one byte image for each tensor, with strides, gaps full of NaN, and the argument list."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np

from greenfast.search.devices.clusters import ALONE, misfit
from greenfast.search.errors import SpecError
from greenfast.search.kernels.spec import Argument, KernelSpec, TemplateSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.reference import CaseData
from greenfast.search.space.space import Resolved

DTYPES = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
}  # codes of a format that one of the kernel's options names
POISON = 0xFF  # NaN in fp16, bf16, fp32, e4m3 and e5m2


@dataclass(frozen=True)
class Tensor:
    """A tensor's place in its image; strides in elements."""

    name: str
    role: str  # "input" | "output"
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    image: np.ndarray  # uint8, all bytes; gaps and outputs hold POISON
    filled: bool = False  # an output, too, starts as its image: kernels that add to it

    @cached_property
    def digest(self) -> str:
        """Of the image, which is read-only."""
        return hashlib.sha256(self.image.data).hexdigest()

    @property
    def starts_poisoned(self) -> bool:
        return self.role != "input" and not self.filled

    def view(self, image: np.ndarray) -> np.ndarray:
        """The tensor's elements inside `image`, in logical order."""
        steps = tuple(stride * self.dtype.itemsize for stride in self.strides)
        return np.ndarray(
            self.shape, self.dtype, buffer=image.data if image.size else b"", strides=steps
        )

    def gaps_changed(self, image: np.ndarray) -> int:
        """How many bytes outside the tensor's elements no longer hold what was put there."""
        if image.size == math.prod(self.shape) * self.dtype.itemsize:
            return 0  # its elements are all there is
        mask = np.zeros(image.size, np.uint8)
        if mask.size and all(self.shape):
            self.view(mask).view(np.dtype(f"u{self.dtype.itemsize}"))[...] = (
                -1 % 256**self.dtype.itemsize
            )
        return int(np.count_nonzero((image != self.image) & (mask == 0)))


@dataclass(frozen=True)
class Scalar:
    dtype: str
    value: int | float


@dataclass(frozen=True)
class WorkspaceMemory:
    name: str
    bytes: int
    zero_fill: bool


@dataclass(frozen=True)
class LaunchPlan:
    """One launch with its numbers."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_dynamic_bytes: int
    arguments: tuple[Tensor | Scalar | WorkspaceMemory | None, ...] | None = (
        None  # None: those of the problem
    )
    cluster: tuple[int, int, int] = ALONE  # in blocks; divides the grid


@dataclass(frozen=True)
class Problem:
    """Everything that a target needs to run a case: tensors, workspaces, arguments in order, launches."""

    case: Case
    tensors: tuple[Tensor, ...]
    workspaces: tuple[WorkspaceMemory, ...]
    arguments: tuple[Tensor | Scalar | WorkspaceMemory | None, ...]  # None: a null pointer
    launches: tuple[LaunchPlan, ...]
    work_flop: float  # of the operation, however it is written
    work_bytes: float  # compulsory traffic
    mode: str = "auto"  # how a measured time finds the caches: "auto" | "hot" | "cold"


def lay_out(
    kernel: KernelSpec,
    template: TemplateSpec,
    point: Resolved,
    case: Case,
    answer: CaseData,
    *,
    optional_outputs: bool = True,
) -> Problem:
    """Lay `case` out; without `optional_outputs` those arguments are null pointers."""
    values = case.values(kernel)
    tensors: dict[str, Tensor] = {}
    arguments: list[Tensor | Scalar | WorkspaceMemory | None] = []
    for one in kernel.arguments:
        if one.kind == "scalar":
            if one.stride_of is not None:
                owner = tensors[one.stride_of[0]]
                arguments.append(Scalar(one.dtype, owner.strides[one.stride_of[1]]))
            else:
                arguments.append(Scalar(one.dtype, one.value(values)))
        else:
            if (
                one.name,
                case.layout,
            ) not in answer.laid_out:  # the same for every candidate that runs this case
                answer.laid_out[one.name, case.layout] = _tensor(kernel, one, case, answer)
            tensors[one.name] = answer.laid_out[one.name, case.layout]
            arguments.append(None if one.optional and not optional_outputs else tensors[one.name])
    launch_values = {**values, **point.values}
    workspaces = tuple(
        WorkspaceMemory(one.name, int(one.bytes(launch_values)), one.zero_fill)
        for one in template.scratch(launch_values)
    )
    used = tuple(
        tensor for tensor in tensors.values() if any(tensor is argument for argument in arguments)
    )
    return Problem(
        case,
        used,
        workspaces,
        (*arguments, *workspaces),
        launches(template, launch_values),
        float(kernel.work_flop(values)),
        float(kernel.work_bytes(values)),
    )


def launches(template: TemplateSpec, values: dict) -> tuple[LaunchPlan, ...]:
    """The template's launches for concrete values; a grid with a zero in it is not launched.

    SpecError for a grid that is no multiple of its cluster.
    """
    found = []
    for one in template.launched(values):
        grid, block, cluster = (
            tuple(int(size(values)) for size in sizes)
            for sizes in (one.grid, one.block, one.cluster)
        )
        if all(grid):
            if sentence := misfit(cluster, grid):
                raise SpecError(
                    f"template {template.name}, launch {one.entry}: {sentence}",
                    code="bad_cluster",
                    mend="round the grid up: round_up(ceil_div(N, tile), 2) for a cluster of 2",
                )
            found.append(
                LaunchPlan(
                    one.entry, grid, block, int(one.smem_dynamic_bytes(values)), cluster=cluster
                )
            )
    return tuple(found)


def _tensor(kernel: KernelSpec, argument: Argument, case: Case, answer: CaseData) -> Tensor:
    options = dict(case.options)
    dtype = DTYPES[str(options["dtype"]) if argument.dtype == "dtype" else argument.dtype]
    shape = tuple(int(dict(case.dims)[name]) for name in argument.shape)
    layout = "contiguous" if argument.contiguous else case.layout
    # Each tensor is padded by another amount, so that one tensor's strides used for another show.
    padding = kernel.stride_elements * (1 + kernel.arguments.index(argument))
    strides, elements = _strides(shape, layout, padding, kernel.stride_elements)
    image = np.full(elements * dtype.itemsize, POISON, np.uint8)
    found = Tensor(argument.name, argument.kind, dtype, shape, strides, image)
    if argument.kind == "input" and all(shape):
        found.view(image)[...] = answer.inputs[argument.name]
    image.flags.writeable = False
    return found


def _strides(
    shape: tuple[int, ...], layout: str, padding: int, multiple: int
) -> tuple[tuple[int, ...], int]:
    """Element strides and the number of elements of the image.

    `padded` adds `padding` elements to a row, and one whole row, head ... at each level with as many elements again:
    NaN rows and heads, and no two tensors with the same strides; strides are multiples of `multiple`.
    `bshd` keeps [B, S, H, D] in memory for a logical [B, H, S, D].
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
