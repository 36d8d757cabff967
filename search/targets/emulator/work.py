"""What the blocks of a problem's launches do: the emulator's counters, shared out by the mix of instructions.

The emulator counts over all launches of a run. A launch has that part of the wavefronts, sectors, products and barriers
that its blocks have of the warp instructions which make them; with one launch that is all of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from search.errors import Fault
from search.instruction_mix import BUFFER_ADDRESS, CLASSES, InstructionMix, instruction_mix
from search.memory import LaunchPlan, Problem, Scalar
from search.targets.emulator.execute import Counters
from search.targets.emulator.model import BlockWork, LaunchWork
from search.toolchain import Cubin
from search.toolchain.ptx import read_entries

MADE_BY = {"wavefronts": "shared", "sectors": "global", "products": "mma", "barriers": "barrier"}


def mixes_of(problem: Problem, cubin: Cubin, sampled: int) -> tuple[InstructionMix, ...]:
    """One a launch, from about so many of its blocks; empty when the compiler's PTX cannot be followed."""
    try:
        entries = read_entries(cubin.ptx)
        return tuple(instruction_mix(entries[one.entry], arguments_of(problem, one), one.grid, one.block,
                                     sampled_blocks(one, sampled), one.cluster) for one in problem.launches)
    except (Fault, KeyError, ValueError):
        return ()


def estimated_mixes(problem: Problem, counters: Counters) -> tuple[InstructionMix, ...]:
    """In place of `mixes_of`: what was counted, and the arithmetic that the operation needs at least."""
    share = 1 / max(1, counters.blocks_executed)
    mma = sum(flop for _, flop in counters.mma_flop) * share
    blocks = sum(math.prod(one.grid) for one in problem.launches)
    counts = {"fp32": max(0.0, problem.work_flop / blocks - mma) / 64, "mma": mma / 4096,
              "special": counters.special_function_ops * share / 32,
              "shared": sum(one.count for one in counters.per_line if one.kind.startswith("shared")) * share,
              "global": sum(one.count for one in counters.per_line if one.kind.startswith("global")) * share,
              "shared float atomic": counters.shared_float_additions * share, "shuffle": counters.warp_collectives * share,
              "barrier": counters.barriers * counters.warps_per_block * share}
    mix = InstructionMix(tuple((name, counts.get(name, 0.0)) for name in CLASSES), 1.0)
    return (mix,) * len(problem.launches)


def launch_works(problem: Problem, counters: Counters, cubin: Cubin, mixes: Sequence[InstructionMix],
                 sampled: int) -> tuple[LaunchWork, ...]:
    """What the model needs of each launch."""
    executed = [len(sampled_blocks(one, sampled)) for one in problem.launches]
    flop = sum(flop for _, flop in counters.mma_flop)
    totals = {"wavefronts": counters.shared_wavefronts, "sectors": counters.global_sectors, "products": flop,
              "barriers": counters.barriers}
    shares = {name: _shares([mix[made_by] for mix in mixes], executed) for name, made_by in MADE_BY.items()}
    found = []
    for number, (launch, mix) in enumerate(zip(problem.launches, mixes, strict=True)):
        block = {name: totals[name] * shares[name][number] for name in totals}
        products = tuple((name.partition("_")[0], block["products"] * one / flop)
                         for name, one in counters.mma_flop if one)
        entry = next(one for one in cubin.entries if one.entry == launch.entry)
        work = BlockWork(math.ceil(math.prod(launch.block) / 32), products, block["wavefronts"], block["sectors"],
                         block["barriers"], dict(mix.by_class), counters.float_addition_turns)
        found.append(LaunchWork(launch, entry.registers, entry.smem_static_bytes, work))
    return tuple(found)


def whole_mix(problem: Problem, mixes: Sequence[InstructionMix]) -> tuple[tuple[str, float], ...]:
    """Warp instructions by class of all launches' blocks, the most frequent first."""
    sums: Mapping[str, float] = defaultdict(float)
    for launch, mix in zip(problem.launches, mixes, strict=True):
        for name, count in mix.by_class:
            sums[name] += count * math.prod(launch.grid)
    return tuple(sorted(((name, count) for name, count in sums.items() if count), key=lambda one: -one[1]))


def sampled_blocks(launch: LaunchPlan, sampled: int) -> tuple[int, ...]:
    """The blocks that a counted run executes: `sampled` of them, evenly spread, in whole clusters."""
    size = math.prod(launch.cluster)
    clusters = math.prod(launch.grid) // size
    executed = min(-(-sampled // size), clusters)
    return tuple(_block_of(launch, number * clusters // executed, rank)
                 for number in range(executed) for rank in range(size))


def _block_of(launch: LaunchPlan, cluster: int, rank: int) -> int:
    """The number of a cluster's block; both count x first (PTX ISA, "%cluster_ctarank")."""
    columns, rows = launch.grid[0] // launch.cluster[0], launch.grid[1] // launch.cluster[1]
    x = cluster % columns * launch.cluster[0] + rank % launch.cluster[0]
    y = cluster // columns % rows * launch.cluster[1] + rank // launch.cluster[0] % launch.cluster[1]
    z = cluster // columns // rows * launch.cluster[2] + rank // launch.cluster[0] // launch.cluster[1]
    return (z * launch.grid[1] + y) * launch.grid[0] + x


def arguments_of(problem: Problem, launch: LaunchPlan) -> tuple[int | float | None, ...]:
    """Values of the entry's parameters; a pointer is any address but null."""
    given = problem.arguments if launch.arguments is None else launch.arguments
    return tuple(None if one is None else one.value if isinstance(one, Scalar) else BUFFER_ADDRESS for one in given)


def _shares(made: Sequence[float], executed: Sequence[int]) -> list[float]:
    """Of each launch's block, of a total over all executed blocks; by their numbers where none made any."""
    whole = sum(one * count for one, count in zip(made, executed))
    return [one / whole if whole else 1 / sum(executed) for one in made]
