"""The cases that a candidate runs on: the kernel's checks, sized by its tiles, and workloads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Check, KernelSpec, tile_names
from greenfast.search.kernels.workloads import Items, Workload, complete_dims

# The author of a source chooses its tiles, and inputs and references are made by our processes.
MOST_CHECK_ELEMENTS = 2**26
MOST_CHECK_FLOP = 2**37
_SMALLER = "choose smaller sizes, and smaller [tiles] where sizes follow from them"
LARGE_FLOP = 4e9  # of a case: its reference is worth a GPU, or all cores
LARGEST_SEED = 2**31 - 1  # of a search, and of a case's inputs


@dataclass(frozen=True)
class Case:
    """One run whose outputs are compared with the reference."""

    name: str  # of the check or the workload
    dims: Items  # and its own values of constants
    options: Items
    inputs: str  # a recipe of the kernel's reference.py
    layout: str  # "contiguous" | "padded" | "bshd"
    seed: int
    tiles: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        """The name with the sizes, for messages: an author knows neither of a drawn case."""
        return f"{self.name} ({' '.join(f'{name}={size}' for name, size in self.dims)})"

    def values(self, kernel: KernelSpec) -> dict[str, Value]:
        return kernel.values_of(dict(self.dims), dict(self.options))

    def flop(self, kernel: KernelSpec) -> float:
        """Floating-point operations; SpecError where the kernel's [work] gives no such number."""
        return float(kernel.work_flop.amount(self.values(kernel)))


def _elements(kernel: KernelSpec, dims: Mapping[str, Value]) -> int:
    """The number of elements of all the kernel's tensors together."""
    return sum(
        math.prod(int(dims[name]) for name in argument.shape)
        for argument in kernel.arguments
        if argument.kind != "scalar"
    )


def _flop(kernel: KernelSpec, dims: Items, options: Items) -> float:
    return float(kernel.work_flop.amount(kernel.values_of(dict(dims), dict(options))))


def derived_cases(
    kernel: KernelSpec, compiled: Items, tiles: Mapping[str, int], seed: int
) -> tuple[Case, ...]:
    """The kernel's checks for these tiles, one case for each seed; seeds count up from `seed`.

    Raises SpecError when a check's size comes out negative.
    """
    cases = [
        replace(case, seed=seed + number)
        for check, case in _sized(kernel, compiled, tiles, seed)
        for number in range(check.seeds)
    ]
    return tuple(dict.fromkeys(cases))


def uncompared_cases(
    kernel: KernelSpec, compiled: Items, tiles: Mapping[str, int], seed: int
) -> tuple[Case, ...]:
    """The checks of no seeds: too large to compare, they are for the gate `safety`."""
    return tuple(case for check, case in _sized(kernel, compiled, tiles, seed) if check.seeds == 0)


def _sized(
    kernel: KernelSpec, compiled: Items, tiles: Mapping[str, int], seed: int
) -> Iterator[tuple[Check, Case]]:
    # A bundle may run checks that are newer than its template and use tiles it does not define.
    sizes_of = {
        name
        for check in kernel.checks
        for expression in check.expressions
        for name in expression.names
    }
    values: dict[str, Value] = {
        **dict.fromkeys((*tile_names(kernel.templates), *sizes_of), 1),
        **dict(compiled),
        **tiles,
    }
    options = tuple((option.name, values[option.name]) for option in kernel.options)
    baked = {dim.name: values[dim.name] for dim in kernel.dims if dim.time == "compile"}
    for check in kernel.checks:
        if check.when is not None and not check.when(values):
            continue
        number = kernel.checks.index(check) + 1
        where = f"{kernel.name}/kernel.toml, [[checks]] {number}, {check.name}"
        constants = {name for name, _ in kernel.constants}
        sizes = {name: size.whole(values) for name, size in check.dims if name not in constants}
        own = tuple((name, each(values)) for name, each in check.dims if name in constants)
        dims = complete_dims({**sizes, **baked}, kernel.dims, where)
        _require_possible(kernel, dims, options, where)
        yield (
            check,
            Case(
                check.name,
                (*dims, *own),
                options,
                check.inputs,
                check.layout,
                seed,
                tuple(sorted(tiles.items())),
            ),
        )


def _require_possible(kernel: KernelSpec, dims: Items, options: Items, where: str) -> None:
    if negative := next(((name, size) for name, size in dims if int(size) < 0), None):
        name, size = negative
        raise SpecError(
            f"{where}: the size {name} is negative, {size}, for a candidate with small tiles",
            code="bad_spec",
            mend="make it positive for every value of the tiles, for example with max(1, ...)",
        )
    if (elements := _elements(kernel, dict(dims))) > MOST_CHECK_ELEMENTS:
        raise SpecError(
            f"{where}: tensors of {elements:,} elements; a check has at most "
            f"{MOST_CHECK_ELEMENTS:,}",
            code="bad_spec",
            mend=_SMALLER,
        )
    if (flop := _flop(kernel, dims, options)) > MOST_CHECK_FLOP:
        raise SpecError(
            f"{where}: {flop:,.0f} FLOP; a check has at most {MOST_CHECK_FLOP:,}",
            code="bad_spec",
            mend=_SMALLER,
        )


def workload_case(workload: Workload, seed: int) -> Case:
    """The workload as it is timed: random contiguous inputs, the same for every candidate."""
    return Case(workload.name, workload.dims, workload.options, "normal", "contiguous", seed, ())
