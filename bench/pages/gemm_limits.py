"""What a product's tiles allow at most, from its stored parameters and the device's facts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.results import Row
from greenfast.search.devices.facts import Device, device

GPU = "h200"
DEPTH = 64  # elements of K that a step of the ring holds
RUN = 16  # elements of K of a product, to which `short_last` rounds


@dataclass(frozen=True)
class Limits:
    """The work of a product's busiest multiprocessor, at the tensor cores' peak rate and clock."""

    tiles: int  # of C, times the parts of K
    waves: int
    fill: float  # share of the multiprocessors' turns that have a tile
    useful: float  # share of the products that are of elements of C
    products_us: float  # of the busiest multiprocessor
    steps: int  # of the ring, of a tile


def limits(workload: str, parameters: Row, on: Device | None = None) -> Limits:
    facts = on or device(GPU)
    m, n, k = (int(item.partition("=")[2]) for item in workload.split(","))
    rows, columns = (n, m) if parameters["swap"] else (m, n)
    high = (1 if parameters.get("turns") else parameters["consumers"]) * parameters["consumer_rows"]
    wide, split = parameters["tile_n"], parameters["split_k"]
    across = math.ceil(rows / (high * parameters["cluster_rows"])) * parameters["cluster_rows"]
    along = math.ceil(columns / (wide * parameters["cluster_columns"]))
    tiles = across * along * parameters["cluster_columns"] * split
    at_once = facts.multiprocessors * parameters["blocks_per_sm"]
    turns = math.ceil(tiles / facts.multiprocessors)
    steps = math.ceil(math.ceil(k / DEPTH) / split)
    is_short = parameters.get("short_last", False) and split == 1
    depth = math.ceil(k / RUN) * RUN if is_short else steps * DEPTH
    flop = 2.0 * high * wide * depth * turns
    peak = facts.tensor_flop_per_cycle_per_sm("bf16") * facts.clock_max_mhz  # FLOP a us
    return Limits(
        tiles,
        math.ceil(tiles / at_once),
        tiles / (turns * facts.multiprocessors),
        m * n * k / (tiles * high * wide * depth),
        flop / peak,
        steps,
    )
