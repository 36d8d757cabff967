"""Times of attention kernels on grids of shapes, to make the shipped set from (grid_set).

    python -m bench.gpu.grid_times FOLDER [--dtype bf16] [--after RESULT] [--between 200]
                                   [--seconds 200] [--seed 1] [--kind prefill] [--gpu h200]
                                   [--new | --widths 80,96,256]

The pool (runtime_pool) has the presets, the winners of searches and the shipped kernels, compiled
for one type. The whole pool is timed beside PyTorch on those of the sixty shapes that may be tuned
on, and on an eighth of the cells of bench.gpu.grid_shapes. On the other cells, only kernels are
timed that were close to the fastest on one of the nearest of these cells, or the fastest on the
cell in the stored results. With --after, the kernels come from another result, in FOLDER or stored:
those that were the fastest on the cell and beside it. Use it for fp16 after bf16, or for one GPU
model after another. --new times only the points that the stored results lack, beside what was
fastest on each cell; the result has to be joined with the stored one (grid_join). --widths times
cells of heads of these sizes alone, and leaves the sixty shapes out; its result has to be joined,
too. --between N times N drawn shapes inside cells, which show how far a cell can be trusted.

FOLDER is laid out like bench/results: h200/runtime_pool, runtime_grid and runtime_between, with the
suffix _fp16 for fp16, and h100/ for an H100. The files are written during the run. Cells come in a
shuffled order, so an interrupted run leaves gaps anywhere; the next run with the same FOLDER and
pool fills them.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.gpu import runtime_calls
from bench.gpu.graph_times import times_us
from bench.gpu.grid_shapes import (
    FAMILIES,
    Cell,
    Place,
    beside,
    cells,
    drawn_shapes,
    key,
    place_of,
)
from bench.gpu.measured_gpu import DEFAULT, add_gpu, result_of
from bench.gpu.runtime_calls import environment, inputs, peers
from bench.gpu.runtime_pool import (
    SHIPPED,
    Design,
    Point,
    Pool,
    design,
    own_times,
    pool_points,
    stored_points,
)
from bench.gpu.runtime_shapes import Shape, shapes
from bench.gpu.tuned_set import DIMS
from bench.results import Row, find_result, read_result, write_result
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue

SCREENED, SCREENED_SHARE = 12, 8  # cells of a family and D, at least, and one of so many
NEAREST, CLOSE = 6, 1.05  # of the screened cells, and of the fastest kernel on one of them
FASTEST_BEFORE = 2  # of a cell, by the stored results
FASTEST, FASTEST_BESIDE = 4, 1  # in bf16, of a cell and of those beside it
MOST_DECODE_ROWS = 256  # query rows of a key head: for more the template `decode` never won
FALLBACK = "torch-default"
KINDS = {family.kind for family in FAMILIES}
ROUNDS = 7
Labels = frozenset[str]
WRITTEN_AFTER = 50  # points


@dataclass
class Run:
    """What all parts of a run share: the kernels, their type, and when to stop."""

    folder: Path
    dtype: str
    gpu: str
    pool: Pool
    ends: float
    labels: dict[Place, Labels] = field(default_factory=dict)  # to time on a cell; else all
    kind: str = ""  # of the cells; empty: all of them
    widths: frozenset[int] = frozenset()  # D of the cells; empty: all of them

    def is_wanted(self, cell: Cell) -> bool:
        kinds_fit = self.kind in ("", FAMILIES[cell.family].kind)
        return kinds_fit and (not self.widths or cell.width in self.widths)

    @property
    def has_time(self) -> bool:
        return time.perf_counter() < self.ends

    def before(self, name: str) -> list[Row]:
        """Rows that an earlier run left, if its labels stand for the same points."""
        result = find_result(result_of(name, self.dtype, self.gpu), self.folder)
        points = stored_points(result)
        if any(self.pool.points.get(label) != point for label, point in points.items()):
            return []
        return list(result.get("rows", ()))

    def write(self, name: str, value: Row) -> None:
        points = {
            label: {"template": point.template, "parameters": point.parameters}
            for label, point in self.pool.points.items()
            if any(label in row["times"] for row in value["rows"])
        }
        result = {"environment": environment(), **value, "points": points}
        write_result(result_of(name, self.dtype, self.gpu), result, self.folder)


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--after", default="", metavar="RESULT", help="only its fastest kernels")
    add_gpu(parser)
    parser.add_argument("--between", type=int, default=200, help="shapes inside of cells")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--seed", type=int, default=1, help="of the shapes inside of cells")
    parser.add_argument("--kind", default="", choices=("", *sorted(KINDS)), help="of the cells")
    parser.add_argument("--new", action="store_true", help="only points without stored times")
    parser.add_argument(
        "--widths", type=widths_in, default=frozenset(), metavar="D,...", help="of the cells"
    )
    options = parser.parse_args()
    require_gpu()
    began = time.perf_counter()
    points = pool_points(Catalogue([REPOSITORY_TEMPLATES]).kernel("attention"))
    labels: dict[Place, Labels] = {}
    if options.after:
        before = find_result(options.after, options.folder) or read_result(options.after)
        labels = fastest_labels(before["rows"], FASTEST, FASTEST_BESIDE)
        used = frozenset().union(*labels.values())
        points = {name: it for name, it in stored_points(before).items() if name in used}
    elif options.new:
        labels = fastest_or_new(points, options.gpu)
        used = frozenset().union(*labels.values())
        points = {name: it for name, it in points.items() if name in used}
    elif options.widths:
        points = {name: it for name, it in points.items() if SHIPPED not in name}
    wanted = [cell for cell in cells() if not options.widths or cell.width in options.widths]
    only = labels_by_head(wanted, labels) if labels else None
    pool = Pool(points, heads(wanted), options.gpu, options.dtype, only)
    ends = began + options.seconds
    run = Run(options.folder, options.dtype, options.gpu, pool, ends, labels)
    run.kind, run.widths = options.kind, options.widths
    if not options.widths and not run.before("runtime_pool"):
        measure_shapes(run)
    rows = run.before("runtime_grid")
    if options.kind:
        run.labels = close_or_new(points, options.gpu)
    elif not options.after:
        rows = rows or screen(run)
        run.labels = contenders(rows, points, options.gpu)
    if not run.before("runtime_between"):
        measure_between(run, options.between, options.seed)
    measure_grid(run, rows)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return 0


def widths_in(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(","))


# ---- what to measure ----


def heads(some: Iterable[Cell]) -> tuple[tuple[int, str], ...]:
    """Compile-time values of cells."""
    return tuple(dict.fromkeys((cell.width, cell.shape.mask) for cell in some))


def labels_by_head(
    some: Iterable[Cell], labels: Mapping[Place, Labels]
) -> dict[tuple[int, str], Labels]:
    """Those that any cell with these compile-time values wants."""
    by_head: dict[tuple[int, str], Labels] = defaultdict(frozenset)
    for cell in some:
        by_head[cell.width, cell.shape.mask] |= labels.get(key(cell), frozenset())
    return by_head


def shuffled_cells() -> list[Cell]:
    everywhere = cells()
    random.Random(1).shuffle(everywhere)
    return everywhere


def screened_cells(run: Run) -> list[Cell]:
    """Some of each family and D."""
    by_family: dict[tuple[int, int], list[Cell]] = defaultdict(list)
    for cell in filter(run.is_wanted, shuffled_cells()):
        by_family[cell.family, cell.width].append(cell)
    return [
        cell
        for family in by_family.values()
        for cell in family[: max(SCREENED, len(family) // SCREENED_SHARE)]
    ]


def contenders(
    rows: Sequence[Row], points: Mapping[str, Point], gpu: str = DEFAULT
) -> dict[Place, Labels]:
    """By cell: what is close to the fastest nearby, and what was fastest there before."""
    close = {}
    for row in rows:
        own = own_times(row)
        least = min(own.values(), default=0.0)
        close[place_of(row)] = frozenset(name for name in own if own[name] <= CLOSE * least)
    before = fastest_before(points, gpu)
    return {
        place: before.get(place, frozenset()).union(
            *(close[other] for other in nearest(place, close))
        )
        for place in map(key, cells())
    }


def nearest(place: Place, others: Iterable[Place]) -> list[Place]:
    """Of the same family and D, by steps on the axes."""
    alike = [other for other in others if other[:2] == place[:2]]
    alike.sort(key=lambda other: sum(abs(a - b) for a, b in zip(place[2], other[2], strict=True)))
    return alike[:NEAREST]


def close_or_new(points: Mapping[str, Point], gpu: str = DEFAULT) -> dict[Place, Labels]:
    """By cell: contenders by the stored results, and all points that those do not have."""
    stored, known = before(points, gpu)
    rows = [
        {**row, "times": {known[name]: us for name, us in row["times"].items() if name in known}}
        for row in stored.get("rows", ())
    ]
    new = new_labels(points, gpu)
    return {place: labels | new for place, labels in contenders(rows, points, gpu).items()}


def fastest_or_new(points: Mapping[str, Point], gpu: str = DEFAULT) -> dict[Place, Labels]:
    """By cell: what was fastest there by the stored results, and all points those do not have."""
    fastest, new = fastest_before(points, gpu), new_labels(points, gpu)
    return {place: fastest.get(place, frozenset()) | new for place in map(key, cells())}


def new_labels(points: Mapping[str, Point], gpu: str = DEFAULT) -> Labels:
    """Of designs that the stored results lack, one label each."""
    stored = stored_points(find_result(f"{gpu}/runtime_grid"))
    timed = set(map(design, stored.values()))
    new: dict[Design, str] = {}
    for label, point in points.items():
        if design(point) not in timed:
            new.setdefault(design(point), label)
    return frozenset(new.values())


def before(points: Mapping[str, Point], gpu: str = DEFAULT) -> tuple[Row, dict[str, str]]:
    """The stored results, and today's label of each label in them that the pool still has."""
    stored = find_result(f"{gpu}/runtime_grid")
    label_of = {design(point): label for label, point in points.items()}
    old = {label: design(point) for label, point in stored_points(stored).items()}
    return stored, {label: label_of[each] for label, each in old.items() if each in label_of}


def fastest_before(points: Mapping[str, Point], gpu: str = DEFAULT) -> dict[Place, Labels]:
    """By cell: the kernels that were fastest by the stored results, as today's pool calls them."""
    stored, known = before(points, gpu)
    fastest = fastest_labels(stored.get("rows", ()), FASTEST_BEFORE, 0)
    return {
        place: frozenset(known[name] for name in labels if name in known)
        for place, labels in fastest.items()
    }


def fastest_labels(rows: Sequence[Row], count: int, count_beside: int) -> dict[Place, Labels]:
    """By cell: the kernels that were fastest there, and the fastest of the cells beside it."""
    order: dict[Place, list[str]] = {}
    for row in rows:
        own = own_times(row)
        order[place_of(row)] = sorted(own, key=lambda name: own[name])
    return {
        place: frozenset(labels[:count]).union(
            *(order.get(other, ())[:count_beside] for other in beside(place))
        )
        for place, labels in order.items()
    }


def is_out_of_place(label: str, shape: Shape) -> bool:
    rows = shape.H // shape.H_kv * shape.S_q
    return label.startswith("decode ") and rows > MOST_DECODE_ROWS


# ---- measuring ----


def measure_shapes(run: Run) -> None:
    """The whole pool and the peers, on the thirty of the sixty shapes that may be tuned on."""
    rows: list[Row] = []
    for shape in shapes():
        if shape.tuned and run.has_time:
            rows.append(runtime_calls.measured(shape, run.pool, run.dtype))
    summary = runtime_calls.summary(rows)
    print(f"{len(rows)} shapes: {summary}", flush=True)
    run.write("runtime_pool", {"rows": rows, "summary": summary})


def screen(run: Run) -> list[Row]:
    """Times of the whole pool on some cells, which tell what to time on the others."""
    rows = [measured(run, cell, cell.shape) for cell in screened_cells(run) if run.has_time]
    print(f"{len(rows)} cells with the whole pool", flush=True)
    return rows


def measure_between(run: Run, count: int, seed: int) -> None:
    """Drawn shapes; each row has the family of its cell."""
    rows: list[Row] = []
    for cell, shape in drawn_shapes(count, seed):
        if not run.has_time:
            break
        if not run.is_wanted(cell):
            continue
        rows.append(measured(run, cell, shape))
    if rows:
        run.write("runtime_between", {"seed": seed, "rows": rows})
        print(f"{len(rows)} shapes inside of cells", flush=True)


def measure_grid(run: Run, before: Sequence[Row]) -> None:
    rows = list(before)
    began = time.perf_counter()
    known = {place_of(row) for row in rows}
    left = [cell for cell in shuffled_cells() if key(cell) not in known and run.is_wanted(cell)]

    def write() -> None:
        took_s = round(time.perf_counter() - began, 1)
        run.write("runtime_grid", {"seconds": took_s, "rows": sorted(rows, key=place_of)})

    for number, cell in enumerate(left):
        if not run.has_time:
            print(f"no time is left after {number} of {len(left)} cells", flush=True)
            break
        rows.append(measured(run, cell, cell.shape))
        if number % WRITTEN_AFTER == 0:
            print(f"{number} cells, {time.perf_counter() - began:.0f} s", flush=True)
            write()
    write()


def measured(run: Run, cell: Cell, shape: Shape) -> Row:
    import torch

    labels = run.labels.get(key(cell))
    wanted = frozenset(run.pool.points) if labels is None else labels
    wanted = frozenset(name for name in wanted if not is_out_of_place(name, shape))
    with torch.no_grad():
        q, k, v = inputs(shape, run.dtype)
        notes: Row = {}
        library = peers(shape, q, k, v)[FALLBACK]
        own = run.pool.functions(shape, q, k, v, notes, wanted)
        times = times_us({FALLBACK: library} | own, rounds=ROUNDS)
    return {
        "family": cell.family,
        "shape": shape.name,
        "dims": {name: getattr(shape, name) for name in (*DIMS, "D")},
        "mask": shape.mask,
        "times": {name: round(item["us"], 3) for name, item in times.items()},
        "wrong": {name: why for name, why in notes.items() if why.startswith("wrong")},
    }


if __name__ == "__main__":
    raise SystemExit(main())
