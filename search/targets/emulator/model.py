"""A modelled time from counted events, the assembler's figures and device facts. Never a measured one.

Each resource of an SM is charged the cycles that its blocks' counted events cost it, and one warp the latencies that
it meets one after another. Resources work side by side, but not wholly: their cycles are added in a norm between sum
and maximum. What the model does not see: the order of instructions, L2 hits, how well loads are spread in time. It
orders candidates that differ by more than `BAND`, and nothing closer is told apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from greenfast.search.devices.facts import Device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.oracle.problem import LaunchPlan

# NORM, FITTED, LATENCY and the cycles below it were fitted to 105 attention candidates of two templates on an H200, and
# rounded (bench/results/gpu_check.json); CLUSTER_CYCLES to a third template, on which the others are a prediction
# (bench/results/model_check.json, model_recorded.json). There of the pairs that the model puts twice or more apart fewer
# than 1 % are ordered the other way, and none in the former. One kernel, one GPU: elsewhere BAND is a guess.
BAND = 2.0  # a factor
NORM = 3
FITTED = 1.1
WARP_MMA_SHARE = {
    90: 0.62
}  # of the tensor peak that warp-level mma reaches; arXiv 2402.13499, table of mma.sync
WARP_FP8_AS_FP16 = (
    90,
)  # where mma.sync of fp8 is products of fp16 between conversions: ptxas 13.5's output
MMA_FORMATS = {
    "f16": "fp16",
    "fp8": "e4m3",
}  # of counters, by the devices' names; others have the same
GLOBAL_BYTES_PER_CYCLE = 64  # an SM's path to L2
BLOCK_START_CYCLES = 600  # launch of a block, first loads
SCHEDULERS = 4
LAUNCH_US = 0.9  # one more node of a CUDA graph on an H200
CLUSTER_CYCLES = 20  # of the SM, for each access by a generic address and each block of a cluster
# Until a warp goes on that adds floats atomically, which is a loop of compare-and-swap. Warps do so side by side, so it is
# what one of them waits. Fitted to 51 candidates that were timed on an H200, and rounded; 14 more, of the longest workload,
# are a prediction (bench/results/model_atomics.json).
SHARED_ATOMIC_CYCLES = 120  # to its block's shared memory, for each turn of its lanes
CLUSTER_ATOMIC_CYCLES = 600  # to that of any block of its cluster, by a generic address
# Cycles until a warp goes on, of an instruction between others of its kind; of a barrier with the wait for other warps.
LATENCY = {
    "fp32": 2,
    "fp16": 2,
    "int": 2,
    "conversion": 2,
    "control": 2,
    "shared": 3,
    "global": 12,
    "generic": 12,
    "generic float atomic": 12,
    "async copy": 12,
    "mma": 4,
    "special": 8,
    "shuffle": 28,
}
BARRIER_CYCLES = 150
WAVEFRONT_CYCLES = 1.4


@dataclass(frozen=True)
class BlockWork:
    """What one counted block of a launch does."""

    warps: float
    mma_flop: tuple[tuple[str, float], ...]  # by the input's format: f16, bf16, tf32, fp8
    shared_wavefronts: float
    global_sectors: float
    barriers: float
    mix: Mapping[
        str, float
    ]  # warp instructions by class, as greenfast.search.targets.emulator.instruction_mix has them
    float_atomic_turns: float  # of a warp's lanes that add floats to shared memory
    weight: float = 1.0  # blocks of the launch that it stands for


@dataclass(frozen=True)
class LaunchWork:
    """One launch of a problem, with what the assembler says of its entry."""

    launch: LaunchPlan
    registers: int
    smem_static_bytes: int
    blocks: tuple[BlockWork, ...]  # a sample

    def in_turn(self, turns: int, cost: Callable[[BlockWork], float]) -> float:
        """The cost of `turns` blocks one after another: a block of the average each, and the heaviest last.

        Blocks are handed out as others end, so nothing takes longer than this (Graham, "Bounds on Multiprocessing
        Timing Anomalies", 1969); where blocks are alike it is `turns` times their cost.
        """
        costs = [cost(block) for block in self.blocks]
        weights = [block.weight for block in self.blocks]
        mean = sum(map(mul, costs, weights)) / sum(weights)
        return (turns - 1) * mean + max(costs)


@dataclass(frozen=True)
class ModelledTime:
    """`limits`: what each resource alone would take, the longest first."""

    time_us: float
    limits: tuple[tuple[str, float], ...]

    @property
    def limited_by(self) -> str:
        return self.limits[0][0]

    @property
    def next_limits(self) -> tuple[str, ...]:
        """The two resources behind the first."""
        return tuple(name for name, _ in self.limits[1:3])


def model(device: Device, launches: Sequence[LaunchWork], dram_bytes: float) -> ModelledTime:
    """The time of launches one after another; `dram_bytes` is the compulsory traffic of them all."""
    times = [model_launch(device, launch, dram_bytes / len(launches)) for launch in launches]
    sums: Counter[str] = Counter()
    for timing in times:
        sums.update(dict(timing.limits))
    return ModelledTime(sum(timing.time_us for timing in times), tuple(sums.most_common()))


def model_launch(device: Device, work: LaunchWork, dram_bytes: float) -> ModelledTime:
    """The time of one launch."""
    launch = work.launch
    fit = occupancy(
        device,
        work.registers,
        math.prod(launch.block),
        work.smem_static_bytes + launch.smem_dynamic_bytes,
    ).blocks_per_sm
    blocks = math.ceil(
        math.prod(launch.grid) / device.multiprocessors
    )  # of the busiest SM, all in all
    cycles = {
        name: work.in_turn(blocks, lambda block, name=name: resource_cycles(device, block)[name])
        for name in resource_cycles(device, work.blocks[0])
    }
    rounds = math.ceil(blocks / max(1, fit))
    cycles["latency"] = work.in_turn(rounds, _warp_cycles)
    cycles["DRAM"] = dram_bytes / device.dram_bytes_per_us * device.clock_max_mhz
    together = sum(cycle**NORM for cycle in cycles.values()) ** (1 / NORM)
    us = FITTED / device.clock_max_mhz
    limits = {name: us * one for name, one in cycles.items()}
    size = math.prod(launch.cluster)
    reached = (
        work.in_turn(blocks, lambda block: block.mix["generic"]) * CLUSTER_CYCLES * size
        if size > 1
        else 0.0
    )
    limits["cluster memory"] = reached / device.clock_max_mhz
    limits["float atomics"] = (
        work.in_turn(rounds, lambda block: _atomic_cycles(block, size > 1)) / device.clock_max_mhz
    )
    alone = limits["cluster memory"] + limits["float atomics"]  # nothing else goes on meanwhile
    return ModelledTime(us * together + alone + LAUNCH_US, tuple(Counter(limits).most_common()))


def resource_cycles(device: Device, work: BlockWork) -> dict[str, float]:
    """Cycles that one block keeps each resource of its SM busy."""
    mix = work.mix
    lanes = {
        "fp32": device.fp32_flop_per_cycle_per_sm / 2,
        "integer": device.int32_per_cycle_per_sm,
        "special functions": device.special_function_per_cycle_per_sm,
    }
    instructions = {
        "fp32": mix["fp32"],
        "integer": mix["int"] + mix["conversion"],
        "special functions": mix["special"],
    }
    return {
        "tensor cores": sum(flop / warp_mma_rate(device, form) for form, flop in work.mma_flop),
        "shared memory": work.shared_wavefronts * 128 / device.shared_bytes_per_cycle_per_sm
        + mix["shuffle"],
        "global memory": work.global_sectors * 32 / GLOBAL_BYTES_PER_CYCLE,
        "instruction issue": sum(mix.values()) / SCHEDULERS,
        **{name: 32 * count / lanes[name] for name, count in instructions.items()},
    }


def warp_mma_rate(device: Device, form: str) -> float:
    """FLOP a cycle and SM of mma.sync on inputs of a counters' format."""
    named = MMA_FORMATS.get(form, form)
    if named in ("e4m3", "e5m2") and device.sm in WARP_FP8_AS_FP16:
        named = "fp16"
    peak = device.tensor_flop_per_cycle_per_sm(named) or device.tensor_fp16_flop_per_cycle_per_sm
    return peak * WARP_MMA_SHARE.get(device.sm, 1.0)


def _warp_cycles(work: BlockWork) -> float:
    """One warp from its first instruction to its last, all latencies met."""
    met = sum(LATENCY.get(name, 0) * count for name, count in work.mix.items())
    return (
        (met + WAVEFRONT_CYCLES * work.shared_wavefronts) / work.warps
        + BARRIER_CYCLES * work.barriers
        + BLOCK_START_CYCLES
    )


def _atomic_cycles(work: BlockWork, in_cluster: bool) -> float:
    """What one warp waits for its float additions to shared memory; those by generic addresses reach it in clusters only."""
    reached = CLUSTER_ATOMIC_CYCLES * work.mix["generic float atomic"] if in_cluster else 0.0
    own = SHARED_ATOMIC_CYCLES * work.mix["shared float atomic"] * work.float_atomic_turns
    return (own + reached) / work.warps
