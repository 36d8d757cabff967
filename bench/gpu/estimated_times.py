"""Times of attention kernels on an H200 that were timed on an H100 alone: estimated.

    python -m bench.gpu.estimated_times [--save]

Both GPUs have 132 multiprocessors of one kind, and their memories differ. So a kernel's time on the
H100 is multiplied by the median ratio of the times, on the same shape, of what ran on both GPUs.
A kernel serves a cell only if it was timed there (grid_rules). An estimate tells whether it would
also win on the neighbouring points, where a run on the H200 timed other kernels.

The script estimates kernels that ran on both GPUs, and compares the estimates with their times.
Needs no GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
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
GRID, DRAWN = "runtime_grid", "drawn_calls"
LEAST_COMMON = 3  # times of a shape on both GPUs
MARGIN = 1.02  # of an estimate, which may be too good
ESTIMATED = "estimated"  # times of a row, by label
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


def grid_rows(dtype: str, folder: Path, gpu: str) -> list[Row]:
    """The rows of runtime_grid, with estimates of what the other GPU timed on the shape."""
    result = read_result(result_of(GRID, dtype, gpu), folder)
    rows: list[Row] = result["rows"]
    if gpu not in SOURCE:
        return rows
    there = times_by_shape(read_result(result_of(GRID, dtype, SOURCE[gpu])))
    here = times_by_shape(result)
    label_of = {design(point): label for label, point in stored_points(result).items()}

    def estimated(row: Row) -> Row:
        shape = shape_of(row)
        times = estimates(here[shape], there.get(shape, {}))
        known = {label_of[it]: us * MARGIN for it, us in times.items() if it in label_of}
        return {**row, ESTIMATED: known}

    return list(map(estimated, rows))


def drawn_in_cells(dtype: str, folder: Path, gpu: str) -> list[Row]:
    """Shapes drawn inside of cells, and calls of drawn_calls in which a kernel was too slow."""
    rows = list(find_result(result_of("runtime_between", dtype, gpu), folder).get("rows", ()))
    points = stored_points(read_result(result_of(GRID, dtype, gpu), folder))
    label_of = {design(each): name for name, each in points.items()}
    return rows + lost_calls(find_result(f"{gpu}/{DRAWN}"), dtype, label_of, gpu)


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
    """By kind of shape, the ratios of estimates to measured times."""
    here, there = (times_by_shape(read_result(result_of(GRID, dtype, it))) for it in (gpu, source))
    ratios: dict[str, list[float]] = defaultdict(list)
    for shape in here.keys() & there.keys():
        for each in here[shape].keys() & there[shape].keys() - {FALLBACK}:
            without = {it: us for it, us in here[shape].items() if it != each}
            if each in (estimate := estimates(without, there[shape])):
                ratios[shape[1].partition(" ")[0]].append(estimate[each] / here[shape][each])
    for kind, found in sorted(ratios.items()):
        cuts = quantiles(found, n=100, method="inclusive")
        at = {f"p{it}": round(cuts[it - 1], 3) for it in HUNDREDTHS}
        yield {"dtype": dtype, "kind": kind, "estimates": len(found), **at}


if __name__ == "__main__":
    main()
