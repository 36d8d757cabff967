"""Times of attention kernels on the H200 that were timed on the H100 alone: estimated.

    python -m bench.gpu.estimated_times [--save]

Both GPUs have 132 multiprocessors of one kind, and their memories differ. So a kernel's time on the
H100 is multiplied by the median ratio of the times, on the same shape, of what ran on both GPUs.
grid_set uses this for kernels that the stored results of the H200 lack; none counts as measured.

The script estimates kernels that ran on both GPUs, and compares the estimates with their times.
Needs no GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles

from bench.command_line import add_save, script_parser
from bench.gpu.grid_times import FALLBACK
from bench.gpu.lost_calls import lost_calls
from bench.gpu.measured_gpu import result_of
from bench.gpu.runtime_pool import Design, design, own_times, stored_points
from bench.results import Row, find_result, read_result, write_result

SOURCE = {"h200": "h100"}  # of estimates, by the GPU that they are for
DTYPES = ("bf16", "fp16")
GRID, POOL, DRAWN = "runtime_grid", "runtime_pool", "drawn_calls"
LEAST_COMMON = 3  # times of a shape on both GPUs
MARGIN = 1.02  # the best of several estimates is likely to be too good
ESTIMATED = "estimated"  # times of a row, by label
TEMPLATE = "wgmma"  # of all kernels that are estimated today
HUNDREDTHS = (5, 25, 50, 75, 95)
Times = Mapping[Design | str, float]  # in us, by design; PyTorch's by its name
Shape = tuple[int, str]


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    for gpu, source in SOURCE.items():
        measured = {name: read_result(f"{name}/{GRID}")["environment"] for name in (gpu, source)}
        rows = [row for dtype in DTYPES for row in errors(dtype, gpu, source)]
        for row in rows:
            print(row)
        if options.save:
            write_result(f"{gpu}/estimated_times", {"environment": measured[gpu], "rows": rows})


def with_estimates(name: str, dtype: str, folder: Path, gpu: str) -> Row:
    """A result of grid_times with estimates in its rows, and with the points that they are of."""
    result = read_result(result_of(name, dtype, gpu), folder)
    if gpu not in SOURCE:
        return result
    other = read_result(result_of(name, dtype, SOURCE[gpu]))
    label_of = labels_of_new(other, timed_designs(gpu, folder), SOURCE[gpu])
    here, there = times_by_shape(result), times_by_shape(other)
    rows = []
    for row in result["rows"]:
        shape = shape_of(row)
        times = estimates(here[shape], there.get(shape, {}))
        estimated = {label_of[it]: us for it, us in times.items() if it in label_of}
        rows.append({**row, ESTIMATED: estimated})
    points = {
        label_of[design(point)]: {"template": point.template, "parameters": point.parameters}
        for point in stored_points(other).values()
        if design(point) in label_of
    }
    return {**result, "rows": rows, "points": {**result["points"], **points}}


def drawn_in_cells(dtype: str, folder: Path, gpu: str) -> list[Row]:
    """Shapes drawn inside of cells, and calls of drawn_calls in which a kernel was too slow. The
    time of such a call is measured, even where the kernel's other times are estimated."""
    rows = list(find_result(result_of("runtime_between", dtype, gpu), folder).get("rows", ()))
    drawn = find_result(f"{gpu}/{DRAWN}")
    points = stored_points(read_result(result_of(GRID, dtype, gpu), folder))
    rows += lost_calls(drawn, dtype, {design(each): name for name, each in points.items()}, gpu)
    if gpu in SOURCE:
        other = read_result(result_of(GRID, dtype, SOURCE[gpu]))
        label_of = labels_of_new(other, timed_designs(gpu, folder), SOURCE[gpu])
        for row in lost_calls(drawn, dtype, label_of, gpu):
            times = dict(row["times"])
            rows.append({**row, "times": {FALLBACK: times.pop(FALLBACK)}, ESTIMATED: times})
    return rows


def labels_of_new(other: Row, known: Container[Design], source: str) -> dict[Design, str]:
    return {
        each: f"{label} ({source})"
        for label, point in stored_points(other).items()
        if (each := design(point)) not in known
    }


def timed_designs(gpu: str, folder: Path) -> set[Design]:
    """In any type."""
    names = (result_of(name, dtype, gpu) for name in (GRID, POOL) for dtype in DTYPES)
    points = (
        point for name in names for point in stored_points(find_result(name, folder)).values()
    )
    return set(map(design, points))


def times_by_shape(result: Row) -> dict[Shape, dict[Design | str, float]]:
    designs = {label: design(point) for label, point in stored_points(result).items()}
    times: dict[Shape, dict[Design | str, float]] = {}
    for row in result["rows"]:
        library = row["times"][FALLBACK]
        times[shape_of(row)] = {
            FALLBACK: library["us"] if isinstance(library, dict) else library,
            **{designs[label]: us for label, us in own_times(row).items()},
        }
    return times


def times_of(row: Row) -> dict[str, float]:
    """By label, measured or estimated with a margin."""
    estimated = {label: us * MARGIN for label, us in row.get(ESTIMATED, {}).items()}
    return {**estimated, **own_times(row)}


def shape_of(row: Row) -> Shape:
    """Those of the sixty shapes have no family."""
    return row.get("family", -1), row["shape"]


def estimates(here: Times, there: Times) -> dict[Design | str, float]:
    """Of what ran on the other GPU alone; none where too little ran on both."""
    both = here.keys() & there.keys()
    if len(both) < LEAST_COMMON:
        return {}
    scale = median(here[it] / there[it] for it in both)
    return {it: us * scale for it, us in there.items() if it not in here}


# ---- how good they are ----


def errors(dtype: str, gpu: str, source: str) -> Iterator[Row]:
    """By kind of shape, the ratios of estimates to measured times of kernels of TEMPLATE."""
    here, there = (times_by_shape(read_result(result_of(GRID, dtype, it))) for it in (gpu, source))
    ratios: dict[str, list[float]] = defaultdict(list)
    for shape in here.keys() & there.keys():
        for each in here[shape].keys() & there[shape].keys():
            if each[0] != TEMPLATE:
                continue
            without = {it: us for it, us in here[shape].items() if it != each}
            if each in (estimate := estimates(without, there[shape])):
                ratios[shape[1].partition(" ")[0]].append(estimate[each] / here[shape][each])
    for kind, found in sorted(ratios.items()):
        cuts = quantiles(found, n=100, method="inclusive")
        at = {f"p{it}": round(cuts[it - 1], 3) for it in HUNDREDTHS}
        yield {"dtype": dtype, "kind": kind, "estimates": len(found), **at}


if __name__ == "__main__":
    main()
