"""Times of gemm's kernels on a grid of layers, to make greenfast.linear's set from (linear_set).

    python -m bench.gpu.linear_times FOLDER [--dtype bf16] [--seconds 300] [--gpu h200]

First the product alone: on each cell of the grid the points whose tiles fit its sizes, beside
PyTorch's linear. Then each form (bias, activation, residual): on each cell the two fastest of the
product and the fastest of the cells beside it, next to PyTorch's operations one after another.
Calls run in CUDA graphs, in turns. The file, h200/linear_grid or with _fp16 behind, is written as
it goes; cells come in a shuffled order, so a run that was cut short leaves gaps anywhere. fp16
takes the fastest points of bf16.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import times_us
from bench.gpu.linear_pool import FORMS, PRODUCT, Form, LinearPool, inputs, library, likely, points
from bench.gpu.measured_gpu import add_gpu, result_of
from bench.gpu.runtime_calls import environment
from bench.results import Row, find_result, write_result

M = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
N = (768, 1024, 2048, 3072, 4096, 6144, 8192, 14336, 28672)
K = (768, 1024, 2048, 4096, 8192, 14336)
MOST_PRODUCTS = 2**40  # M N K
LIKELY, FASTEST, ROUNDS = 11, 2, 5
LIBRARY = "library"
WRITTEN_AFTER = 100
Cell = tuple[int, int, int]  # places on the axes


@dataclass(frozen=True)
class Axis:
    """Sizes of a dim; the cell of a size reaches half way (as a factor) to its neighbours."""

    name: str
    sizes: tuple[int, ...]

    def limits(self, place: int) -> tuple[int, int]:
        """above < size <= at_most"""
        size = self.sizes[place]
        before = self.sizes[place - 1] if place else size // 2
        after = self.sizes[place + 1] if place + 1 < len(self.sizes) else 2 * size
        above = int((before * size) ** 0.5) if place else size // 2
        return above, int((size * after) ** 0.5)


AXES = (Axis("M", M), Axis("N", N), Axis("K", K))


def cells() -> list[Cell]:
    return [
        (m, n, k)
        for m in range(len(M))
        for n in range(len(N))
        for k in range(len(K))
        if M[m] * N[n] * K[k] <= MOST_PRODUCTS
    ]


def sizes(cell: Cell) -> tuple[int, int, int]:
    m, n, k = cell
    return M[m], N[n], K[k]


def sides(cell: Cell) -> Iterator[tuple[int, int, Cell]]:
    """Axis, step and cell of the neighbours."""
    for axis, places in enumerate(AXES):
        for step in (-1, 1):
            place = cell[axis] + step
            if 0 <= place < len(places.sizes):
                yield axis, step, (*cell[:axis], place, *cell[axis + 1 :])  # type: ignore[misc]


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--seconds", type=float, default=300.0)
    add_gpu(parser)
    options = parser.parse_args()
    require_gpu()
    measure(options.folder, options.dtype, options.gpu, options.seconds)
    return 0


def measure(folder: Path, dtype: str, gpu: str, seconds: float) -> None:
    began = time.perf_counter()
    ends = began + seconds
    known = find_result(result_of("linear_grid", "bf16", gpu), folder)
    if dtype == "bf16":
        pool = LinearPool((PRODUCT,), dtype, gpu, points())
        plain = products(pool, dtype, ends)
    else:
        plain = [row for row in known.get("rows", ()) if row["form"] == PRODUCT.name]
    wanted = contenders(plain)
    used = {label for labels in wanted.values() for label in labels}
    pool = LinearPool(FORMS, dtype, gpu, {n: it for n, it in points().items() if n in used})
    rows = list(plain) if dtype == "bf16" else []
    forms = FORMS if dtype != "bf16" else FORMS[1:]
    todo = [(form, cell) for cell in shuffled() if cell in wanted for form in forms]
    for number, (form, cell) in enumerate(todo):
        if time.perf_counter() > ends:
            print(f"no time is left after {number} of {len(todo)}", flush=True)
            break
        rows.append(measured(pool, form, cell, wanted[cell], dtype))
        if number % WRITTEN_AFTER == 0:
            print(f"{number} of {len(todo)}, {time.perf_counter() - began:.0f} s", flush=True)
            write(folder, dtype, gpu, rows)
    write(folder, dtype, gpu, rows)
    print(f"{len(rows)} rows, {time.perf_counter() - began:.0f} s", flush=True)


def write(folder: Path, dtype: str, gpu: str, rows: Sequence[Row]) -> None:
    some = points()
    used = {label for row in rows for label in row["times"]} - {LIBRARY}
    result = {
        "environment": environment(),
        "rows": sorted(rows, key=lambda row: (row["form"], row["cell"])),
        "points": {
            name: {"template": some[name].template, "parameters": some[name].parameters}
            for name in sorted(used)
        },
    }
    write_result(result_of("linear_grid", dtype, gpu), result, folder)


def shuffled() -> list[Cell]:
    everywhere = cells()
    random.Random(1).shuffle(everywhere)
    return everywhere


def products(pool: LinearPool, dtype: str, ends: float) -> list[Row]:
    labels = [label for _, label in pool.kernels]
    rows = []
    for cell in shuffled():
        if time.perf_counter() > ends:
            break
        few = likely(labels, *sizes(cell), LIKELY)
        rows.append(measured(pool, PRODUCT, cell, few, dtype))
    print(f"{len(rows)} of {len(cells())} cells, the product alone", flush=True)
    return rows


def contenders(rows: Sequence[Row]) -> dict[Cell, frozenset[str]]:
    """By cell: the fastest points there, and the fastest of the cells beside it."""
    order: Mapping[Cell, list[str]] = {
        tuple(row["cell"]): sorted(
            (name for name in row["times"] if name != LIBRARY), key=lambda name: row["times"][name]
        )
        for row in rows
    }
    return {
        cell: frozenset(labels[:FASTEST]).union(
            *(order.get(other, ())[:1] for _, _, other in sides(cell))
        )
        for cell, labels in order.items()
    }


def measured(
    pool: LinearPool, form: Form, cell: Cell, labels: Sequence[str] | frozenset[str], dtype: str
) -> Row:
    import torch

    notes: Row = {}
    with torch.no_grad():
        tensors = inputs(form, *sizes(cell), dtype)
        functions = {LIBRARY: library(form, tensors)}
        functions |= pool.functions(form, tensors, labels, notes)
        times = times_us(functions, rounds=ROUNDS)
    return {
        "form": form.name,
        "cell": list(cell),
        "dims": dict(zip("MNK", sizes(cell), strict=True)),
        "times": {name: round(item["us"], 3) for name, item in times.items()},
        "notes": notes,
    }


if __name__ == "__main__":
    raise SystemExit(main())
