"""A further case for a grid that does not grow with its work: so long that blocks walk on.

A block of a persistent grid takes another tile when it has finished one. With a fixed number of
blocks, such as `grid = [264]`, no check has as many tiles, so that what a block does between two of
them would never run. Where the number of multiprocessors bounds the grid, few_blocks.py runs the
checks with fewer blocks instead. A number in the launch file cannot be changed, since the text may
know it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import log2, prod

from greenfast.search.errors import SpecError
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.drawn import DimSizes, dim_sizes, is_allowed
from greenfast.search.oracle.problem import launches

ITEMS_A_BLOCK = 8  # elements of the walked axes, at least; the text does not tell a tile's size
ENOUGH_ITEMS = 256  # two tiles of 128 rows
FAR_LONGER = 4  # times as long a case has more for each block, or the grid grows with its work
ITEMS_A_THREAD = 2  # where an output has one axis
MOST_FLOP = 2e7


def walked_cases(subject: Subject, cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases whose blocks have several tiles each; empty if some case has, or if none can.

    The first one has long rows. If its blocks may have a single tile each, a second one has as many
    rows as fit. A grid that grows with each axis of the outputs but the last one, or with their
    only one, has no such case.
    """
    kernel = subject.kernel
    free = dim_sizes(kernel, subject.compiled, cases) if cases else []
    walked = _walked_dims(kernel, free, has_one_axis=False)
    threads = 0
    if not walked:
        walked = _walked_dims(kernel, free, has_one_axis=True)
        threads = subject.point.threads_per_block
    items_a_block = ITEMS_A_THREAD * threads or ITEMS_A_BLOCK

    def items_of(case: Case) -> float:
        """A block's share."""
        blocks = _blocks(subject, case)
        return _items(kernel, walked, case) / blocks if blocks else 0.0

    def is_cheap(case: Case) -> bool:
        return _flop(kernel, case) <= MOST_FLOP

    most = max(map(items_of, cases), default=0.0)
    enough = ENOUGH_ITEMS if items_a_block == ITEMS_A_BLOCK else items_a_block
    bases = {case.dims: case for case in cases if _flop(kernel, case) > 0}.values()
    if not walked or not bases:
        return ()
    some, far = (
        _with_sizes(kernel, next(iter(bases)), {dim.name: dim.largest // part for dim in walked})
        for part in (FAR_LONGER, 1)
    )
    if most >= enough or items_of(far) < max(2 * items_of(some), items_a_block):
        return ()  # the grid grows with its work
    grown = [
        case
        for base in sorted(bases, key=lambda case: _flop(kernel, case), reverse=True)
        for case in takewhile(is_cheap, _growing(kernel, walked, base))
        if items_of(case) >= items_a_block and is_allowed(kernel, cases, case)
    ]
    if not grown:
        return ()
    first = grown[:1] if most < items_a_block else []
    longest = max(
        grown, key=lambda case: (int(log2(min(items_of(case), enough))), _flop(kernel, case))
    )
    if items_of(longest) < 2 * max([most, *map(items_of, first)]):
        return tuple(first)
    return (*first, replace(longest, name="walked_far"))


def _walked_dims(
    kernel: KernelSpec, free: Sequence[DimSizes], *, has_one_axis: bool
) -> list[DimSizes]:
    """The free dims of the outputs' axes but their last, in their order; or of their only one."""
    shapes = [argument.shape for argument in kernel.arguments if argument.kind == "output"]
    if has_one_axis:
        names = dict.fromkeys(shape[0] for shape in shapes if len(shape) == 1)
        last: set[str] = set()
    else:
        names = dict.fromkeys(name for shape in shapes for name in shape[:-1])
        last = {shape[-1] for shape in shapes if shape}
    return [dim for name in names for dim in free if dim.name == name and name not in last]


def _items(kernel: KernelSpec, walked: Sequence[DimSizes], case: Case) -> int:
    values = case.values(kernel)
    return prod(int(values[dim.name]) for dim in walked)


def _blocks(subject: Subject, case: Case) -> int:
    """The blocks of the largest launch; 0 if the case cannot be launched."""
    try:
        plans = launches(subject.template, {**case.values(subject.kernel), **subject.point.values})
    except SpecError:
        return 0
    return max((prod(plan.grid) for plan in plans), default=0)


def _growing(kernel: KernelSpec, walked: Sequence[DimSizes], base: Case) -> Iterator[Case]:
    """The base with a quarter more of an outer axis each time, then of the next one."""
    sizes: dict[str, int] = {}
    for dim in walked:
        sizes[dim.name] = int(dict(base.dims)[dim.name])
        while sizes[dim.name] < dim.largest:
            sizes[dim.name] = min(_longer(dim, sizes[dim.name]), dim.largest)
            yield _with_sizes(kernel, base, sizes)


def _with_sizes(kernel: KernelSpec, base: Case, changed: Mapping[str, int]) -> Case:
    """The base with other sizes of the walked dims; dims with a default follow them."""
    sizes = {**{name: int(size) for name, size in base.dims}, **changed}
    for dim in kernel.dims:
        if dim.default is not None and dim.name not in changed:
            sizes[dim.name] = int(dim.default(sizes))
    return replace(base, name="walked", dims=tuple(sizes.items()), tiles=())


def _longer(dim: DimSizes, size: int) -> int:
    return max(size + dim.multiple, size * 5 // 4 // dim.multiple * dim.multiple)


def _flop(kernel: KernelSpec, case: Case) -> float:
    return float(kernel.work_flop(case.values(kernel)))
