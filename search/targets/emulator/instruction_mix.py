"""The machine instructions that warps issue, by class.

Each PTX instruction is counted as often as it is executed, times its expansion by the assembler.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from greenfast.search.targets.emulator.control_flow import Executions
from greenfast.search.toolchain.ptx import Entry, Instruction

CLASSES = (
    "fp32",
    "fp16",
    "int",
    "mma",
    "special",
    "shared",
    "global",
    "generic",
    "async copy",
    "shared float atomic",
    "generic float atomic",
    "conversion",
    "shuffle",
    "control",
    "barrier",
    "other",
)
BUFFER_ADDRESS = 1 << 24  # any that is not null

# The machine instructions of a PTX instruction, where it is not a single one of its own class. The
# first match counts. Sources: ptxas 13.5's output for sm_90, and for fragments PTX ISA, "Matrix
# Fragments for wmma".
EXPANSIONS = tuple(
    (re.compile(pattern), counts)
    for pattern, counts in (
        (r"(mov|cvta|ld\.param|pragma)\b", {}),  # registers are renamed, parameters are operands
        (r"(add|sub|shl|shr|neg|mul\.lo|mad\.lo)\.[busf]64$", {"int": 2}),
        (r"(and|or|xor|not|selp|min|max)\.[bus]64$", {"int": 2}),
        (r"setp\.\w+(\.\w+)?\.[bus]64$", {"int": 2}),
        (r"(div|rem)\.[us]32$", {"int": 16, "special": 1, "conversion": 2}),
        (r"(div|rem)\.[us]64$", {"int": 70, "special": 1, "conversion": 4}),
        (r"(rcp|sqrt)\.r[nzpm]\.f32$", {"special": 1, "fp32": 4, "control": 2}),
        (r"div\.r[nzpm]\.f32$", {"special": 1, "fp32": 7, "control": 2}),
        (r"div\.(full|approx)\.", {"special": 1, "fp32": 2}),
        # Subnormals are scaled (not with .ftz).
        (r"(ex2|lg2|rsqrt|sqrt|rcp)\.approx\.f32$", {"special": 1, "fp32": 3}),
        (r"(sin|cos)\.approx", {"special": 1, "fp32": 1}),
        (r"cvt\.[usb](16|32|64)\.[usb](16|32|64)$", {"int": 0.5}),
        # A lane's eight floats, in pairs.
        (r"wmma\.(load\.c|store\.d)\..*row.*\.shared\.f32$", {"shared": 4}),
        (r"wmma\.(load\.c|store\.d)\..*\.shared\.f32$", {"shared": 8}),
        (r"wmma\.(load|store)\.\w\..*\.global\.", {"global": 4}),
        (r"wmma\.mma\..*m(16n16|32n8|8n32)k16", {"mma": 2}),  # HMMA.16816 computes 16 x 8
        # Shared memory adds integers but not floats: those need a loop of load, addition,
        # ATOMS.CAST.SPIN and branch.
        (
            r"(atom|red)\.(\w+\.)*shared(::cta)?\.add\.(noftz\.)?b?f\d",
            {"shared": 1, "fp32": 1, "shared float atomic": 1, "control": 1},
        ),
        (r"(atom|red)\.((?!global)[\w:]+\.)*add\.(noftz\.)?b?f\d", {"generic float atomic": 1}),
    )
)
# Hopper has no warp-level products of fp8: they are converted to fp16.
FP8_PRODUCT = re.compile(r"mma\.sync\..*m16n8k32.*\.e[45]m[23]\.")
FP8_ON_HOPPER = (("mma", 2.0), ("conversion", 12.0), ("fp32", 4.0))


@dataclass(frozen=True)
class InstructionMix:
    """One block's warp instructions."""

    by_class: tuple[tuple[str, float], ...]  # of CLASSES, in their order

    def __getitem__(self, name: str) -> float:
        return dict(self.by_class)[name]


def block_mixes(entry: Entry, followed: Executions) -> tuple[InstructionMix, ...]:
    """The mix of each block that was followed."""
    return tuple(_mix(entry, counts) for counts in followed.by_block)


def _mix(entry: Entry, counts: Sequence[int]) -> InstructionMix:
    sums: dict[str, float] = defaultdict(float)
    for instruction, count in zip(entry.instructions, counts, strict=True):
        for name, machine_instructions in expansion(instruction, entry.sm) if count else ():
            sums[name] += count * machine_instructions
    return InstructionMix(tuple((name, sums[name]) for name in CLASSES))


def expansion(instruction: Instruction, sm: int) -> tuple[tuple[str, float], ...]:
    """(class, machine instructions) of a PTX instruction."""
    if sm == 90 and FP8_PRODUCT.match(instruction.opcode):
        return FP8_ON_HOPPER
    return _expansion(instruction.opcode)


@cache
def _expansion(opcode: str) -> tuple[tuple[str, float], ...]:
    for pattern, counts in EXPANSIONS:
        if pattern.match(opcode):
            return tuple(counts.items())
    return ((class_of(opcode), 1.0),)


def class_of(opcode: str) -> str:
    """One of CLASSES.

    `generic` accesses may reach any memory, also of another block in the cluster.
    """
    name, *modifiers = opcode.split(".")
    parts = frozenset(modifiers)
    if "mma" in parts or name in ("mma", "wgmma"):
        return "mma"
    if name == "cp":
        return "async copy"
    if name in ("ld", "st", "ldmatrix", "stmatrix", "atom", "red", "wmma", "prefetch"):
        if parts & {"shared", "shared::cta"} or name in ("ldmatrix", "stmatrix"):
            return "shared"
        return (
            "global"
            if name in ("wmma", "prefetch") or parts & {"global", "const", "local"}
            else "generic"
        )
    if name in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"):
        return "special"
    if name in ("bra", "brx", "ret", "exit", "call", "trap"):
        return "control"
    if name in ("bar", "barrier", "membar", "fence", "mbarrier"):
        return "barrier"
    if name == "cvt":
        return "conversion"
    return _arithmetic_class(name, parts)


def _arithmetic_class(name: str, parts: frozenset[str]) -> str:
    if name in ("shfl", "vote", "match", "redux", "activemask"):
        return "shuffle"
    if name in ("mov", "nanosleep", "elect", "mapa", "getctarank", "setmaxnreg", "griddepcontrol"):
        return "other"
    if parts & {"f32", "f64"}:
        return "fp32"
    if parts & {"f16", "f16x2", "bf16", "bf16x2"}:
        return "fp16"
    return "int"
