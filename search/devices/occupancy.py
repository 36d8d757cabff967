"""Occupancy: the number of a kernel's blocks that an SM holds, and the resource that limits it.

Source: CUDA C++ Programming Guide, "Hardware Multithreading". Warps get registers in units, and
each block has a reserved part of the shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from greenfast.search.devices.facts import Device

SMEM_UNIT_BYTES = 128


@dataclass(frozen=True)
class Occupancy:
    """Blocks of a kernel on an SM."""

    blocks_per_sm: int
    share: float  # resident threads / the SM's threads
    limited_by: str


def occupancy(device: Device, registers: int, threads_per_block: int, smem_bytes: int) -> Occupancy:
    """The occupancy of a kernel; 0 blocks when none fits.

    `registers` are per thread; `smem_bytes` is a block's static and dynamic shared memory.
    """
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
