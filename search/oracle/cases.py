"""The cases that a candidate is run on: the kernel's checks sized by its tiles, and the workloads themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import complete_dims
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, KernelSpec, Workload, tile_names


@dataclass(frozen=True)
class Case:
    """One run to be compared with the reference."""

    name: str  # the check's or the workload's
    dims: Items
    options: Items
    inputs: str  # recipe
    layout: str  # "contiguous" | "padded" | "bshd"
    seed: int
    tiles: tuple[tuple[str, int], ...]

    def values(self, kernel: KernelSpec) -> dict[str, Value]:
        return kernel.values_of(dict(self.dims), dict(self.options))


def derived_cases(
    kernel: KernelSpec, compiled: Items, tiles: Mapping[str, int], seed: int
) -> tuple[Case, ...]:
    """The kernel's checks for these tiles; seeds follow from `seed`, so a trial can be repeated."""
    # A bundle may be held to checks that are newer than its template, and name what that does not.
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
    cases = []
    for check in kernel.checks:
        if check.when is not None and not check.when(values):
            continue
        where = f"{kernel.name}/kernel.toml, check {check.name}"
        sizes = {name: int(size(values)) for name, size in check.dims}
        dims = complete_dims({**sizes, **baked}, kernel.dims, where)
        if any(int(size) < 0 for _, size in dims):
            raise SpecError(f"{where}: a negative size", code="bad_spec")
        cases += [
            Case(
                check.name,
                dims,
                options,
                check.inputs,
                check.layout,
                seed + number,
                tuple(sorted(tiles.items())),
            )
            for number in range(check.seeds)
        ]
    return tuple(dict.fromkeys(cases))


def workload_case(workload: Workload, seed: int) -> Case:
    """A workload as it is timed: plain random inputs, contiguous; the same for every candidate."""
    return Case(workload.name, workload.dims, workload.options, "normal", "contiguous", seed, ())
