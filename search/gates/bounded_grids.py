"""A further case for a grid that does not grow with its work: it gives blocks several tiles.

A block of a persistent grid takes another tile when it has finished one. With a fixed number of
blocks, such as `grid = [264]`, no check has more tiles than blocks, so the code between two tiles
would never run. Where the number of multiprocessors bounds the grid, few_blocks.py runs the checks
with fewer blocks instead. A number in the launch file cannot be changed, since the source may
depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from greenfast.search.errors import SpecError
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.drawn import DimSizes, dim_sizes, is_allowed
from greenfast.search.oracle.problem import launches

TILES_A_BLOCK = 2
ITEMS_A_BLOCK = 8  # elements of the walked axes, whatever their tiles
ITEMS_A_THREAD = 2  # where an output has one axis
SEVERAL_TILES = {"band_rows", "band_columns", "heads"}  # names of checks for groups of tiles
LONGER = 4  # times: a grid that has so many more blocks grows with its work
UNNAMED_TILES = (256, 128, 64, 32, 16)  # rows that a submitted source may have, whatever it claims
MOST_FLOP = 2e7


def walked_cases(subject: Subject, cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases whose blocks have several tiles each; empty if `cases` has some, or if none can.

    A grid that grows with each axis of the outputs but the last one, or with their only one, has no
    such case. If tiles are too large for one, blocks at least have several rows.
    """
    kernel = subject.kernel
    free = dim_sizes(kernel, subject.compiled, cases) if cases else []
    walked = _walked_dims(kernel, free, has_one_axis=False)
    items_a_block = ITEMS_A_BLOCK
    if not walked:
        walked = _walked_dims(kernel, free, has_one_axis=True)
        items_a_block = ITEMS_A_THREAD * subject.point.threads_per_block
    found: tuple[Case, ...] = ()
    if not _is_bounded(subject, walked, cases):
        return found
    for tiles in _possible_tiles(subject, walked):

        def is_walked(case: Case, tiles: Mapping[str, int] = tiles) -> bool:
            blocks = _blocks(subject, case)
            return (
                _count(kernel, walked, case, {}) >= items_a_block * blocks > 0
                and _count(kernel, walked, case, tiles) >= TILES_A_BLOCK * blocks
            )

        if not any(map(is_walked, (*cases, *found))):
            case = _walked_case(kernel, cases, free, walked, is_walked)
            if case is not None:
                found += (replace(case, name="walked_on" if found else "walked"),)
    return found


def _is_bounded(subject: Subject, walked: Sequence[DimSizes], cases: Sequence[Case]) -> bool:
    """Whether blocks of the longest case have more than those of one a quarter as long."""
    kernel, shares = subject.kernel, []
    if not walked:
        return False
    for part in (LONGER, 1):
        sizes = {name: int(size) for name, size in cases[0].dims}
        sizes |= {dim.name: max(1, dim.largest // part) for dim in walked}
        case = replace(cases[0], dims=_complete(kernel, cases[0], sizes), tiles=())
        shares.append(_count(kernel, walked, case, {}) / max(1, _blocks(subject, case)))
    return shares[1] > 1.5 * shares[0]


def _walked_case(
    kernel: KernelSpec,
    cases: Sequence[Case],
    free: Sequence[DimSizes],
    walked: Sequence[DimSizes],
    is_walked: Callable[[Case], bool],
) -> Case | None:
    """One of the cases, grown until it is walked; None if each becomes too large."""
    bases = {case.dims: case for case in cases if _flop(kernel, case) > 0}
    by_flop = sorted(bases.values(), key=lambda case: _flop(kernel, case), reverse=True)
    others = {
        dim.name: (dim.multiple, min(int(dict(case.dims)[dim.name]) for case in cases))
        for dim in free
        if dim not in walked
    }
    by_flop[:1] = [narrow for base in by_flop[:1] for narrow in _narrowing(kernel, others, base)]
    for base in sorted(by_flop, key=lambda case: _flop(kernel, case), reverse=True):
        case = next(filter(is_walked, _growing(kernel, walked, base)), None)
        if (
            case is not None
            and _flop(kernel, case) <= MOST_FLOP
            and is_allowed(kernel, cases, case)
        ):
            return case
    return None


def _possible_tiles(subject: Subject, walked: Sequence[DimSizes]) -> list[dict[str, int]]:
    """Sizes of the blocks' tiles along walked dims: as named, unknown, and from large ones on."""
    if not walked:
        return []
    tiles = subject.point.tiles
    named: dict[str, int] = {}
    for check in subject.kernel.checks:
        for dim, size in check.dims:
            for tile in size.names & tiles.keys() - SEVERAL_TILES:
                named[dim] = max(named.get(dim, 1), int(tiles[tile]))
    possible = [named, {}]
    if is_submitted(subject.template.name):
        possible += ({**named, walked[-1].name: rows} for rows in UNNAMED_TILES)
    return possible


def _walked_dims(
    kernel: KernelSpec, free: Sequence[DimSizes], *, has_one_axis: bool
) -> list[DimSizes]:
    """The free dims of the outputs' axes but their last, in their order; or of their only one."""
    shapes = [argument.shape for argument in kernel.arguments if argument.kind == "output"]
    if has_one_axis:
        names = dict.fromkeys(shape[0] for shape in shapes if len(shape) == 1)
        last: set[str] = set()
    else:
        # Not attention's LSE [B, H, S_q]: S_q is the last axis there, and an output's rows.
        rank = max(map(len, shapes), default=0)
        largest = [shape for shape in shapes if len(shape) == rank > 0]
        names = dict.fromkeys(name for shape in largest for name in shape[:-1])
        last = {shape[-1] for shape in largest}
    return [dim for name in names for dim in free if dim.name == name and name not in last]


def _count(
    kernel: KernelSpec, walked: Sequence[DimSizes], case: Case, tiles: Mapping[str, int]
) -> int:
    """How many tiles the walked dims have; elements where no tile is named."""
    values = case.values(kernel)
    return prod(-(-int(values[dim.name]) // tiles.get(dim.name, 1)) for dim in walked)


def _blocks(subject: Subject, case: Case) -> int:
    """The blocks of the largest launch; 0 if the case cannot be launched."""
    try:
        plans = launches(subject.template, {**case.values(subject.kernel), **subject.point.values})
    except SpecError:
        return 0
    return max((prod(plan.grid) for plan in plans), default=0)


def _narrowing(
    kernel: KernelSpec, others: Mapping[str, tuple[int, int]], base: Case
) -> Iterator[Case]:
    """The base, then with its other dims halved again and again.

    `others`: the divisor and the smallest size of each dim that no block walks.
    """
    sizes = {name: int(size) for name, size in base.dims}
    narrow = base
    while True:
        yield narrow
        for name, (multiple, smallest) in others.items():
            half = sizes[name] // 2 // multiple * multiple
            if half >= max(smallest, multiple):
                sizes[name] = half
        dims = _complete(kernel, base, sizes)
        if dims == narrow.dims:
            return
        narrow = replace(base, dims=dims)


def _growing(kernel: KernelSpec, walked: Sequence[DimSizes], base: Case) -> Iterator[Case]:
    """The base with a quarter more of an outer axis each time, then of the next one."""
    sizes = {name: int(size) for name, size in base.dims}
    for dim in walked:
        while (longer := _longer(dim, sizes[dim.name])) <= dim.largest:
            sizes[dim.name] = longer
            yield replace(base, dims=_complete(kernel, base, sizes, dim.name), tiles=())


def _complete(kernel: KernelSpec, base: Case, sizes: dict[str, int], grown: str = "") -> Items:
    """The sizes, where dims that have their default in the base follow it, but for a grown one."""
    known = dict(base.dims)
    return tuple(
        (
            dim.name,
            int(dim.default(sizes))
            if dim.default is not None
            and dim.name != grown
            and known[dim.name] == dim.default(known)
            else sizes[dim.name],
        )
        for dim in kernel.dims
    )


def _longer(dim: DimSizes, size: int) -> int:
    return max(size + dim.multiple, size * 5 // 4 // dim.multiple * dim.multiple)


def _flop(kernel: KernelSpec, case: Case) -> float:
    return case.flop(kernel)
