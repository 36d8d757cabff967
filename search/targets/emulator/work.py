"""What the blocks of a problem's launches do: the emulator's counters, shared out by the mix of instructions.

The emulator counts over all blocks of all launches of a run. A block has that part of the wavefronts, sectors, products
and barriers that it has of the warp instructions which make them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import LaunchPlan, Problem, Scalar
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
from greenfast.search.toolchain.ptx import read_entries

MADE_BY = {"wavefronts": "shared", "sectors": "global", "products": "mma", "barriers": "barrier"}


LaunchMixes = tuple[InstructionMix, ...]  # of each sampled block of a launch


def mixes_of(problem: Problem, cubin: Cubin, sampled: int) -> tuple[LaunchMixes, ...]:
    """By launch, of about so many of its blocks; empty when the compiler's PTX cannot be followed."""
    try:
        entries = read_entries(cubin.ptx)
        return tuple(
            block_mixes(
                entries[launch.entry],
                arguments_of(problem, launch),
                launch.grid,
                launch.block,
                sampled_blocks(launch, sampled),
                launch.cluster,
            )
            for launch in problem.launches
        )
    except (Fault, KeyError, ValueError):
        return ()


def estimated_mixes(problem: Problem, counters: Counters, sampled: int) -> tuple[LaunchMixes, ...]:
    """In place of `mixes_of`: what was counted, and the arithmetic that the operation needs at least; blocks alike."""
    share = 1 / max(1, counters.blocks_executed)
    mma = sum(flop for _, flop in counters.mma_flop) * share
    blocks = sum(math.prod(one.grid) for one in problem.launches)
    counts = {
        "fp32": max(0.0, problem.work_flop / blocks - mma) / 64,
        "mma": mma / 4096,
        "special": counters.special_function_ops * share / 32,
        "shared": sum(one.count for one in counters.per_line if one.kind.startswith("shared"))
        * share,
        "global": sum(one.count for one in counters.per_line if one.kind.startswith("global"))
        * share,
        "shared float atomic": counters.shared_float_additions * share,
        "shuffle": counters.warp_collectives * share,
        "barrier": counters.barriers * counters.warps_per_block * share,
    }
    mix = InstructionMix(tuple((name, counts.get(name, 0.0)) for name in CLASSES), 1.0)
    return tuple((mix,) * len(sampled_blocks(launch, sampled)) for launch in problem.launches)


def launch_works(
    problem: Problem, counters: Counters, cubin: Cubin, mixes: Sequence[LaunchMixes], sampled: int
) -> tuple[LaunchWork, ...]:
    """What the model needs of each launch."""
    totals = _totals(counters, sum(map(len, mixes)))
    everything = [mix for launch_mixes in mixes for mix in launch_mixes]
    shares = {
        name: iter(_shares([mix[made_by] for mix in everything]))
        for name, made_by in MADE_BY.items()
    }
    found = []
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
                )
            )
        entry = next(one for one in cubin.entries if one.entry == launch.entry)
        found.append(LaunchWork(launch, entry.registers, entry.smem_static_bytes, tuple(blocks)))
    return tuple(found)


def whole_mix(
    problem: Problem, mixes: Sequence[LaunchMixes], sampled: int
) -> tuple[tuple[str, float], ...]:
    """Warp instructions by class of all launches' blocks, the most frequent first."""
    sums: Mapping[str, float] = defaultdict(float)
    for launch, launch_mixes in zip(problem.launches, mixes, strict=True):
        for mix, weight in zip(launch_mixes, block_weights(launch, sampled), strict=True):
            for name, count in mix.by_class:
                sums[name] += count * weight
    return tuple(
        sorted(((name, count) for name, count in sums.items() if count), key=lambda one: -one[1])
    )


def sampled_blocks(launch: LaunchPlan, sampled: int) -> tuple[int, ...]:
    """The blocks that a counted run executes: about `sampled` of them, in whole clusters."""
    return tuple(
        _block_of(launch, cluster.number, rank)
        for cluster in _sample(launch, sampled)
        for rank in range(math.prod(launch.cluster))
    )


def block_weights(launch: LaunchPlan, sampled: int) -> tuple[float, ...]:
    """Of each sampled block, the blocks of the launch that it stands for."""
    size = math.prod(launch.cluster)
    return tuple(cluster.weight for cluster in _sample(launch, sampled) for _ in range(size))


def sample_of(launch: LaunchPlan, sampled: int) -> tuple[int, ...]:
    """The clusters that a counted run executes; empty: all."""
    sample = _sample(launch, sampled)
    whole = math.prod(launch.grid) // math.prod(launch.cluster)
    return () if len(sample) == whole else tuple(cluster.number for cluster in sample)


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
    """Values of the entry's parameters; a pointer is any address but null."""
    given = problem.arguments if launch.arguments is None else launch.arguments
    return tuple(
        None if one is None else one.value if isinstance(one, Scalar) else BUFFER_ADDRESS
        for one in given
    )


def _totals(counters: Counters, sampled: int) -> dict[str, float]:
    """What `sampled` blocks made, should the kernel's text have made clusters of them and others been executed."""
    scale = sampled / max(1, counters.blocks_executed)
    return {
        "wavefronts": counters.shared_wavefronts * scale,
        "sectors": counters.global_sectors * scale,
        "barriers": counters.barriers * scale,
        "products": scale,
    }


def _shares(made: Sequence[float]) -> list[float]:
    """Of each executed block, of a total over all of them; alike where none made any."""
    whole = sum(made)
    return [one / whole if whole else 1 / len(made) for one in made]
