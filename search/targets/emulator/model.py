"""A modelled time from counted events, the assembler's figures and device facts.

Each resource of an SM is charged the cycles that the counted events of its blocks cost, and one
warp is charged the latencies that it waits for in sequence. Resources overlap, though not
perfectly: their cycles are combined in a norm between sum and maximum. The model does not see the
order of instructions, L2 hits, or how loads are spread over time. It can order candidates whose
times differ by more than a factor of `BAND`, and no closer ones.
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

# NORM, FITTED, LATENCY and the cycles below it were fitted to 105 attention candidates of two
# templates on an H200, and rounded (bench/results/gpu_check.json). CLUSTER_CYCLES was fitted to a
# third template, for which the others are a prediction (bench/results/model_check.json,
# model_recorded.json). Among pairs whose modelled times differ by a factor of 2 or more, the
# measured order is the opposite for fewer than 1 % in the latter and for none in the former.
# One kernel, one GPU: elsewhere BAND is a guess.
BAND = 2.0  # a factor
NORM = 3
FITTED = 1.1
# Share of the tensor peak that warp-level mma reaches, by sm: arXiv 2402.13499, table of mma.sync.
WARP_MMA_SHARE = {90: 0.62}
# Where mma.sync of fp8 is compiled to products of fp16 between conversions: ptxas 13.5's output.
WARP_FP8_AS_FP16 = (90,)
# From a counter's format to the devices' name for it, where they differ.
MMA_FORMATS = {"f16": "fp16", "fp8": "e4m3"}
GLOBAL_BYTES_PER_CYCLE = 64  # an SM's path to L2
BLOCK_START_CYCLES = 600  # launch of a block and its first loads
SCHEDULERS = 4
LAUNCH_US = 0.9  # of each further node of a CUDA graph on an H200
CLUSTER_CYCLES = 20  # of the SM, per access by a generic address and block of a cluster
# The wait of a warp that adds floats atomically, which is a loop of compare-and-swap. Warps wait in
# parallel, so one warp's wait is charged. Fitted to 51 candidates timed on an H200, and rounded; 14
# more, of the longest workload, are a prediction (bench/results/model_atomics.json).
SHARED_ATOMIC_CYCLES = 120  # in its block's shared memory, per turn of its lanes
CLUSTER_ATOMIC_CYCLES = 600  # in the memory of any block of its cluster, by a generic address
# The wait of a warp for an instruction among others of its kind; a barrier's includes the wait for
# other warps.
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
# From one fill of a ring's place by bulk copies to the next: the copy's latency, its bytes, the
# products that read them, and the release. Fitted to half of 37 candidates of a product of 512 rows
# on an H200, and rounded; the other half and attention are predictions
# (bench/results/model_hopper.json.gz).
REFILL_CYCLES = 3500
WAVEFRONT_CYCLES = 1.4


@dataclass(frozen=True)
class BlockWork:
    """The work of one counted block of a launch."""

    warps: float
    mma_flop: tuple[tuple[str, float], ...]  # by the input's format: f16, bf16, tf32, fp8
    shared_wavefronts: float
    global_sectors: float
    barriers: float
    mix: Mapping[str, float]  # warp instructions by class, of instruction_mix.CLASSES
    float_atomic_turns: float  # of a warp's lanes that add floats to shared memory
    weight: float = 1.0  # the blocks of the launch that it represents
    wgmma_flop: tuple[tuple[str, float], ...] = ()  # of warpgroups, by the input's format
    async_bytes: float = 0.0  # that bulk copies and warpgroups' operands move in shared memory
    refills: float = 0.0  # of the most used place of a ring that bulk copies fill


@dataclass(frozen=True)
class LaunchWork:
    """One launch of a problem, with the assembler's figures for its entry."""

    launch: LaunchPlan
    registers: int
    smem_static_bytes: int
    blocks: tuple[BlockWork, ...]  # a sample

    def in_turn(self, turns: int, cost: Callable[[BlockWork], float]) -> float:
        """The cost of `turns` blocks in sequence: average ones, and the most expensive one last.

        A block starts when another ends, so this is an upper bound (Graham, "Bounds on
        Multiprocessing Timing Anomalies", 1969). For equal blocks it is `turns` times their cost.
        """
        costs = [cost(block) for block in self.blocks]
        weights = [block.weight for block in self.blocks]
        mean: float = sum(map(mul, costs, weights)) / sum(weights)
        return (turns - 1) * mean + max(costs)


@dataclass(frozen=True)
class ModelledTime:
    """A time, and in `limits` the time of each resource alone in us, the longest first."""

    time_us: float
    limits: tuple[tuple[str, float], ...]

    @property
    def limited_by(self) -> str:
        return self.limits[0][0]


def model(device: Device, launches: Sequence[LaunchWork], dram_bytes: float) -> ModelledTime:
    """The time of launches in sequence; `dram_bytes` is the compulsory traffic of all of them."""
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
    blocks = math.ceil(math.prod(launch.grid) / device.multiprocessors)  # of the busiest SM

    def resource(name: str) -> Callable[[BlockWork], float]:
        return lambda block: resource_cycles(device, block)[name]

    cycles = {
        name: work.in_turn(blocks, resource(name))
        for name in resource_cycles(device, work.blocks[0])
    }
    rounds = math.ceil(blocks / max(1, fit))
    cycles["latency"] = work.in_turn(rounds, _warp_cycles)
    cycles["DRAM"] = dram_bytes / device.dram_bytes_per_us * device.clock_max_mhz
    together: float = sum(cycle**NORM for cycle in cycles.values()) ** (1 / NORM)
    # A ring's places are filled beside everything else, but one fill of a place waits for the last.
    cycles["ring"] = work.in_turn(rounds, lambda block: block.refills * REFILL_CYCLES)
    together = max(together, cycles["ring"])
    us = FITTED / device.clock_max_mhz
    limits = {name: us * cycle for name, cycle in cycles.items()}
    size = math.prod(launch.cluster)
    remote = (
        work.in_turn(blocks, lambda block: block.mix["generic"]) * CLUSTER_CYCLES * size
        if size > 1
        else 0.0
    )
    limits["cluster memory"] = remote / device.clock_max_mhz
    limits["float atomics"] = (
        work.in_turn(rounds, lambda block: _atomic_cycles(block, size > 1)) / device.clock_max_mhz
    )
    alone = limits["cluster memory"] + limits["float atomics"]  # nothing overlaps with these
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
        "tensor cores": sum(flop / warp_mma_rate(device, form) for form, flop in work.mma_flop)
        + sum(flop / warpgroup_mma_rate(device, form) for form, flop in work.wgmma_flop),
        "shared memory": (work.shared_wavefronts * 128 + work.async_bytes)
        / device.shared_bytes_per_cycle_per_sm
        + mix["shuffle"],
        "global memory": work.global_sectors * 32 / GLOBAL_BYTES_PER_CYCLE,
        "instruction issue": sum(mix.values()) / SCHEDULERS,
        **{name: 32 * count / lanes[name] for name, count in instructions.items()},
    }


def warp_mma_rate(device: Device, form: str) -> float:
    """FLOP per cycle and SM of mma.sync on inputs of a counter's format."""
    named = MMA_FORMATS.get(form, form)
    if named in ("e4m3", "e5m2") and device.sm in WARP_FP8_AS_FP16:
        named = "fp16"
    peak = device.tensor_flop_per_cycle_per_sm(named) or device.tensor_fp16_flop_per_cycle_per_sm
    return peak * WARP_MMA_SHARE.get(device.sm, 1.0)


def warpgroup_mma_rate(device: Device, form: str) -> float:
    """FLOP per cycle and SM of wgmma, which reaches the tensor cores' peak."""
    named = MMA_FORMATS.get(form, form)
    return device.tensor_flop_per_cycle_per_sm(named) or device.tensor_fp16_flop_per_cycle_per_sm


def _warp_cycles(work: BlockWork) -> float:
    """Cycles of one warp from its first instruction to its last, with all latencies."""
    latency = sum(LATENCY.get(name, 0) * count for name, count in work.mix.items())
    return (
        (latency + WAVEFRONT_CYCLES * work.shared_wavefronts) / work.warps
        + BARRIER_CYCLES * work.barriers
        + BLOCK_START_CYCLES
    )


def _atomic_cycles(work: BlockWork, in_cluster: bool) -> float:
    """Cycles that one warp waits for its float additions to shared memory.

    Those by generic addresses reach shared memory in clusters only.
    """
    remote = CLUSTER_ATOMIC_CYCLES * work.mix["generic float atomic"] if in_cluster else 0.0
    local = SHARED_ATOMIC_CYCLES * work.mix["shared float atomic"] * work.float_atomic_turns
    return (local + remote) / work.warps
