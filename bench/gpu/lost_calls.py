"""Drawn calls in which a kernel of the shipped set was too slow, for the next set."""

from __future__ import annotations

from collections.abc import Mapping

from bench.gpu.drawn_calls import FALLBACK, ratio, undisturbed
from bench.gpu.grid_shapes import cells
from bench.gpu.measured_gpu import GPU_NAMES
from bench.gpu.runtime_pool import Design, Point, design
from bench.results import Row
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.tuned import set_for
from greenfast.search.kernels.expressions import expression

NEVER_ABOVE = 0.98  # of the library's time, on the sizes beside a cell's point, and inside the cell


def lost_calls(drawn: Row, dtype: str, label_of: Mapping[Design, str], gpu: str) -> list[Row]:
    """Calls of drawn_calls in which a kernel of the shipped set was slower than PyTorch."""
    set_of_gpu = set_for("attention", GPU_NAMES[gpu])
    programs = set_of_gpu.programs.values() if isinstance(set_of_gpu, KernelSet) else ()
    designs = {
        program.name: design(Point(program.template, dict(program.parameters)))
        for program in programs
    }
    rows = []
    for row in undisturbed(drawn.get("rows", ())):
        label = label_of.get(designs.get(row["kernel"], ("", "")))
        if row["dtype"] == dtype and label and "family" in row and ratio(row) > NEVER_ABOVE:
            times = {FALLBACK: row["times"][FALLBACK], label: row["times"]["greenfast"]}
            kept = {name: row[name] for name in ("shape", "dims", "mask")}
            rows += [
                {**kept, "family": family, "times": times, "wrong": {}}
                for family in sorted(families_around(row))
            ]
    return rows


def families_around(row: Row) -> set[int]:
    """The families with a cell around the call: any of these cells may have the call's rule."""
    return {
        cell.family
        for cell in cells()
        if (cell.width, cell.shape.mask) == (row["dims"]["D"], row["mask"])
        and all(
            part["above"] < value_of(part["value"], row["dims"]) <= part["at_most"]
            for part in cell.when
        )
    } | {row["family"]}


def value_of(text: str, dims: Mapping[str, int]) -> int:
    return expression(text, "a cell of the grids").whole(dims)
