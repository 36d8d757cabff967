"""How often would a rule be slower than the library on a size that was not measured?

    python -m bench.gpu.rule_regret [--save] [--gpu h200]

Each point of the grids is left out in turn, along each of its axes: the points on both sides become
neighbours, and what their cells would use is compared with the library on the point that is
missing. The gap is then twice as wide as any in the shipped rules. The same for drawn shapes: what
would their cell use, without the times inside of it? Needs no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bench.command_line import add_save, script_parser
from bench.gpu.grid_rules import (
    Judged,
    Ratios,
    conditions,
    judged,
    leaves_out,
    lost_sides,
    ratios_of,
    scores,
)
from bench.gpu.grid_shapes import ALIGNED, Place, key, place_of
from bench.gpu.measured_gpu import add_gpu, result_of
from bench.results import Row, find_result, read_result, write_result

DTYPES = ("bf16", "fp16")
AXES = range(3)
WORST = 5


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    add_gpu(parser)
    options = parser.parse_args()
    rows = []
    for dtype in DTYPES:
        cells = {key(item.cell): item for item in judged(dtype, gpu=options.gpu)}
        rows.append({"dtype": dtype, "of": "points", **summary(list(left_out(cells)))})
        inside = find_result(result_of("runtime_between", dtype, options.gpu)).get("rows", [])
        rows.append({"dtype": dtype, "of": "drawn", **summary(list(drawn(cells, inside)))})
    for row in rows:
        print(row)
    if options.save:
        measured = read_result(result_of("runtime_grid", DTYPES[0], options.gpu))["environment"]
        environment = {name: measured[name] for name in ("date", "gpu", "torch")}
        write_result(f"{options.gpu}/rule_regret", {"environment": environment, "rows": rows})


Found = tuple[float, str, str]  # our time over the library's, the shape, the kernel


def left_out(cells: Mapping[Place, Judged]) -> Iterator[Found]:
    evidence = {place: item.evidence for place, item in cells.items()}
    for place, item in cells.items():
        for axis in AXES:
            low, high = (moved(place, axis, step) for step in (-1, 1))
            if low not in evidence or high not in evidence:
                continue
            without = {**evidence, place: {}}
            for near, far in ((low, high), (high, low)):
                allowed = scores(near, cells[near].ratios, without, [evidence[far]])
                label = min(allowed, key=lambda name: allowed[name], default=None)
                if label is None or label not in item.ratios:
                    continue
                if not leaves_out(cells[near], label, item.row["dims"]["S_kv"]):
                    yield item.ratios[label], item.row["shape"], label


def drawn(cells: Mapping[Place, Judged], inside: list[Row]) -> Iterator[Found]:
    evidence = {place: item.evidence for place, item in cells.items()}
    for row in inside:
        place, times = place_of(row), ratios_of(row)
        allowed: Ratios = {}
        if place in cells:
            allowed = scores(place, cells[place].ratios, evidence, [])
        label = min(allowed, key=lambda name: allowed[name], default=None)
        if label is None or label not in times:
            continue
        if serves(cells[place], label, evidence, row["dims"]):
            yield times[label], row["shape"], label


def serves(item: Judged, label: str, evidence: Mapping[Place, Ratios], dims: Row) -> bool:
    """Whether a rule of the cell would hold for these sizes."""
    lost = {label: lost_sides(label, key(item.cell), evidence)}
    sizes = {"B * H": dims["B"] * dims["H"], **dims}
    sizes[f"S_kv % {ALIGNED}"] = dims["S_kv"] % ALIGNED
    sizes["H // H_kv"] = dims["H"] // dims["H_kv"]
    return all(
        part["above"] < sizes[part["value"]] <= part["at_most"]
        for part in conditions(replace(item, lost=lost), label)
    )


def moved(place: Place, axis: int, step: int) -> Place:
    family, width, at = place
    return family, width, (*at[:axis], at[axis] + step, *at[axis + 1 :])


def summary(found: list[Found]) -> Row:
    ratios = [ratio for ratio, _, _ in found]
    return {
        "cases": len(ratios),
        "above_1": sum(ratio > 1 for ratio in ratios),
        "above_1.05": sum(ratio > 1.05 for ratio in ratios),
        "worst": [[round(ratio, 3), *names] for ratio, *names in sorted(found)[-WORST:]],
    }


if __name__ == "__main__":
    main()
