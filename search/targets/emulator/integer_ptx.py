"""Integer PTX on all threads of some blocks at once: the subset that decides branches.

A value is (bits, known), two arrays with one element per thread. Bits are int64; narrower types are
zero-extended. Source: PTX ISA, "Integer Arithmetic Instructions", "Comparison and Selection",
"Special Registers".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from greenfast.search.toolchain.ptx import Instruction

WARP = 32
Value = tuple[np.ndarray, np.ndarray]  # bits, known
Operation = Callable[..., np.ndarray]  # on the bits of its operands
Evaluate = Callable[[Sequence[Value]], Value]
Kinds = Callable[[int], tuple[str, ...]]  # from the number of operands to the type of each
_REGISTER = re.compile(r"%[a-zA-Z_$][\w$]*(?:\.[xyz])?")
_TYPE = re.compile(r"(?P<kind>[usb])(?P<width>8|16|32|64)|(?P<pred>pred)")
_COMPARISONS: dict[str, Operation] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_ADDRESS = 1 << 24  # of any symbol or buffer: not null


class Lanes:
    """The threads of `blocks` (numbered in the grid, x fastest), padded to whole warps."""

    def __init__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        blocks: Sequence[int],
        arguments: Mapping[str, int | float | None],
        cluster: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        threads = block[0] * block[1] * block[2]
        padded = -(-threads // WARP) * WARP
        thread = np.tile(np.arange(padded), len(blocks))
        of_block = np.repeat(np.array(blocks, np.int64), padded)
        self.exists = thread < threads
        self.count = thread.size
        self.nothing = np.zeros(self.count, bool)
        self.unknown: Value = (np.zeros(self.count, np.int64), self.nothing)
        self.all = ~self.nothing
        self.arguments = dict(arguments)
        self.special = {"%laneid": thread % WARP, "%warpid": thread // WARP}
        for name, sizes, index in (("tid", block, thread), ("ctaid", grid, of_block)):
            x, y = sizes[0], sizes[1]
            for axis, at in zip("xyz", (index % x, index // x % y, index // (x * y)), strict=True):
                self.special[f"%{name}.{axis}"] = at
            for axis, size in zip("xyz", sizes, strict=True):
                self.special[f"%n{name}.{axis}"] = np.full(self.count, size, np.int64)
        self._name_clusters(grid, cluster)

    def _name_clusters(self, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
        rank, step = np.zeros(self.count, np.int64), 1
        for axis, size, blocks in zip("xyz", cluster, grid, strict=True):
            at = self.special[f"%ctaid.{axis}"]
            rank, step = rank + at % size * step, step * size
            self.special |= {
                f"%cluster_ctaid.{axis}": at % size,
                f"%clusterid.{axis}": at // size,
                f"%cluster_nctaid.{axis}": np.full(self.count, size, np.int64),
                f"%nclusterid.{axis}": np.full(self.count, blocks // size, np.int64),
            }
        self.special |= {
            "%cluster_ctarank": rank,
            "%cluster_nctarank": np.full(self.count, step, np.int64),
        }

    def constant(self, value: int) -> Value:
        return np.full(self.count, value, np.int64), self.all

    def argument(self, operand: str) -> Value:
        """The value of `[name]`: a pointer has an arbitrary address; a float is unknown."""
        name = operand.strip("[]")
        if name not in self.arguments:
            return self.unknown
        value = self.arguments[name]
        if isinstance(value, float):
            return self.unknown
        return self.constant(0 if value is None else value)


def registers_in(instruction: Instruction) -> list[str]:
    """The registers that an instruction reads."""
    return [name for operand in instruction.operands[1:] for name in _REGISTER.findall(operand)]


def written_by(instruction: Instruction) -> frozenset[str]:
    """The registers that an instruction writes."""
    return _written(instruction.name, instruction.operands[0] if instruction.operands else "")


@cache
def _written(name: str, first: str) -> frozenset[str]:
    if name in (
        "st",
        "bra",
        "brx",
        "ret",
        "bar",
        "barrier",
        "red",
        "cp",
        "membar",
        "fence",
    ) or first.startswith("["):
        return frozenset()
    return frozenset(_REGISTER.findall(first))


def is_evaluated(instruction: Instruction) -> bool:
    """Whether its result can be known: not with vector or float operands."""
    return _evaluator(instruction.opcode) is not None and not any(
        text.startswith(("{", "0f", "0d")) for text in instruction.operands
    )


def evaluate(
    instruction: Instruction, lanes: Lanes, registers: dict[str, Value], here: np.ndarray
) -> None:
    """Execute the instruction for the threads `here`; unknown results are marked as such."""
    with np.errstate(all="ignore"):
        values = _results(instruction, lanes, registers)
    known_guard = None
    if instruction.guard:
        guard, known_guard = registers.get(instruction.guard, lanes.unknown)
        executes = (guard == 0) if instruction.negated else (guard != 0)
        here = here & ~known_guard | here & executes
    whole = here.all()
    names = instruction.operands[0].strip("{}").replace(",", "|").split("|")
    for name, (new_bits, new_known) in zip(names, values, strict=False):
        bits, known = new_bits, new_known
        if known_guard is not None:
            known = known & known_guard
        if not whole:
            old_bits, old_known = registers.get(name, lanes.unknown)
            bits, known = np.where(here, bits, old_bits), np.where(here, known, old_known)
        registers[name] = (bits, known)


def _results(instruction: Instruction, lanes: Lanes, registers: Mapping[str, Value]) -> list[Value]:
    count = len(_REGISTER.findall(instruction.operands[0]))
    if not is_evaluated(instruction):
        return [lanes.unknown] * count
    if instruction.name == "ld":
        return [lanes.argument(instruction.operands[1])]
    evaluator = _evaluator(instruction.opcode)
    if evaluator is None:
        return [lanes.unknown] * count
    operation, read_as, write_as = evaluator
    operands = [_read(text, lanes, registers) for text in instruction.operands[1:]]
    typed = [
        (_as(bits, kind), known)
        for (bits, known), kind in zip(operands, read_as(len(operands)), strict=False)
    ]
    result, known = operation(typed)
    bits = result.astype(np.int64)
    results = [(_narrow(bits, write_as), known)]
    if count == 2:  # setp p|q: q is the opposite
        results.append((_narrow(1 - bits, write_as), known))
    return results


def _read(text: str, lanes: Lanes, registers: Mapping[str, Value]) -> Value:
    if text in lanes.special:
        return lanes.special[text], lanes.all
    if text.startswith("%"):
        return registers.get(text, lanes.unknown)
    try:
        return lanes.constant(_signed64(int(text.rstrip("Uu"), 0)))
    except ValueError:
        return lanes.constant(_ADDRESS)  # a symbol


def _signed64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _as(bits: np.ndarray, kind: str) -> np.ndarray:
    """The bits as a value of a type: sign-extended, cut, or unsigned with 64 bits."""
    match = _TYPE.fullmatch(kind)
    if match is None or match["pred"]:
        return bits
    width = int(match["width"])
    if width == 64:
        return bits.view(np.uint64) if match["kind"] == "u" else bits
    cut = bits & ((1 << width) - 1)
    return (cut ^ (1 << width - 1)) - (1 << width - 1) if match["kind"] == "s" else cut


def _narrow(bits: np.ndarray, kind: str) -> np.ndarray:
    match = _TYPE.fullmatch(kind)
    width = 1 if match is None or match["pred"] else int(match["width"])
    return bits if width == 64 else bits & ((1 << width) - 1)


@cache
def _evaluator(opcode: str) -> tuple[Evaluate, Kinds, str] | None:
    """(operation, types as which operands are read, type of the result); None: not evaluated."""
    name, *modifiers = opcode.split(".")
    types = [modifier for modifier in modifiers if _TYPE.fullmatch(modifier)]
    if not types:
        return None
    kind = types[-1]

    def same(count: int) -> tuple[str, ...]:
        return (kind,) * count

    if name == "ld":
        return (_first, same, kind) if "param" in modifiers else None
    if name == "cvt":
        return (_first, same, types[0]) if len(types) == 2 else None
    if name == "setp":
        return _comparison(modifiers, kind)
    if name == "selp":
        return _select, lambda count: (kind, kind, "pred"), kind
    if name in ("shl", "shr"):
        return partial(_shift, name, kind), lambda count: (kind, "u32"), kind
    if name in ("mul", "mad"):
        return _product(modifiers, kind)
    if name in ("and", "or") and kind == "pred":
        return partial(_logic, name), same, kind
    plain = _PLAIN.get(name)
    return (partial(_plain, plain), same, kind) if plain else None


def _first(values: Sequence[Value]) -> Value:
    return values[0]


def _plain(operation: Operation, values: Sequence[Value]) -> Value:
    known = values[0][1]
    for _, operand_known in values[1:]:
        known = known & operand_known
    return operation(*(bits for bits, _ in values)), known


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounded towards zero, as in C; a division by 0 gives a."""
    b = np.where(b == 0, np.ones_like(b), b)
    quotient = np.abs(a) // np.abs(b) if a.dtype != np.uint64 else a // b
    signed: np.ndarray = quotient.astype(np.int64)
    return np.where((a < 0) != (b < 0), -signed, signed)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    remainder: np.ndarray = a.astype(np.int64) - _quotient(a, b) * b.astype(np.int64)
    return remainder


_PLAIN: dict[str, Operation] = {
    "mov": lambda a: a,
    "cvta": lambda a: a,
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "div": _quotient,
    "rem": _remainder,
}


def _product(modifiers: Sequence[str], kind: str) -> tuple[Evaluate, Kinds, str] | None:
    width = int(kind[1:])
    wide, high = "wide" in modifiers, "hi" in modifiers
    if width == 64 and (wide or high):
        return None
    result = f"{kind[0]}{2 * width}" if wide else kind

    def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray | int = 0) -> np.ndarray:
        product = a * b
        total: np.ndarray = (product >> width if high else product) + c
        return total

    types = (kind, kind, result)
    return partial(_plain, multiply_add), lambda count: types[:count], result


def _shift(name: str, kind: str, values: Sequence[Value]) -> Value:
    (bits, bits_known), (by, by_known) = values
    width = int(kind[1:])
    over, by = by >= width, np.minimum(by, width - 1)
    if name == "shl":
        shifted = np.where(over, 0, bits << by)
    else:
        shifted = bits >> by.astype(bits.dtype)
        shifted = np.where(over & (kind[0] != "s"), 0, shifted.astype(np.int64))
    return shifted, bits_known & by_known


def _comparison(modifiers: Sequence[str], kind: str) -> tuple[Evaluate, Kinds, str] | None:
    compare = _COMPARISONS.get(modifiers[0])
    if compare is None or kind == "pred":
        return None
    joined = next(
        (modifier for modifier in modifiers[1:] if modifier in ("and", "or", "xor")), None
    )
    if modifiers[0] in ("lo", "ls", "hi", "hs"):
        kind = "u" + kind[1:]

    def compared(values: Sequence[Value]) -> Value:
        holds, known = _plain(compare, values[:2])
        if joined is None:
            return holds, known
        return _logic(joined, ((holds.astype(np.int64), known), values[2]))

    return compared, lambda count: (kind, kind, "pred")[:count], "pred"


def _logic(name: str, values: Sequence[Value]) -> Value:
    """Of two predicates: `false and x` is false, even if x is unknown; `or` likewise."""
    (a, a_known), (b, b_known) = values
    if name == "xor":
        return a ^ b, a_known & b_known
    settling = 0 if name == "and" else 1
    settled = a_known & (a == settling) | b_known & (b == settling)
    joined = a & b if name == "and" else a | b
    return np.where(settled, settling, joined), settled | a_known & b_known


def _select(values: Sequence[Value]) -> Value:
    (a, a_known), (b, b_known), (selector, known) = values
    first = selector != 0
    return np.where(first, a, b), known & np.where(first, a_known, b_known)
