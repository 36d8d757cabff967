"""Integer PTX on all threads of some blocks at once: what decides branches, and no more.

A value is (bits, known), an array each with one element a thread: bits as int64, those of narrower types with zeros
above. Source: PTX ISA, "Integer Arithmetic Instructions", "Comparison and Selection", "Special Registers".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from greenfast.search.toolchain.ptx import Instruction

WARP = 32
Value = tuple[np.ndarray, np.ndarray]
_REGISTER = re.compile(r"%[a-zA-Z_$][\w$]*(?:\.[xyz])?")
_TYPE = re.compile(r"(?P<kind>[usb])(?P<width>8|16|32|64)|(?P<pred>pred)")
_COMPARISONS: dict[str, Callable] = {
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
_ADDRESS = 1 << 24  # where symbols and buffers lie, for comparisons with null


class Lanes:
    """The threads of `blocks` (numbers in the grid, x fastest), each block filled up to whole warps."""

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
            for axis, at in zip("xyz", (index % x, index // x % y, index // (x * y))):
                self.special[f"%{name}.{axis}"] = at
            for axis, size in zip("xyz", sizes):
                self.special[f"%n{name}.{axis}"] = np.full(self.count, size, np.int64)
        self._name_clusters(grid, cluster)

    def _name_clusters(self, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
        rank, step = np.zeros(self.count, np.int64), 1
        for axis, size, blocks in zip("xyz", cluster, grid):
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
        """`[name]` or `[name+8]`; a pointer is some address, a float is not known."""
        name = operand.strip("[]")
        if name not in self.arguments or isinstance(self.arguments[name], float):
            return self.unknown
        value = self.arguments[name]
        return self.constant(0 if value is None else value)


def registers_in(one: Instruction) -> list[str]:
    """The registers that an instruction reads."""
    return [name for operand in one.operands[1:] for name in _REGISTER.findall(operand)]


def written_by(one: Instruction) -> frozenset[str]:
    return _written(one.name, one.operands[0] if one.operands else "")


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


def is_evaluated(one: Instruction) -> bool:
    return _evaluator(one.opcode) is not None and not any(
        text.startswith(("{", "0f", "0d")) for text in one.operands
    )


def evaluate(one: Instruction, lanes: Lanes, registers: dict[str, Value], here: np.ndarray) -> None:
    """Carry the instruction out for the threads `here`; results that cannot be known are marked so."""
    with np.errstate(all="ignore"):
        values = _results(one, lanes, registers)
    known_guard = None
    if one.guard:
        guard, known_guard = registers.get(one.guard, lanes.unknown)
        here = here & ~known_guard | here & ((guard == 0) if one.negated else (guard != 0))
    whole = here.all()
    for name, (bits, known) in zip(
        one.operands[0].strip("{}").replace(",", "|").split("|"), values
    ):
        if known_guard is not None:
            known = known & known_guard
        if not whole:
            before = registers.get(name, lanes.unknown)
            bits, known = np.where(here, bits, before[0]), np.where(here, known, before[1])
        registers[name] = (bits, known)


def _results(one: Instruction, lanes: Lanes, registers: Mapping[str, Value]) -> list[Value]:
    count = len(_REGISTER.findall(one.operands[0]))
    if not is_evaluated(one):
        return [lanes.unknown] * count
    evaluator, read_as, write_as = _evaluator(one.opcode)
    if one.name == "ld":
        return [lanes.argument(one.operands[1])]
    operands = [_read(text, lanes, registers) for text in one.operands[1:]]
    given = [
        (_as(bits, kind), known) for (bits, known), kind in zip(operands, read_as(len(operands)))
    ]
    found = evaluator(given)
    bits, known = found
    bits = bits.astype(np.int64)
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
    """Bits as a type says: sign-extended, cut, or the unsigned of 64 bits."""
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
def _evaluator(opcode: str):
    """(function on values, types to read operands as by their number, type of the result); None: not evaluated."""
    name, *modifiers = opcode.split(".")
    types = [modifier for modifier in modifiers if _TYPE.fullmatch(modifier)]
    if not types:
        return None
    kind = types[-1]
    same = lambda count: (kind,) * count
    if name == "ld":
        return (None, same, kind) if "param" in modifiers else None
    if name == "cvt":
        return (lambda one: one[0], same, types[0]) if len(types) == 2 else None
    if name == "setp":
        return _comparison(modifiers, kind)
    if name == "selp":
        return _select, lambda count: (kind, kind, "pred"), kind
    if name in ("shl", "shr"):
        return (lambda one: _shift(name, kind, one)), lambda count: (kind, "u32"), kind
    if name in ("mul", "mad"):
        return _product(name, modifiers, kind)
    if name in ("and", "or") and kind == "pred":
        return (lambda one: _logic(name, *one)), same, kind
    plain = _PLAIN.get(name)
    return (lambda one: _plain(plain, one), same, kind) if plain else None


def _plain(function: Callable, values: Sequence[Value]) -> Value:
    known = values[0][1]
    for _, more in values[1:]:
        known = known & more
    return function(*(bits for bits, _ in values)), known


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero, as C has it."""
    b = np.where(b == 0, np.ones_like(b), b)
    found = np.abs(a) // np.abs(b) if a.dtype != np.uint64 else a // b
    return np.where((a < 0) != (b < 0), -found.astype(np.int64), found.astype(np.int64))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.int64) - _quotient(a, b) * b.astype(np.int64)


_PLAIN: dict[str, Callable] = {
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


def _product(name: str, modifiers: Sequence[str], kind: str):
    width = int(kind[1:])
    wide, high = "wide" in modifiers, "hi" in modifiers
    if ((high or "hi" in modifiers) and width == 64) or (width == 64 and wide):
        return None
    result = f"{kind[0]}{2 * width}" if wide else kind

    def function(a: np.ndarray, b: np.ndarray, c: np.ndarray | int = 0) -> np.ndarray:
        product = a * b
        return (product >> width if high else product) + c

    types = (kind, kind, result)
    return (lambda one: _plain(function, one)), lambda count: types[:count], result


def _shift(name: str, kind: str, values: Sequence[Value]) -> Value:
    (bits, known), (by, also) = values
    width = int(kind[1:])
    over, by = by >= width, np.minimum(by, width - 1)
    if name == "shl":
        found = np.where(over, 0, bits << by)
    else:
        found = bits >> by.astype(bits.dtype)
        found = np.where(over & (kind[0] != "s"), 0, found.astype(np.int64))
    return found, known & also


def _comparison(modifiers: Sequence[str], kind: str):
    compare = _COMPARISONS.get(modifiers[0])
    if compare is None or kind == "pred":
        return None
    joined = next(
        (modifier for modifier in modifiers[1:] if modifier in ("and", "or", "xor")), None
    )
    if modifiers[0] in ("lo", "ls", "hi", "hs"):
        kind = "u" + kind[1:]

    def function(values: Sequence[Value]) -> Value:
        found = _plain(compare, values[:2])
        if joined is None:
            return found
        return _logic(joined, (found[0].astype(np.int64), found[1]), values[2])

    return function, lambda count: (kind, kind, "pred")[:count], "pred"


def _logic(name: str, one: Value, other: Value) -> Value:
    """Of predicates: false and anything is false, whether or not the other is known."""
    (a, a_known), (b, b_known) = one, other
    if name == "xor":
        return a ^ b, a_known & b_known
    settles = 0 if name == "and" else 1
    settled = a_known & (a == settles) | b_known & (b == settles)
    return np.where(
        settled, settles, a & b if name == "and" else a | b
    ), settled | a_known & b_known


def _select(values: Sequence[Value]) -> Value:
    (a, a_known), (b, b_known), (chosen, known) = values
    first = chosen != 0
    return np.where(first, a, b), known & np.where(first, a_known, b_known)
