"""Cases of sizes that are whole multiples of the steps that a submitted source takes.

A kernel may be wrong exactly where nothing remains behind its last step: `N / step` full steps and
a tail that it always expects. Checks meet that for steps that are powers of two, and for the tiles
that an author names. These cases meet it for the odd factors of the block and of the numbers in the
text that look like tiles: a step of 96 x 8 elements needs a size of 3 x 256.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.drawn import (
    DimSizes,
    dim_sizes,
    is_allowed,
    padded_flop_of,
    usual_case,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d{2,4}(?![\w.])")
_TILE_UNIT = 8  # numbers that are no multiple of it are masks, counts and shifts rather than tiles


def tile_numbers(text: str) -> list[int]:
    """The decimal numbers of a text that may be sizes of tiles, in their order."""
    numbers = map(int, _NUMBER.findall(_COMMENT.sub(" ", text)))
    return list(dict.fromkeys(each for each in numbers if each and each % _TILE_UNIT == 0))


def multiple_cases(
    kernel: KernelSpec, compiled: Items, derived: Sequence[Case], numbers: Iterable[int]
) -> tuple[Case, ...]:
    """A case for each free run-time dim that has room for a multiple of the numbers' odd factors.

    Empty if all of them are powers of two. The other dims are a derived case's; one case is at most
    as much work as the largest of these.
    """
    numbers = list(numbers)
    if not derived:
        return ()
    padded_flop = padded_flop_of(kernel, derived)

    def work(case: Case) -> float:
        return padded_flop(case.dims, case.options)

    recipe, known = usual_case(derived).inputs, {case.dims for case in derived}
    by_work = sorted((case for case in derived if case.inputs == recipe), key=work)
    cases: list[Case] = []
    for dim in dim_sizes(kernel, compiled, derived):
        odd = _odd_multiple(numbers, dim.largest // _TILE_UNIT)
        if odd == 1 or dim.multiple % odd == 0:
            continue
        possible = (
            case
            for base in (by_work[len(by_work) // 2], by_work[0])
            for size in _sizes(dim, odd)
            if work(case := _with_size(kernel, base, dim.name, size)) <= work(by_work[-1])
            and case.dims not in known
            and is_allowed(kernel, derived, case)
        )
        cases += itertools.islice(possible, 1)
    return tuple(cases)


def _odd_multiple(numbers: Iterable[int], largest: int) -> int:
    """The common multiple of the numbers' odd parts; a part that makes it too large is left out."""
    odd = 1
    for number in numbers:
        common = math.lcm(odd, number // (number & -number))
        odd = common if common <= largest else odd
    return odd


def _sizes(dim: DimSizes, odd: int) -> Iterable[int]:
    """Multiples of `odd` by powers of two, the largest first, down to one that may be a step."""
    unit = math.lcm(odd, dim.multiple)
    size = unit << max((dim.largest // unit).bit_length() - 1, 0)
    while odd * _TILE_UNIT <= size <= dim.largest:
        yield size
        if size % (2 * unit):
            return
        size //= 2


def _with_size(kernel: KernelSpec, base: Case, name: str, size: int) -> Case:
    sizes = {**dict(base.dims), name: size}
    for dim in kernel.dims:
        if dim.name == name or dim.default is None:
            continue
        if dict(base.dims)[dim.name] == dim.default(dict(base.dims)):
            sizes[dim.name] = int(dim.default(sizes))
    dims = tuple((dim.name, sizes[dim.name]) for dim in kernel.dims)
    return replace(base, name=f"whole_steps_of_{name}", dims=dims, tiles=())
