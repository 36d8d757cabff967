"""How many blocks of a kernel one SM holds, and what stops it from holding more.

Source: CUDA C++ Programming Guide, "Hardware Multithreading": registers are handed out to warps in units, shared
memory to blocks with a reserved part each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from greenfast.search.devices.facts import Device

SMEM_UNIT_BYTES = 128


@dataclass(frozen=True)
class Occupancy:
    blocks_per_sm: int
    share: float  # resident threads / the SM's threads
    limited_by: str


def occupancy(device: Device, registers: int, threads_per_block: int, smem_bytes: int) -> Occupancy:
    """`smem_bytes`: static and dynamic of one block. 0 blocks when one does not fit."""
    warps = -(-threads_per_block // 32)
    unit = device.register_unit_per_warp
    per_warp = max(unit, -(-registers * 32 // unit) * unit)
    per_block = -(-(smem_bytes + device.smem_reserved_bytes) // SMEM_UNIT_BYTES) * SMEM_UNIT_BYTES
    bounds = {
        "threads": device.threads_per_sm // (warps * 32),
        "registers": device.registers_per_sm // (per_warp * warps),
        "shared memory": device.smem_per_sm_bytes // per_block if smem_bytes else math.inf,
        "blocks": device.blocks_per_sm,
    }
    limited_by = min(bounds, key=lambda name: bounds[name])
    blocks = int(bounds[limited_by])
    return Occupancy(blocks, blocks * warps * 32 / device.threads_per_sm, limited_by)
