"""Layouts whose strides exceed 2^32 elements, without the memory in between.

A kernel that computes an offset in 32 bits is correct until a tensor holds 2^31 elements, and no
check is that large. Strides are arguments, though: the parts of a small tensor can lie far apart,
with nothing but addresses between them. A target that can reserve addresses without memory runs
these cases; a GPU would need the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.oracle.cases import Case

_LAYOUT = "strides beyond 32 bits along axis "
FARTHEST_ELEMENTS = 2**32 + 2**16  # of a tensor's last part from its first: no 32 bits hold that
STEP_BYTES = 4096  # distances are whole pages
LEAST_DISTANCE_BYTES = 2**24
MOST_PARTS = 640  # of one tensor


@dataclass(frozen=True)
class Spread:
    """The parts of a tensor with far strides: `parts` equal slices of its image, far apart.

    They are all places along axes 0 to `axis`; memory between them is never touched.
    """

    axis: int
    parts: int
    distance_bytes: int


def axis_of(case: Case) -> int | None:
    """The last axis with a far stride; None in other layouts."""
    return int(case.layout[len(_LAYOUT) :]) if case.layout.startswith(_LAYOUT) else None


def far_cases(kernel: KernelSpec, derived: Sequence[Case]) -> tuple[Case, ...]:
    """A case for the outermost stride and one for the stride of rows, where they are arguments."""
    cases = []
    for axis in _axes(kernel):
        hosts = sorted(
            (case for case in derived if _is_host(kernel, case, axis)),
            key=lambda case: (case.flop(kernel), case.seed),
        )
        if hosts:
            name = _moved(kernel, axis)[0].shape[axis]
            cases.append(replace(hosts[0], name=f"far_{name}", layout=f"{_LAYOUT}{axis}"))
    return tuple(cases)


def spread_of(
    kernel: KernelSpec, argument: Argument, case: Case, shape: tuple[int, ...], item_bytes: int
) -> Spread | None:
    """The positions of the parts of a tensor in a case with far strides; None: together."""
    axis = axis_of(case)
    if axis is None or argument not in _moved(kernel, axis) or not all(shape):
        return None
    parts = math.prod(shape[: axis + 1])
    if parts < 2:
        return None
    # The axis alone reaches far enough, or else all parts together do.
    steps = shape[axis] - 1 or parts - 1
    distance_bytes = max(FARTHEST_ELEMENTS * item_bytes // steps, LEAST_DISTANCE_BYTES)
    # Distances differ between tensors, so that using another tensor's strides is detected.
    pages = -(-distance_bytes // STEP_BYTES) + 1 + kernel.arguments.index(argument)
    return Spread(axis, parts, pages * STEP_BYTES)


def _moved(kernel: KernelSpec, axis: int) -> list[Argument]:
    """The tensors whose strides of axes 0 to `axis` are all arguments of the kernel."""
    strided = {argument.stride_of for argument in kernel.arguments}
    return [
        argument
        for argument in kernel.arguments
        if argument.kind != "scalar"
        and not argument.contiguous
        and len(argument.shape) > axis + 1
        and all((argument.name, outer) in strided for outer in range(axis + 1))
    ]


def _axes(kernel: KernelSpec) -> Iterator[int]:
    ranks = [len(argument.shape) for argument in kernel.arguments if argument.kind != "scalar"]
    deepest = max(ranks, default=0) - 2
    for axis in sorted({0, deepest}):
        if 0 <= axis <= deepest and _moved(kernel, axis):
            yield axis


def _is_host(kernel: KernelSpec, case: Case, axis: int) -> bool:
    """Whether the case has work, and each moved tensor two places along the axis, but few parts.

    With a single place, the stride is multiplied by 0 alone.
    """
    dims = dict(case.dims)
    shapes = [
        [int(dims[name]) for name in argument.shape[: axis + 1]]
        for argument in _moved(kernel, axis)
    ]
    places, parts = min(shape[-1] for shape in shapes), max(map(math.prod, shapes))
    return case.flop(kernel) > 0 and places > 1 and parts <= MOST_PARTS
