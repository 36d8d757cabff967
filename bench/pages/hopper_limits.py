"""What attention's tiles allow at most, from stored parameters and the device's facts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.results import Row
from greenfast.search.devices.facts import Device, device

GPU = "h200"


@dataclass(frozen=True)
class Limits:
    """The work of the busiest multiprocessor, each unit alone at its peak and the maximum clock."""

    row_tiles: int
    waves: float  # of row tiles over the blocks that run at once
    useful: float  # share of the scores that a row tile computes and needs
    products_us: float
    exponentials_us: float


def limits(workload: str, parameters: Row, on: Device | None = None) -> Limits:
    """Of attention/wgmma. Causal walks count as half of the keys, on average."""
    facts = on or device(GPU)
    values = dict(item.split("=") for item in workload.split(","))
    size = {name: int(value) for name, value in values.items() if value.isdigit()}
    rows, keys, columns = size["S_q"], size.get("S_kv", size["S_q"]), size["D"]
    tile_m, tile_n = 64 * parameters["consumers"], parameters["tile_n"]
    row_tiles = size["B"] * size["H"] * math.ceil(rows / tile_m)
    walked = math.ceil(keys / tile_n) * tile_n
    needed = float(keys)
    if values.get("mask", "none") != "none":
        walked, needed = round((walked + tile_m) / 2), keys / 2
    scores = tile_m * walked * math.ceil(row_tiles / facts.multiprocessors)
    cycles_us = facts.clock_max_mhz
    polynomial = parameters["exp_polynomial"] / 8
    return Limits(
        row_tiles,
        row_tiles / (facts.multiprocessors * parameters["blocks_per_sm"]),
        rows * needed / (math.ceil(rows / tile_m) * tile_m * walked),
        4.0 * scores * columns / facts.tensor_flop_per_cycle_per_sm("bf16") / cycles_us,
        scores * (1 - polynomial) / facts.special_function_per_cycle_per_sm / cycles_us,
    )
