"""How often each instruction of a PTX entry is executed, without executing all of it.

Loops and branches of a kernel mostly depend on thread indices and arguments. So only the
instructions that decide branches are evaluated, on integers, for all threads of some blocks at
once. All others are counted only. Diverged threads join again as on the GPU: a loop runs to its end
before the code behind it, and both sides of a branch before their join. A branch that depends on
memory, floats or votes is undecided here: it is counted as not taken, and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.integer_ptx import (
    Lanes,
    evaluate,
    is_evaluated,
    registers_in,
    written_by,
)
from greenfast.search.toolchain.ptx import Entry, Instruction

WARP = 32
MOST_VISITS = 400_000  # of basic blocks: some 5 s
LEAVING = ("ret", "exit", "trap")
JUMPING = ("bra", "brx", *LEAVING)


@dataclass(frozen=True)
class Executions:
    """Warp executions in the blocks that were followed."""

    by_block: tuple[tuple[int, ...], ...]  # of each block, by instruction in the entry's order
    branches: int  # conditional ones
    undecided: int  # those that depend on data, counted as not taken


def executions(
    entry: Entry,
    arguments: Sequence[int | float | None],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    blocks: Sequence[int],
    cluster: tuple[int, int, int] = (1, 1, 1),
) -> Executions:
    """Follow `blocks`, numbered in the grid with x fastest.

    `arguments` are in the entry's order; None is a null pointer.
    Fault when the walk does not end within MOST_VISITS.
    """
    values = {name: value for (name, _), value in zip(entry.parameters, arguments, strict=True)}
    lanes = Lanes(grid, block, blocks, values, cluster)
    walk = _Walk(entry, lanes, len(blocks))
    while walk.step():
        pass
    by_block = tuple(map(tuple, walk.by_block().tolist()))
    return Executions(by_block, walk.branches, walk.undecided)


@dataclass(frozen=True)
class _Span:
    """A basic block: instructions first to last - 1, of which `deciding` are evaluated."""

    first: int
    last: int
    deciding: tuple[Instruction, ...]
    jump: Instruction | None
    target: int  # a span's number


class _Walk:
    """The span that each thread is at, and the number of warps' visits to each span."""

    def __init__(self, entry: Entry, lanes: Lanes, blocks: int) -> None:
        self.entry, self.lanes, self.blocks = entry, lanes, blocks
        self.spans = _spans(entry)
        self.done = len(self.spans)
        order = _ordered([self.done, *range(self.done)], _successors(self.spans))
        self.order = np.array(order)  # of execution: span numbers
        self.rank = np.argsort(self.order)  # of each span in `order`
        self.at = np.where(lanes.exists, self.rank[0], self.rank[self.done])
        self.visits = np.zeros((self.done, blocks), np.int64)
        self.registers: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.steps = self.branches = self.undecided = 0

    def step(self) -> bool:
        """Move the threads that are furthest behind through a span; False when all have left."""
        rank = int(self.at.min())
        number = int(self.order[rank])
        if number == self.done:
            return False
        self.steps += 1
        if self.steps > MOST_VISITS:
            raise Fault(
                f"the branches of {self.entry.name} were not followed to their end",
                code="mix_too_long",
            )
        here = self.at == rank
        warps = here.reshape(self.blocks, -1, WARP).any(axis=2).sum(axis=1)
        span = self.spans[number]
        self.visits[number] += warps
        for instruction in span.deciding:
            evaluate(instruction, self.lanes, self.registers, here)
        self.at[here] = self.rank[number + 1]
        if span.jump is not None:
            jumps = (
                here
                if not span.jump.guard
                else here & self._taken(span.jump, here, int(warps.sum()))
            )
            self.at[jumps] = self.rank[span.target]
        return True

    def _taken(self, jump: Instruction, here: np.ndarray, warps: int) -> np.ndarray:
        value, known = self.registers.get(jump.guard, self.lanes.unknown)
        self.branches += warps
        self.undecided += int((here & ~known).reshape(-1, WARP).any(axis=1).sum())
        taken: np.ndarray = known & ((value == 0) if jump.negated else (value != 0))
        return taken

    def by_block(self) -> np.ndarray:
        """Warp executions, [block, instruction]."""
        counts = np.zeros((self.blocks, len(self.entry.instructions)), np.int64)
        for span, visits in zip(self.spans, self.visits, strict=True):
            counts[:, span.first : span.last] = visits[:, np.newaxis]
        return counts


def _spans(entry: Entry) -> tuple[_Span, ...]:
    """The entry, cut before labels and after jumps."""
    instructions = entry.instructions
    cuts = {0, len(instructions), *entry.labels.values()}
    cuts |= {
        number + 1 for number, instruction in enumerate(instructions) if instruction.name in JUMPING
    }
    edges = sorted(cuts)
    number_at = {position: number for number, position in enumerate(edges)}
    needed = _deciding_registers(instructions)
    spans = []
    for first, last in pairwise(edges):
        jump = instructions[last - 1] if instructions[last - 1].name in JUMPING else None
        to = last  # a branch by a table is assumed to fall through
        if jump is not None and jump.name != "brx":
            to = len(instructions) if jump.name in LEAVING else entry.labels[jump.operands[0]]
        deciding = tuple(
            instruction
            for instruction in instructions[first:last]
            if written_by(instruction) & needed
        )
        spans.append(_Span(first, last, deciding, jump, number_at[to]))
    return tuple(spans)


def _successors(spans: Sequence[_Span]) -> dict[int, set[int]]:
    """The successors of each span; number len(spans) is the end."""
    successors: dict[int, set[int]] = {len(spans): set()}
    for number, span in enumerate(spans):
        successors[number] = {span.target} if span.jump is not None else set()
        if span.jump is None or span.jump.guard or span.jump.name == "brx":
            successors[number].add(number + 1)
    return successors


def _ordered(nodes: Sequence[int], successors: Mapping[int, set[int]]) -> list[int]:
    """The nodes in an order that keeps a loop together behind its head, and a join last.

    A weak topological order (Bourdoncle 1993): strongly connected components in order, and each of
    them, without its head, ordered in the same way.
    """
    inside = set(nodes)
    before: dict[int, set[int]] = {node: set() for node in nodes}
    for node in nodes:
        for successor in successors[node] & inside:
            before[successor].add(node)
    result: list[int] = []
    placed: set[int] = set()
    for head in reversed(_postorder(nodes, successors, inside)):
        if head not in placed:
            loop = _postorder([head], before, inside - placed)
            placed.update(loop)
            result.append(head)
            result += _ordered(sorted(set(loop) - {head}), successors) if len(loop) > 1 else ()
    return result


def _postorder(
    starts: Sequence[int], successors: Mapping[int, set[int]], inside: set[int]
) -> list[int]:
    """The nodes reachable from the starts, each after its successors (except in loops)."""
    seen: set[int] = set()
    order: list[int] = []
    for start in starts:
        path = [] if start in seen else [(start, iter(sorted(successors[start] & inside)))]
        seen.add(start)
        while path:
            node, rest = path[-1]
            following = next((successor for successor in rest if successor not in seen), None)
            if following is None:
                order.append(node)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(sorted(successors[following] & inside))))
    return order


def _deciding_registers(instructions: Sequence[Instruction]) -> frozenset[str]:
    """The registers that branches depend on, directly or through evaluated instructions."""
    writers: dict[str, list[Instruction]] = {}
    for instruction in instructions:
        for register in written_by(instruction):
            writers.setdefault(register, []).append(instruction)
    pending = [
        instruction.guard
        for instruction in instructions
        if instruction.name in JUMPING and instruction.guard
    ]
    needed: set[str] = set()
    while pending:
        register = pending.pop()
        if register in needed:
            continue
        needed.add(register)
        for writer in writers.get(register, ()):
            if writer.guard:
                pending.append(writer.guard)
            if is_evaluated(writer):
                pending += registers_in(writer)
    return frozenset(needed)
