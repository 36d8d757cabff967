"""greenfast.attention beside its fallback on drawn shapes: does a rule ever cost time?

    python -m bench.gpu.drawn_calls OUT.json [--count 300] [--seed 7] [--seconds 60]

The shapes lie inside of random cells of the grids that the shipped set was made from, in both
types: between the points that were measured, at even and odd lengths. Each is called in CUDA graphs
in turns with PyTorch's default, which would run without a rule. Needs greenfast's runtime alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import times_us
from bench.gpu.grid_shapes import drawn_shapes
from bench.gpu.runtime_calls import environment, inputs, peers
from bench.gpu.runtime_shapes import Shape
from bench.results import Row, write_json

FALLBACK = "torch-default"
DTYPES = ("bf16", "fp16")
ROUNDS = 9
DISTURBED = 2.0  # times the time in the other type


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--count", type=int, default=300, help="of shapes")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    require_gpu()
    rows: list[Row] = []
    began = time.perf_counter()
    for cell, shape in drawn_shapes(options.count, options.seed):
        if time.perf_counter() - began > options.seconds:
            break
        rows += [{"family": cell.family, **measured(shape, dtype)} for dtype in DTYPES]
    result = {"environment": environment(), "seed": options.seed, "rows": rows}
    write_json(options.out, result)
    print(summary(rows), flush=True)
    return 0


def measured(shape: Shape, dtype: str) -> Row:
    """Times where a kernel serves the shape; else the kernel is None."""
    import torch

    import greenfast

    q, k, v = inputs(shape, dtype)
    settings = {"is_causal": shape.is_causal, "enable_gqa": shape.H_kv != shape.H}
    kernel = greenfast.explain(greenfast.attention, q, k, v, **settings).kernel
    row: Row = {
        "shape": shape.name,
        "dims": {name: getattr(shape, name) for name in ("B", "H", "H_kv", "S_q", "S_kv", "D")},
        "dtype": dtype,
        "mask": shape.mask,
        "kernel": kernel,
    }
    if kernel is None:
        return row
    library = peers(shape, q, k, v)[FALLBACK]
    with torch.no_grad():
        ours = {"greenfast": lambda: greenfast.attention(q, k, v, **settings)}
        times = times_us({FALLBACK: library} | ours, rounds=ROUNDS)
    return {**row, "times": {name: round(item["us"], 3) for name, item in times.items()}}


def undisturbed(rows: Sequence[Row]) -> list[Row]:
    """Without rows in which PyTorch took over twice as long as in the other type: something else
    ran on the machine."""
    library: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        if "times" in row:
            library[row["shape"], row["mask"]][row["dtype"]] = row["times"][FALLBACK]

    def is_disturbed(row: Row) -> bool:
        times = library[row["shape"], row["mask"]]
        return "times" in row and times[row["dtype"]] > DISTURBED * min(times.values())

    return [row for row in rows if not is_disturbed(row)]


def ratio(row: Row) -> float:
    times = row["times"]
    return float(times["greenfast"] / times[FALLBACK])


def summary(rows: list[Row]) -> Row:
    ratios = sorted(ratio(row) for row in rows if "times" in row)
    return {
        "calls": len(rows),
        "by_kernels": len(ratios),
        "above_1": sum(value > 1 for value in ratios),
        "above_1.05": sum(value > 1.05 for value in ratios),
        "worst": ratios[-1:],
    }


if __name__ == "__main__":
    raise SystemExit(main())
