"""A modelled time from counted events, the assembler's figures and device facts. Never a measured one.

Each block is charged, pipe by pipe, the cycles that its counted events cost; an SM runs as many blocks as fit, and
the grid goes round in waves. What the model does not see: instruction scheduling, register dependencies, L2 hits. It
orders candidates that differ by more than `BAND`, and nothing closer is told apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from search.devices import Device
from search.memory import LaunchPlan
from search.occupancy import occupancy

# Measured over 105 attention candidates on an H200 (bench/results/gpu_check.json): of the pairs that the model puts
# 2.5 or more apart, fewer than 1 % are ordered the other way. FITTED is the median of measured time over the plain sum;
# with it, nine of ten measured times are 0.6 to 1.9 times the modelled one.
BAND = 2.5                           # a factor
FITTED = 2.2
WARP_MMA_SHARE = {90: 0.62}          # of the tensor peak that warp-level mma reaches; Hopper: arXiv 2402.13499, table of mma.sync
GLOBAL_BYTES_PER_CYCLE = 64          # an SM's path to L2
BARRIER_CYCLES = 30
BLOCK_START_CYCLES = 600             # launch of a block, first loads
DEPENDENT_ISSUE_CYCLES = 5           # between two dependent instructions of one warp
SCHEDULERS = 4
LAUNCH_US = 0.9                      # one more node of a CUDA graph on an H200


@dataclass(frozen=True)
class BlockWork:
    """What one block of a launch does, averaged over the counted ones."""

    warps: float
    mma_flop: float
    fp32_flop: float                 # the operation's work that did not go through tensor cores
    shared_wavefronts: float
    global_sectors: float
    special_function_ops: float
    warp_instructions: float         # counted memory instructions and collectives, and what the arithmetic needs
    barriers: float


@dataclass(frozen=True)
class ModelledTime:
    """`cycles` by pipe for one SM with all its resident blocks; `limited_by` names the largest share."""

    time_us: float
    limited_by: str
    next_limits: tuple[str, ...]
    cycles: tuple[tuple[str, float], ...]


def model_launch(device: Device, launch: LaunchPlan, registers: int, smem_static_bytes: int, work: BlockWork,
                 dram_bytes: float) -> ModelledTime:
    """The time of one launch."""
    threads = math.prod(launch.block)
    fit = occupancy(device, registers, threads, smem_static_bytes + launch.smem_dynamic_bytes).blocks_per_sm
    blocks = math.prod(launch.grid)
    resident = max(1, min(fit, math.ceil(blocks / device.multiprocessors)))
    waves = math.ceil(blocks / (device.multiprocessors * resident))
    pipes = _pipe_cycles(device, work)
    serial = (work.warp_instructions / work.warps * DEPENDENT_ISSUE_CYCLES + work.barriers * BARRIER_CYCLES
              + BLOCK_START_CYCLES)
    cycles = {**{name: waves * resident * cost for name, cost in pipes.items()}, "latency": waves * serial,
              "DRAM": dram_bytes / device.dram_bytes_per_us * device.clock_max_mhz}
    ranked = sorted(cycles, key=lambda name: -cycles[name])
    return ModelledTime(FITTED * cycles[ranked[0]] / device.clock_max_mhz + LAUNCH_US, ranked[0], tuple(ranked[1:3]),
                        tuple((name, cycles[name]) for name in ranked))


def _pipe_cycles(device: Device, work: BlockWork) -> dict[str, float]:
    """Cycles that one block keeps each pipe of its SM busy."""
    tensor = device.tensor_fp16_flop_per_cycle_per_sm * WARP_MMA_SHARE.get(device.sm, 1.0)
    return {
        "tensor cores": work.mma_flop / tensor,
        "fp32": work.fp32_flop / device.fp32_flop_per_cycle_per_sm,
        "shared memory": work.shared_wavefronts * 128 / device.shared_bytes_per_cycle_per_sm,
        "global memory": work.global_sectors * 32 / GLOBAL_BYTES_PER_CYCLE,
        "special functions": work.special_function_ops / device.special_function_per_cycle_per_sm,
        "issue": work.warp_instructions / SCHEDULERS,
    }
