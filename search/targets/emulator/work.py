"""The work of the blocks of a problem's launches: counters, divided by the mix of instructions.

The emulator's counters cover all blocks of all launches of a run. A block's share of the
wavefronts, sectors, products and barriers is its share of the warp instructions that cause them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Problem,
    Scalar,
)
from greenfast.search.targets.emulator.control_flow import executions
from greenfast.search.targets.emulator.execute import Counters
from greenfast.search.targets.emulator.instruction_mix import (
    BUFFER_ADDRESS,
    CLASSES,
    InstructionMix,
    block_mixes,
)
from greenfast.search.targets.emulator.model import BlockWork, LaunchWork
from greenfast.search.targets.emulator.sample import SampledCluster, sampled_clusters
from greenfast.search.toolchain import Cubin
from greenfast.search.toolchain.ptx import Entry, read_entries

CAUSES = {"wavefronts": "shared", "sectors": "global", "products": "mma", "barriers": "barrier"}


LaunchMixes = tuple[InstructionMix, ...]  # of each sampled block of a launch


def mixes_of(problem: Problem, cubin: Cubin, sampled: int) -> tuple[LaunchMixes, ...]:
    """The mixes of about `sampled` blocks of each launch.

    Empty when the compiler's PTX cannot be followed.
    """
    try:
        entries = read_entries(cubin.ptx)
        return tuple(
            _mixes_of_launch(entries[launch.entry], problem, launch, sampled)
            for launch in problem.launches
        )
    except (Fault, KeyError, ValueError):
        return ()


def _mixes_of_launch(
    entry: Entry, problem: Problem, launch: LaunchPlan, sampled: int
) -> LaunchMixes:
    arguments, blocks = arguments_of(problem, launch), sampled_blocks(launch, sampled)
    return block_mixes(
        entry, executions(entry, arguments, launch.grid, launch.block, blocks, launch.cluster)
    )


def estimated_mixes(problem: Problem, counters: Counters, sampled: int) -> tuple[LaunchMixes, ...]:
    """A substitute for `mixes_of`, from counters and the arithmetic that the operation requires.

    All blocks have the same mix.
    """
    share = 1 / max(1, counters.blocks_executed)
    mma = sum(flop for _, flop in counters.mma_flop) * share
    products = mma + sum(flop for _, flop in counters.wgmma_flop) * share
    blocks = sum(math.prod(launch.grid) for launch in problem.launches)
    counts = {
        "fp32": max(0.0, problem.work_flop / blocks - products) / 64,
        "mma": mma / 4096,
        "special": counters.special_function_ops * share / 32,
        "shared": _accesses(counters, "shared") * share,
        "global": _accesses(counters, "global") * share,
        "shared float atomic": counters.shared_float_additions * share,
        "shuffle": counters.warp_collectives * share,
        "barrier": counters.barriers * counters.warps_per_block * share,
    }
    mix = InstructionMix(tuple((name, counts.get(name, 0.0)) for name in CLASSES))
    return tuple((mix,) * len(sampled_blocks(launch, sampled)) for launch in problem.launches)


def _accesses(counters: Counters, memory: str) -> int:
    return sum(line.count for line in counters.per_line if line.kind.startswith(memory))


def launch_works(
    problem: Problem, counters: Counters, cubin: Cubin, mixes: Sequence[LaunchMixes], sampled: int
) -> tuple[LaunchWork, ...]:
    """The model's input for each launch."""
    totals = _totals(counters, sum(map(len, mixes)))
    everything = [mix for launch_mixes in mixes for mix in launch_mixes]
    shares = {
        name: iter(_shares([mix[cause] for mix in everything])) for name, cause in CAUSES.items()
    }
    works = []
    executed = max(1, counters.blocks_executed)  # asynchronous work is the same in all blocks
    for launch, launch_mixes in zip(problem.launches, mixes, strict=True):
        blocks = []
        for mix, weight in zip(launch_mixes, block_weights(launch, sampled), strict=True):
            share = {name: next(left) for name, left in shares.items()}
            products = tuple(
                (name.partition("_")[0], flop * totals["products"] * share["products"])
                for name, flop in counters.mma_flop
                if flop
            )
            blocks.append(
                BlockWork(
                    math.ceil(math.prod(launch.block) / 32),
                    products,
                    totals["wavefronts"] * share["wavefronts"],
                    totals["sectors"] * share["sectors"],
                    totals["barriers"] * share["barriers"],
                    dict(mix.by_class),
                    counters.float_addition_turns,
                    weight,
                    tuple(
                        (name.partition("_")[0], flop / executed)
                        for name, flop in counters.wgmma_flop
                        if flop
                    ),
                    (counters.bulk_copy_bytes + counters.wgmma_operand_bytes) / executed,
                    max(0.0, counters.copy_rounds / executed - 1),
                )
            )
        figures = next(entry for entry in cubin.entries if entry.entry == launch.entry)
        works.append(
            LaunchWork(launch, figures.registers, figures.smem_static_bytes, tuple(blocks))
        )
    return tuple(works)


def whole_mix(
    problem: Problem, mixes: Sequence[LaunchMixes], sampled: int
) -> tuple[tuple[str, float], ...]:
    """Warp instructions of all launches by class, the most frequent first."""
    sums: dict[str, float] = defaultdict(float)
    for launch, launch_mixes in zip(problem.launches, mixes, strict=True):
        for mix, weight in zip(launch_mixes, block_weights(launch, sampled), strict=True):
            for name, count in mix.by_class:
                sums[name] += count * weight
    counts = ((name, count) for name, count in sums.items() if count)
    return tuple(sorted(counts, key=lambda item: -item[1]))


def sampled_blocks(launch: LaunchPlan, sampled: int) -> tuple[int, ...]:
    """The blocks that a counted run executes: about `sampled` of them, in whole clusters."""
    return tuple(
        _block_of(launch, cluster.number, rank)
        for cluster in _sample(launch, sampled)
        for rank in range(math.prod(launch.cluster))
    )


def block_weights(launch: LaunchPlan, sampled: int) -> tuple[float, ...]:
    """The blocks of the launch that each sampled block represents."""
    size = math.prod(launch.cluster)
    return tuple(cluster.weight for cluster in _sample(launch, sampled) for _ in range(size))


def sample_of(launch: LaunchPlan, sampled: int) -> tuple[int, ...]:
    """The clusters that a counted run executes; empty: all."""
    sample = _sample(launch, sampled)
    whole = math.prod(launch.grid) // math.prod(launch.cluster)
    return () if len(sample) == whole else tuple(cluster.number for cluster in sample)


def ends_of(launch: LaunchPlan) -> tuple[int, ...]:
    """The first and the last cluster."""
    whole = math.prod(launch.grid) // math.prod(launch.cluster)
    return tuple(dict.fromkeys((0, whole - 1)))


def _sample(launch: LaunchPlan, sampled: int) -> tuple[SampledCluster, ...]:
    return sampled_clusters(launch.grid, launch.cluster, sampled)


def _block_of(launch: LaunchPlan, cluster: int, rank: int) -> int:
    """The number of a cluster's block; both count x first (PTX ISA, "%cluster_ctarank")."""
    columns, rows = launch.grid[0] // launch.cluster[0], launch.grid[1] // launch.cluster[1]
    x = cluster % columns * launch.cluster[0] + rank % launch.cluster[0]
    y = (
        cluster // columns % rows * launch.cluster[1]
        + rank // launch.cluster[0] % launch.cluster[1]
    )
    z = (
        cluster // columns // rows * launch.cluster[2]
        + rank // launch.cluster[0] // launch.cluster[1]
    )
    return (z * launch.grid[1] + y) * launch.grid[0] + x


def arguments_of(problem: Problem, launch: LaunchPlan) -> tuple[int | float | None, ...]:
    """The values of the entry's parameters. Every pointer has one address, which is not null."""
    arguments = problem.arguments if launch.arguments is None else launch.arguments
    return tuple(map(_value, arguments))


def _value(argument: GivenArgument) -> int | float | None:
    if isinstance(argument, Scalar):
        return argument.value
    if isinstance(argument, TensorMap):
        return math.nan  # no instruction's result follows from a map's bytes
    return None if argument is None else BUFFER_ADDRESS


def _totals(counters: Counters, sampled: int) -> dict[str, float]:
    """Totals over `sampled` blocks.

    More or fewer may have been executed, when the kernel's text makes clusters of its blocks.
    """
    scale = sampled / max(1, counters.blocks_executed)
    return {
        "wavefronts": counters.shared_wavefronts * scale,
        "sectors": counters.global_sectors * scale,
        "barriers": counters.barriers * scale,
        "products": scale,
    }


def _shares(counts: Sequence[float]) -> list[float]:
    """Each block's share of the total; equal shares when the total is 0."""
    total = sum(counts)
    return [count / total if total else 1 / len(counts) for count in counts]
