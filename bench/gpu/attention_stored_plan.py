"""The plan `fastest` of bench.gpu.attention_variants: what was fastest in stored results."""

from __future__ import annotations

from functools import partial

from bench.gpu.attention_plans import Plan
from bench.gpu.long_rows import DTYPE, SEARCHES, VARIANTS, planned, stored_designs
from bench.results import Row, find_result

OF_EACH = 3  # points of one result


def stored_points(name: str) -> list[Row]:
    workload = f"{name},dtype={DTYPE}"
    points = [
        point["parameters"]
        for result in VARIANTS
        for row in find_result(result).get("rows", ())
        if row["workload"] == workload
        for point in row["points"][:OF_EACH]  # they are sorted
    ]
    winners = [
        design.parameters
        for of, design in stored_designs()
        if of == workload and design.template == "wgmma"
    ]
    runners_up = [
        design["parameters"]
        for result in SEARCHES
        for row in find_result(result).get("rows", ())
        if row["workload"] == workload and row["baseline"].startswith("wgmma:")
        for design in row.get("fastest", ())[:OF_EACH]
    ]
    return points + winners + runners_up


# For each row of long_rows: the fastest points of every result that has it, of any GPU.
FASTEST_PLAN: Plan = {
    shape.name: partial(stored_points, shape.name)
    for shape, baseline in planned()
    if baseline.startswith("wgmma:")
}
