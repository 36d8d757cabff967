"""How many waves of blocks a kernel needs, which limits how far a measured time holds.

A GPU runs a certain number of blocks of a kernel at a time. One block more needs another wave,
which takes as long as the first, while the library, with other tiles, may need none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench.gpu.set_files import Built
from bench.results import Row
from greenfast.search.devices.facts import Device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.dispatch.waves import folded
from greenfast.search.kernels.expressions import Expression, Value, expression

MANY = 8  # waves: with so many, one more is little


@dataclass(frozen=True)
class Waves:
    """The blocks of a kernel as an expression of the dims, and how many the GPU runs at a time."""

    blocks: Expression
    at_once: int

    def of(self, dims: Mapping[str, Value]) -> int:
        return math.ceil(self.blocks(dims) / self.at_once)

    def limit(self, point: Mapping[str, Value], farthest: Mapping[str, Value], ratio: float) -> Row:
        """The condition of a rule under which waves alone leave the kernel faster than the library.

        `point`: dims that were measured, with `ratio` of the library's time, at most 1. Empty if
        the `farthest` dims of the rule meet it, too.
        """
        waves = self.of(point)
        most = int(waves / ratio)
        if waves >= MANY or self.of(farthest) <= most:
            return {}
        return {"value": self.blocks.text, "above": 0, "at_most": most * self.at_once}


def waves_of(kernel: Built, device: Device) -> Waves:
    """Of the first launch of a kernel, which has the row tiles."""
    launch = json.loads(kernel.files["launch.json"])
    entry = launch["entries"][0]
    (figures,) = (item for item in kernel.figures if item.entry == entry["entry"])
    resident = occupancy(
        device,
        figures.registers,
        math.prod(entry["block"]),
        figures.smem_static_bytes + entry["smem_dynamic_bytes"],
    )
    constants = {**launch["constants"], "sm_count": launch["sm_count"]}
    text = " * ".join(f"({folded(size, constants)})" for size in entry["grid"])
    at_once = resident.blocks_per_sm * device.multiprocessors
    return Waves(expression(folded(text, {}), "blocks"), at_once)
