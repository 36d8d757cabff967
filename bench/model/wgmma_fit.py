"""How well do a few figures of gemm/wgmma's tiles explain its times on an H200?

    python -m bench.model.wgmma_fit [--save]

The times are those of bench.gpu.gemm_sweep: about 140 points on each of 18 sizes, L2 hot. For each
point the busiest multiprocessor's work follows from the parameters: products, bytes of operands
that it loads, bytes of C, sums exchanged between the parts of K, tiles and steps. A time is a sum
of these with costs >= 0, fitted to relative errors. Every size is predicted by costs that were
fitted to the other 17. This fit is a study: the emulator's modelled times do not use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.model.agreement import spearman
from bench.pages.gemm_limits import DEPTH, limits
from bench.results import Row, read_result
from greenfast.search.devices.facts import device

RESULT = "h200/gemm_sweep"
# As a point's values are listed in the sweep's result.
NAMES = (
    "swap",
    "tile_n",
    "consumers",
    "consumer_rows",
    "stages",
    "scheduler",
    "split_k",
    "cluster_rows",
    "cluster_columns",
    "blocks_per_sm",
    "raster_rows",
    "epilogue",
    "store_buffers",
    "promotion_bytes",
)
FIGURES = ("launch", "tiles", "steps", "products", "loads", "slower of both", "c", "exchange")
ROUNDS = 4000  # of the fit, which is convex


def figures(workload: str, parameters: Row) -> list[float]:
    """The busiest multiprocessor's figures, in us or counts, in the order of FIGURES."""
    facts = device("h200")
    of = limits(workload, parameters)
    turns = math.ceil(of.tiles / facts.multiprocessors)
    high, wide = parameters["consumers"] * parameters["consumer_rows"], parameters["tile_n"]
    loaded = high / parameters["cluster_columns"] + wide / parameters["cluster_rows"]
    loads_us = turns * of.steps * loaded * 2 * DEPTH / 64 / facts.clock_max_mhz
    split = parameters["split_k"]
    c_us = turns * high * wide * 2 / split / 64 / facts.clock_max_mhz
    exchange_us = turns * high * wide * 4 * (split - 1) / split / 64 / facts.clock_max_mhz
    return [
        1.0,
        turns,
        turns * of.steps / 10,
        of.products_us,
        loads_us,
        max(of.products_us, loads_us),
        c_us,
        exchange_us,
    ]


def fitted(rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Costs >= 0 that minimise the squares of relative errors, by projected gradients."""
    scaled = rows / times[:, None]
    sizes = np.maximum(np.sqrt((scaled**2).mean(axis=0)), 1e-12)
    scaled = scaled / sizes
    square, aim = scaled.T @ scaled, scaled.sum(axis=0)
    step, costs = 1.0 / np.linalg.norm(square, 2), np.full(rows.shape[1], 0.1)
    ahead, momentum = costs.copy(), 1.0
    for _ in range(ROUNDS):
        moved = np.maximum(ahead - step * (square @ ahead - aim), 0.0)
        following = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / following * (moved - costs)
        costs, momentum = moved, following
    return costs / sizes


def points(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Figures and times of a size's points."""
    given = [dict(zip(NAMES, point["parameters"], strict=True)) for point in row["points"]]
    return (
        np.array([figures(row["workload"], parameters) for parameters in given]),
        np.array([point["us"] for point in row["points"]]),
    )


def judged(workload: str, predicted: np.ndarray, times: np.ndarray) -> Row:
    errors = np.abs(np.log(predicted / times))
    best = int(np.argmin(predicted))
    return {
        "workload": workload,
        "points": len(times),
        "median_error": round(float(np.expm1(np.median(errors))), 3),
        "error_90": round(float(np.expm1(np.quantile(errors, 0.9))), 3),
        "rank_correlation": round(spearman(list(predicted), list(times)), 3),
        "pick_over_best": round(float(times[best] / times.min()), 3),
    }


def left_out(sizes: Sequence[Row]) -> tuple[list[Row], np.ndarray]:
    """Each size by the costs of the others, and all errors."""
    data = [points(row) for row in sizes]
    rows, errors = [], []
    for number, row in enumerate(sizes):
        others = [each for at, each in enumerate(data) if at != number]
        costs = fitted(
            np.vstack([each[0] for each in others]), np.concatenate([each[1] for each in others])
        )
        predicted = data[number][0] @ costs
        rows.append(judged(row["workload"], predicted, data[number][1]))
        errors.append(np.abs(np.log(predicted / data[number][1])))
    return rows, np.concatenate(errors)


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    sizes = read_result(RESULT)["rows"]
    rows, errors = left_out(sizes)
    data = [points(row) for row in sizes]
    costs = fitted(
        np.vstack([each[0] for each in data]), np.concatenate([each[1] for each in data])
    )
    summary = {
        "what": "summary",
        "points": len(errors),
        "median_error": round(float(np.expm1(np.median(errors))), 3),
        "error_90": round(float(np.expm1(np.quantile(errors, 0.9))), 3),
        "rank_correlation": round(float(np.median([row["rank_correlation"] for row in rows])), 3),
        "costs": {name: round(float(cost), 4) for name, cost in zip(FIGURES, costs, strict=True)},
    }
    publish("model_wgmma", [summary, *rows], save=options.save)


if __name__ == "__main__":
    main()
