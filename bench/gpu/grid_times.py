"""Times of attention kernels on grids of shapes, to make the shipped set from (grid_set).

    python -m bench.gpu.grid_times FOLDER [--dtype bf16] [--most 0] [--shapes] [--between 0]
                                   [--seconds 200] [--seed 1]

On each point of bench.gpu.grid_shapes that was not measured before (h200/runtime_grid, for fp16
h200/runtime_grid_fp16): the kernels that were within 5 % of the fastest on one of the sixty shapes,
new ones, and PyTorch. --most N times fewer: the N that were fastest in bf16 on the point and on
those beside it. --shapes times the whole pool and the peers on the sixty shapes first. --between N
times N drawn shapes inside of cells of the grids, for how far a cell can be trusted. The files of
FOLDER (runtime_pool, runtime_grid and runtime_between, with _fp16 behind) are written as it goes;
a grid's file also has the points of before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.gpu import runtime_calls
from bench.gpu.graph_times import times_us
from bench.gpu.grid_shapes import Cell, Place, beside, cells, drawn_shapes, key, place_of
from bench.gpu.runtime_calls import environment, inputs, peers
from bench.gpu.runtime_pool import Point, Pool, own_times, pool_points
from bench.gpu.runtime_shapes import Shape, shapes
from bench.gpu.tuned_set import DIMS
from bench.results import Row, find_result, read_result, write_json
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec

CLOSE = 1.05  # of the fastest kernel on one of the sixty shapes
FALLBACK = "torch-default"
ROUNDS = 7
WRITTEN_AFTER = 50  # points


@dataclass(frozen=True)
class Run:
    """What all parts of a run share: the kernels, their type, and when to stop."""

    folder: Path
    dtype: str
    pool: Pool
    labels: Mapping[Place, frozenset[str]]  # by place; a place without: all kernels
    ends: float

    @property
    def has_time(self) -> bool:
        return time.perf_counter() < self.ends

    def file(self, name: str) -> Path:
        return self.folder / f"{result_of(name, self.dtype)}.json"


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--most", type=int, default=0, help="kernels of a point; 0: all")
    parser.add_argument("--shapes", action="store_true", help="the sixty shapes, too")
    parser.add_argument("--between", type=int, default=0, help="shapes inside of cells")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--seed", type=int, default=1, help="of the shapes inside of cells")
    options = parser.parse_args()
    require_gpu()
    options.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    kept, before = measured_before(options.dtype)
    missing = missing_cells(kept)
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    points = pool_points(kernel) if options.shapes else close_points(kernel)
    run = Run(
        options.folder,
        options.dtype,
        Pool(points, heads(missing, options.between > 0), dtype=options.dtype),
        contenders(options.most) if options.most else {},
        began + options.seconds,
    )
    if options.shapes:
        measure_shapes(run)
    measure_between(run, options.between, options.seed)
    measure_grid(run, missing, kept, before, options.most)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return 0


def result_of(name: str, dtype: str) -> str:
    return name if dtype == "bf16" else f"{name}_{dtype}"


# ---- what to measure ----


def close_points(kernel: KernelSpec) -> dict[str, Point]:
    """Points of the pool that are worth timing on a grid."""
    points, close = pool_points(kernel), set[str]()
    for row in read_result("h200/runtime_pool")["rows"]:
        own = own_times(row)
        close |= {name for name, us in own.items() if us <= CLOSE * min(own.values())}
    known = set().union(*(own_times(row) for row in read_result("h200/runtime_pool")["rows"]))
    return {name: point for name, point in points.items() if name in close or name not in known}


def contenders(most: int) -> dict[Place, frozenset[str]]:
    """By place: the labels that were fastest in bf16 there, and those of the places beside it."""
    fastest = {}
    for row in read_result("h200/runtime_grid")["rows"]:
        own = own_times(row)
        fastest[place_of(row)] = frozenset(sorted(own, key=lambda name: own[name])[:most])
    return {
        place: labels.union(*(fastest.get(other, ()) for other in beside(place)))
        for place, labels in fastest.items()
    }


def missing_cells(kept: Sequence[Row]) -> list[Cell]:
    """Shuffled: a run that is cut short leaves gaps everywhere, not an end."""
    places = {place_of(row) for row in kept}
    missing = [cell for cell in cells() if key(cell) not in places]
    random.Random(1).shuffle(missing)
    return missing


def heads(missing: Sequence[Cell], every: bool) -> tuple[tuple[int, str], ...]:
    """Compile-time values that are needed: of all cells, or of the missing ones."""
    wanted = cells() if every else missing
    return tuple(dict.fromkeys((cell.width, cell.shape.mask) for cell in wanted))


def measured_before(dtype: str) -> tuple[list[Row], list[Row]]:
    """Rows of points that are still on a grid, and the environments that they come from."""
    result = find_result(f"h200/{result_of('runtime_grid', dtype)}")
    if not result:
        return [], []
    on_grid = {key(cell) for cell in cells()}
    rows = [row for row in result["rows"] if place_of(row) in on_grid]
    environment_before = {**result["environment"], "points": len(rows)}
    return rows, [*result.get("before", ()), environment_before]


# ---- measuring ----


def measure_shapes(run: Run) -> None:
    """The whole pool and the peers on the sixty shapes, as called."""
    rows: list[Row] = []
    for shape in shapes():
        if not run.has_time:
            break
        rows.append(runtime_calls.measured(shape, run.pool, run.dtype))
    summary = runtime_calls.summary(rows)
    print(f"60 shapes: {summary}", flush=True)
    result = {"environment": environment(), "rows": rows, "summary": summary}
    write_json(run.file("runtime_pool"), result)


def measure_between(run: Run, count: int, seed: int) -> None:
    """Drawn shapes; each row has the place of its cell."""
    rows: list[Row] = []
    for cell, shape in drawn_shapes(count, seed):
        if not run.has_time:
            break
        rows.append(measured(run, cell, shape))
    if rows:
        result = {"environment": environment(), "seed": seed, "rows": rows}
        write_json(run.file("runtime_between"), result)
        print(f"{len(rows)} shapes inside of cells", flush=True)


def measure_grid(
    run: Run, missing: Sequence[Cell], kept: Sequence[Row], before: Sequence[Row], most: int
) -> None:
    rows: list[Row] = []
    began = time.perf_counter()
    result: Row = {"environment": environment(), "before": list(before)}

    def write() -> None:
        took_s = round(time.perf_counter() - began, 1)
        everything = sorted([*kept, *rows], key=place_of)
        write_json(
            run.file("runtime_grid"),
            {**result, "most": most, "seconds": took_s, "rows": everything},
        )

    for cell in missing:
        if not run.has_time:
            print(f"no time is left after {len(rows)} of {len(missing)} points", flush=True)
            break
        rows.append(measured(run, cell, cell.shape))
        if len(rows) % WRITTEN_AFTER == 0:
            print(f"{len(rows)} points, {time.perf_counter() - began:.0f} s", flush=True)
            write()
    if rows:
        write()


def measured(run: Run, cell: Cell, shape: Shape) -> Row:
    import torch

    with torch.no_grad():
        q, k, v = inputs(shape, run.dtype)
        notes: Row = {}
        library = peers(shape, q, k, v)[FALLBACK]
        own = run.pool.functions(shape, q, k, v, notes, run.labels.get(key(cell)))
        times = times_us({FALLBACK: library} | own, rounds=ROUNDS)
    return {
        "family": cell.family,
        "place": list(cell.place),
        "shape": shape.name,
        "dims": {name: getattr(shape, name) for name in (*DIMS, "D")},
        "mask": shape.mask,
        "times": {name: round(item["us"], 3) for name, item in times.items()},
        "wrong": {name: why for name, why in notes.items() if why.startswith("wrong")},
    }


if __name__ == "__main__":
    raise SystemExit(main())
