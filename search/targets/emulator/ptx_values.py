"""How an instruction of inline PTX names its values in C++, and what every handler shares."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from greenfast.search.targets.emulator.ptx_text import (
    Address,
    Instruction,
    Name,
    NotPtx,
    Number,
    Operand,
    Pair,
    Vector,
    integer,
)

# PTX's types as the emulator's.
TYPES = {
    **{f"u{bits}": f"gf_emulator::ptx::u{bits}" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"gf_emulator::ptx::u{bits}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"gf_emulator::ptx::s{bits}" for bits in (8, 16, 32, 64)},
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f16x2": "__half2",
    "bf16x2": "__nv_bfloat162",
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
FLOATS = ("f32", "f64")
_ROUNDINGS = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
# What a declared register holds.
REGISTERS = {
    "pred": "bool",
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), "unsigned short"),
    **dict.fromkeys(("b32", "u32", "s32", "f16x2", "bf16x2"), "unsigned"),
    **dict.fromkeys(("b64", "u64", "s64"), "unsigned long long"),
    "f32": "float",
    "f64": "double",
    "b8": "unsigned char",
}
_BLOCK = {
    "tid": "gf_emulator_thread_index()",
    "ntid": "gf_emulator_block_size()",
    "ctaid": "gf_emulator_block_index()",
    "nctaid": "gf_emulator_grid_size()",
    "cluster_ctaid": "dim3(__clusterRelativeBlockIdx())",
    "cluster_nctaid": "dim3(__clusterDim())",
    "clusterid": "dim3(__clusterIdx())",
    "nclusterid": "dim3(__clusterGridDimInClusters())",
}
SPECIAL = {
    **{f"%{name}.{axis}": f"{text}.{axis}" for name, text in _BLOCK.items() for axis in "xyz"},
    "%laneid": "gf_emulator_lane()",
    "%warpid": "gf_emulator_warp_slot()",
    "%nwarpid": "64u",
    "%smid": "gf_emulator_multiprocessor()",
    "%nsmid": "132u",
    "%lanemask_eq": "gf_emulator::ptx::lanes_in_order(0)",
    "%lanemask_lt": "gf_emulator::ptx::lanes_in_order(1)",
    "%lanemask_le": "gf_emulator::ptx::lanes_in_order(2)",
    "%lanemask_gt": "gf_emulator::ptx::lanes_in_order(3)",
    "%lanemask_ge": "gf_emulator::ptx::lanes_in_order(4)",
    "%cluster_ctarank": "__clusterRelativeBlockRank()",
    "%cluster_nctarank": "__clusterSizeInBlocks()",
    "%is_explicit_cluster": "__clusterDimIsSpecified()",
    "%clock": "unsigned(gf_emulator_clock())",
    "%clock_hi": "unsigned(gf_emulator_clock() >> 32)",
    "%clock64": "gf_emulator_clock()",
    "%globaltimer": "gf_emulator_clock()",
    "%globaltimer_lo": "unsigned(gf_emulator_clock())",
    "WARP_SZ": "32u",
}
# PTX ISA, "Special Registers": those that the emulator does not have.
_OTHER_SPECIAL = re.compile(
    r"%(?:gridid|envreg\d+|pm\d(?:_64)?|(?:reserved_smem_offset_\w+|(?:total|dynamic|aggr)_smem_size)"
    r"|globaltimer_hi|current_graph_exec)"
)
PTX = "gf_emulator::ptx::"
SPACES = ("shared", "shared::cta", "shared::cluster", "global", "const", "local", "param")


class Unsupported(Exception):
    """An instruction that the emulator does not have."""


@dataclass(frozen=True)
class Values:
    """The names of one `asm` statement: its registers and operands, as C++ variables."""

    variables: Mapping[str, str]
    lvalues: Mapping[str, str]  # the author's own variable behind an output

    def read(self, kind: str, operand: Operand) -> str:
        """The operand's value as the PTX type `kind`."""
        if isinstance(operand, Number):
            return _literal(kind, operand)
        if not isinstance(operand, Name):
            raise NotPtx("a value is needed where a vector or an address is")
        text = SPECIAL.get(operand.text)
        if text is None:
            text = self._variable(operand.text)
        value = f"{PTX}as<{TYPES[kind]}>({text})"
        return f"(!{value})" if operand.negated else value

    def write(self, operand: Operand, value: str) -> str:
        """The statement that puts a value into a register; `_` takes it and forgets it."""
        if isinstance(operand, Name) and operand.text == "_":
            return f"(void)({value});"
        return f"{PTX}to({self.place(operand)}, {value});"

    def place(self, operand: Operand) -> str:
        if not isinstance(operand, Name) or operand.text in SPECIAL:
            raise NotPtx("a result goes into a register")
        return self._variable(operand.text)

    def own_place(self, operand: Operand) -> str:
        """The author's variable itself, where the emulator keeps its address."""
        if not isinstance(operand, Name) or operand.text not in self.lvalues:
            raise Unsupported("with an accumulator that is not an output of the statement")
        return self.lvalues[operand.text]

    def _variable(self, name: str) -> str:
        if _OTHER_SPECIAL.fullmatch(name):
            raise Unsupported(f"with the special register `{name}`")
        if name not in self.variables:
            raise NotPtx(f"`{name}` is not a register of the statement")
        return self.variables[name]

    def address(self, operand: Operand, space: str) -> str:
        """A `char*`; `space` is shared, shared::cta, shared::cluster, global or empty."""
        if not isinstance(operand, Address):
            raise NotPtx("an address must be in square brackets")
        base = self.read("u64", operand.base)
        if operand.offset:
            base = f"({base} + {operand.offset})"
        return f"{PTX}{'shared' if space.startswith('shared') else 'generic'}({base})"


def _literal(kind: str, number: Number) -> str:
    text = number.text
    negative, digits = text.startswith("-"), text.lstrip("-")
    if digits[:2].lower() in ("0f", "0d") and number.is_float:
        form = (">I", ">f") if digits[1] in "fF" else (">Q", ">d")
        (value,) = struct.unpack(form[1], struct.pack(form[0], int(digits[2:], 16)))
        text = '__builtin_nan("")' if value != value else repr(value)
        if value in (float("inf"), float("-inf")):
            text = "-__builtin_inf()" if value < 0 else "__builtin_inf()"
        return f"{TYPES[kind]}({'-' if negative else ''}{text})"
    if number.is_float:
        return f"{TYPES[kind]}({text})"
    suffix = "ull" if not negative else "ll"
    return f"{TYPES[kind]}({integer(digits) * (-1 if negative else 1)}{suffix})"


def vector(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vector) else (operand,)


def pair(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def type_of(instruction: Instruction) -> str:
    """The instruction's last modifier, which is its type."""
    if not instruction.modifiers or instruction.modifiers[-1] not in TYPES:
        raise Unsupported("without a type that the emulator has")
    return instruction.modifiers[-1]


def space_of(instruction: Instruction) -> str:
    """The instruction's state space; empty: its addresses are generic."""
    return next((m for m in instruction.modifiers if m in SPACES), "")


def rounding_of(modifiers: tuple[str, ...]) -> str:
    """The rounding among the modifiers, as CUDA's intrinsics name it; empty: none."""
    return next((_ROUNDINGS[name] for name in modifiers if name in _ROUNDINGS), "")


def needs(instruction: Instruction, *counts: int) -> None:
    if len(instruction.operands) not in counts:
        raise NotPtx(f"`{instruction}` has {len(instruction.operands)} operands")


Handler = Callable[[Instruction, Values], str]
