"""The shipped set of greenfast.linear, from times on a grid of layers (linear_times).

    python -m bench.gpu.linear_set [--dtype bf16] [--results FOLDER] [--out SET.zip] [--gpu h200]

Needs no GPU. A kernel serves a cell of the grid if it beats PyTorch's operations by a margin at the
cell's sizes. On a side where it does not win as well, or was not timed, its rule ends at those
sizes. A rule also ends where another wave of tiles would cost the gain. All other calls go to
PyTorch. Kernels and rules of the other type stay in SET.zip as they are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.command_line import script_parser
from bench.gpu.grid_set import with_others
from bench.gpu.linear_pool import FORMS, Form, compiled, gemm
from bench.gpu.linear_times import AXES, LIBRARY, Cell, sides
from bench.gpu.measured_gpu import DEFAULT, add_gpu, result_of
from bench.gpu.runtime_pool import Point, stored_points, valid_entry
from bench.gpu.set_files import Built, Entry, bundle_bytes
from bench.gpu.tuned_set import SETS
from bench.gpu.waves import Waves
from bench.results import RESULTS, Row, read_result
from greenfast.runtime.archive import read_archive
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.devices.facts import device
from greenfast.search.kernels.expressions import expression
from greenfast.search.toolchain import Toolchain

WON = 0.93  # of the library's time, at most
NEVER_ABOVE = 0.98  # of the library's time, on the sizes beside
STILL_WON = 0.95  # of the library's time, where sizes have more waves than the point
GIVEN_UP = 1.06  # for fewer kernels
Ratios = Mapping[str, float]  # by label: our time over the library's


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--out", type=Path, help="the set; default: the shipped one")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder of results")
    add_gpu(parser)
    options = parser.parse_args()
    out = options.out or SETS / f"gemm-{options.gpu}.zip"
    content, report = linear_set(options.dtype, options.results, options.gpu)
    out.write_bytes(with_others(content, out, options.dtype))
    kernel_set(read_archive(out), out.stem)  # which the runtime has to read
    print(json.dumps(report))
    return 0


def linear_set(dtype: str, folder: Path = RESULTS, gpu: str = DEFAULT) -> tuple[bytes, Row]:
    """The bundle of one type, and what it serves."""
    result = read_result(result_of("linear_grid", dtype, gpu), folder)
    points = stored_points(result)
    kernel = gemm()
    entries: list[tuple[Form, Entry]] = []
    groups: list[Row] = []
    served = 0
    for form in FORMS:
        rows = {tuple(row["cell"]): row for row in result["rows"] if row["form"] == form.name}
        ratios = {cell: ratios_of(row) for cell, row in rows.items()}
        uses = labels_of(ratios)
        if not uses:
            continue
        served += len(uses)
        labels = sorted(set(uses.values()))
        ids = {label: f"k{len(entries) + at}" for at, label in enumerate(labels)}
        for label in labels:
            entry = valid_entry(kernel, points[label], form.compiled(dtype), label, gpu)
            if entry is None:
                raise SystemExit(f"{label} is excluded for {form.name}: the template changed")
            entries.append((form, entry))
        waves = {label: tile_waves(points[label], gpu) for label in labels}
        groups.append(group(form.compiled(dtype), rows, ratios, uses, ids, waves))
    compiled_items = compiled(kernel, entries, gpu)
    built = [item for item in compiled_items if item is not None]
    if len(built) != len(entries):
        bad = [
            (f.name, e.label)
            for (f, e), item in zip(entries, compiled_items, strict=True)
            if item is None
        ]
        raise SystemExit(f"{bad}: a kernel spills or does not compile: the template changed")
    versions = toolchain_versions()
    content = bundle_bytes(kernel, built, groups, device(gpu), name="measured", toolchain=versions)
    return content, report(content, built, groups, served, result)


def report(
    content: bytes, built: Sequence[Built], groups: Sequence[Row], served: int, result: Row
) -> Row:
    return {
        "bytes": len(content),
        "kernels": len(built),
        "rules": sum(len(row["rules"]) for row in groups),
        "cells": len(result["rows"]),
        "served": served,
    }


def toolchain_versions() -> dict[str, str]:
    toolchain = Toolchain(Path("/nonexistent"), 1)
    try:
        return dict(toolchain.identity)
    finally:
        toolchain.close()


def ratios_of(row: Row) -> Ratios:
    return {
        name: us / row["times"][LIBRARY] for name, us in row["times"].items() if name != LIBRARY
    }


def labels_of(ratios: Mapping[Cell, Ratios]) -> dict[Cell, str]:
    """A label for each cell that a kernel serves: as few labels as serve all nearly as well."""
    left = {
        cell: {name: ratio for name, ratio in row.items() if ratio <= WON}
        for cell, row in ratios.items()
    }
    left = {cell: row for cell, row in left.items() if row}
    label_of: dict[Cell, str] = {}
    while left:
        near: dict[str, list[Cell]] = defaultdict(list)
        for cell, row in left.items():
            for name, ratio in row.items():
                if ratio <= GIVEN_UP * min(row.values()):
                    near[name].append(cell)
        label = max(sorted(near), key=lambda name: len(near[name]))
        label_of |= dict.fromkeys(near[label], label)
        left = {cell: row for cell, row in left.items() if cell not in label_of}
    return label_of


def tile_waves(point: Point, gpu: str) -> Waves:
    """Of the tiles of C, whether or not blocks stay to walk several."""
    given = point.parameters
    swap, split = bool(given.get("swap")), int(given.get("split_k", 1))
    rows = int(given.get("consumer_rows", 64))
    if not given.get("turns"):
        rows *= int(given.get("consumers", 2))
    down, along = ("N", "M") if swap else ("M", "N")
    text = f"ceil_div({down}, {rows}) * ceil_div({along}, {int(given['tile_n'])})"
    at_once = device(gpu).multiprocessors * int(given.get("blocks_per_sm", 1)) // split
    return Waves(expression(text, "tiles"), at_once)


def group(
    compiled_values: Row,
    rows: Mapping[Cell, Row],
    ratios: Mapping[Cell, Ratios],
    uses: Mapping[Cell, str],
    ids: Mapping[str, str],
    waves: Mapping[str, Waves],
) -> Row:
    rules: list[Row] = []
    for cell in sorted(uses):
        label = uses[cell]
        when = conditions(cell, label, ratios)
        farthest = {part["value"]: part["at_most"] for part in when}
        ratio = ratios[cell][label] / STILL_WON
        if limit := waves[label].limit(rows[cell]["dims"], farthest, ratio):
            when.append(limit)
        rules.append({"when": when, "use": ids[label]})
    return {
        "compiled": compiled_values,
        "region": {axis.name: [1, axis.limits(len(axis.sizes) - 1)[1]] for axis in AXES},
        "rules": [*rules, {"when": [], "use": "library"}],
        "outside": "library",
        "workloads": [workload(rows[cell], uses[cell], ids) for cell in sorted(uses)],
        "regret": {},
    }


def conditions(cell: Cell, label: str, ratios: Mapping[Cell, Ratios]) -> list[Row]:
    when = []
    for axis, place in zip(AXES, cell, strict=True):
        above, at_most = axis.limits(place)
        when.append({"value": axis.name, "above": above, "at_most": at_most})
    for axis_number, step, other in sides(cell):
        if other in ratios and ratios[other].get(label, 1.0) <= NEVER_ABOVE:
            continue
        size = AXES[axis_number].sizes[cell[axis_number]]
        part = when[axis_number]
        if step > 0:
            part["at_most"] = size
        else:
            part["above"] = size - 1
    return when


def workload(row: Row, label: str, ids: Mapping[str, str]) -> Row:
    return {
        "name": ",".join(f"{name}={size}" for name, size in row["dims"].items()),
        "dims": row["dims"],
        "weight": 1.0,
        "use": ids[label],
        "times_us": {ids[label]: row["times"][label]},
        "best_us": min(row["times"].values()),
        "ratio": row["times"][label] / row["times"][LIBRARY],
        "peers": ["torch"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
