"""Inline PTX of a warp and its block: shuffles, votes, barriers, matrices."""

from __future__ import annotations

import re

from greenfast.search.targets.emulator.ptx_arithmetic import immediate
from greenfast.search.targets.emulator.ptx_text import Instruction, NotPtx, Number, Operand
from greenfast.search.targets.emulator.ptx_values import (
    PTX,
    TYPES,
    Handler,
    Unsupported,
    Values,
    needs,
    pair,
    space_of,
    type_of,
    vector,
)

_SHUFFLES = {
    "idx": "shuffle_index",
    "up": "shuffle_up",
    "down": "shuffle_down",
    "bfly": "shuffle_xor",
}
_ELEMENTS = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "tf32",
    "e4m3": "float8_e4m3",
    "e5m2": "float8_e5m2",
    "f32": "float32",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}
# Products of a warp by their shape and the first operand's type: registers of D, A, B.
_PRODUCTS = {
    ("m16n8k16", "f16"): (4, 4, 2),
    ("m16n8k16", "bf16"): (4, 4, 2),
    ("m16n8k8", "tf32"): (4, 4, 2),
    ("m16n8k32", "e4m3"): (4, 4, 2),
    ("m16n8k32", "e5m2"): (4, 4, 2),
}
# Products of half a depth: the whole one, whose further registers of A and B are zero.
_SHALLOW_PRODUCTS = {
    ("m16n8k8", "f16"): ("m16n8k16", 2, 1),
    ("m16n8k8", "bf16"): ("m16n8k16", 2, 1),
    ("m16n8k4", "tf32"): ("m16n8k8", 2, 1),
}
# Products of integers: rows of A and the depth, by their shape and the bits of an element.
_INTEGER_PRODUCTS = {
    ("m8n8k16", 8): (8, 16),
    ("m16n8k16", 8): (16, 16),
    ("m16n8k32", 8): (16, 32),
    ("m8n8k32", 4): (8, 32),
    ("m16n8k32", 4): (16, 32),
    ("m16n8k64", 4): (16, 64),
}
# Products of a warpgroup by A's type: the depth, the types of D, and those of B.
_WARPGROUP_PRODUCTS = {
    "f16": ("16", ("f32", "f16"), ("f16",)),
    "bf16": ("16", ("f32",), ("bf16",)),
    "tf32": ("8", ("f32",), ("tf32",)),
    **dict.fromkeys(("e4m3", "e5m2"), ("32", ("f32", "f16"), ("e4m3", "e5m2"))),
    **dict.fromkeys(("s8", "u8"), ("32", ("s32",), ("s8", "u8"))),
}
_INTEGERS = {"s8": "int8", "u8": "uint8", "s4": "int4", "u4": "uint4"}


def _shuffle(instruction: Instruction, values: Values) -> str:
    needs(instruction, 5)
    kind = _SHUFFLES.get(instruction.modifiers[1] if len(instruction.modifiers) > 1 else "")
    if kind is None or type_of(instruction) != "b32" or instruction.modifiers[0] != "sync":
        raise Unsupported("of that form")
    target, inside = pair(instruction.operands[0])
    a, b, c, lanes = (values.read("u32", operand) for operand in instruction.operands[1:])
    lines = [
        (
            "{ bool gf_emulator_inside; const unsigned gf_emulator_got = "
            f"{PTX}shuffled({a}, gf_emulator::Collective::{kind}, {b}, {c}, {lanes}, "
            "gf_emulator_inside);"
        ),
        values.write(target, "gf_emulator_got"),
    ]
    if inside is not None:
        lines.append(values.write(inside, "gf_emulator_inside"))
    return " ".join((*lines, "}"))


def _vote(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    name = instruction.modifiers[1] if len(instruction.modifiers) > 1 else ""
    calls = {"ballot": "__ballot_sync", "any": "__any_sync", "all": "__all_sync"}
    if instruction.modifiers[0] != "sync" or name not in (*calls, "uni"):
        raise Unsupported("of that form")
    predicate, lanes = instruction.operands[1:]
    holds, mask = values.read("pred", predicate), values.read("u32", lanes)
    if name == "uni":
        text = f"(__match_any_sync({mask}, int({holds})) == __ballot_sync({mask}, 1))"
    else:
        text = f"{calls[name]}({mask}, {holds})"
    return values.write(instruction.operands[0], text if name == "ballot" else f"bool({text})")


def _match(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind = type_of(instruction)
    target, same = pair(instruction.operands[0])
    a, lanes = (
        values.read(kind, instruction.operands[1]),
        values.read("u32", instruction.operands[2]),
    )
    if "any" in instruction.modifiers:
        return values.write(target, f"__match_any_sync({lanes}, {a})")
    call = f"__match_all_sync({lanes}, {a}, &gf_emulator_same)"
    lines = [f"{{ int gf_emulator_same; const unsigned gf_emulator_all = {call};"]
    lines.append(values.write(target, "gf_emulator_all"))
    if same is not None:
        lines.append(values.write(same, "gf_emulator_same != 0"))
    return " ".join((*lines, "}"))


def _reduction(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind = type_of(instruction).replace("b32", "u32")
    name = instruction.modifiers[1]
    if name not in ("add", "min", "max", "and", "or", "xor") or kind not in ("u32", "s32"):
        raise Unsupported("of that form")
    a, lanes = (
        values.read(kind, instruction.operands[1]),
        values.read("u32", instruction.operands[2]),
    )
    return values.write(instruction.operands[0], f"__reduce_{name}_sync({lanes}, {a})")


def _active(instruction: Instruction, values: Values) -> str:
    needs(instruction, 1)
    return values.write(instruction.operands[0], "__activemask()")


def _election(instruction: Instruction, values: Values) -> str:
    needs(instruction, 2)
    lane, elected = pair(instruction.operands[0])
    mask = instruction.operands[1]
    if elected is None:
        raise NotPtx("`elect.sync` gives a predicate")
    # Which lane it was is each lane's to know.
    return (
        f"{{ const unsigned gf_emulator_lanes = {values.read('u32', mask)}; "
        "const bool gf_emulator_is = gf_emulator_elect_of(gf_emulator_lanes); "
        "const unsigned gf_emulator_lane_is = "
        "unsigned(__ffs(int(__ballot_sync(gf_emulator_lanes, gf_emulator_is)))) - 1; "
        f"{values.write(lane, 'gf_emulator_lane_is')} {values.write(elected, 'gf_emulator_is')} }}"
    )


def _barrier(instruction: Instruction, values: Values) -> str:
    modifiers, operands = instruction.modifiers, instruction.operands
    if "cluster" in modifiers:
        if "arrive" in modifiers:
            is_relaxed = "relaxed" in modifiers
            return f"gf_emulator_cluster_arrive{'_relaxed' if is_relaxed else ''}();"
        return "gf_emulator_cluster_wait();"
    if "warp" in modifiers:
        needs(instruction, 1)
        return f"__syncwarp({values.read('u32', operands[0])});"
    if "red" in modifiers:
        return _barrier_reduction(instruction, values)
    waits = "sync" in modifiers
    if not waits and "arrive" not in modifiers:
        raise Unsupported("of that form")
    needs(instruction, 1, 2)
    number = values.read("u32", operands[0])
    whole = isinstance(operands[0], Number) and immediate(operands[0]) == 0
    if len(operands) == 1:
        if whole and waits:
            return "__syncthreads();"
        count = "(blockDim.x * blockDim.y * blockDim.z + 31u) / 32u * 32u"
    else:
        count = values.read("u32", operands[1])
        if whole and waits:  # the whole block, as in __syncthreads
            return (
                f"if ({count} == (blockDim.x * blockDim.y * blockDim.z + 31u) / 32u * 32u) "
                f"__syncthreads(); else gf_emulator_named_barrier({number}, {count}, true);"
            )
    return f"gf_emulator_named_barrier({number}, {count}, {'true' if waits else 'false'});"


def _barrier_reduction(instruction: Instruction, values: Values) -> str:
    """A reduction at the block's barrier, as in __syncthreads_count and its variants."""
    modifiers, operands = instruction.modifiers, instruction.operands
    calls = {"popc": "count", "and": "and", "or": "or"}
    name = next((calls[m] for m in modifiers if m in calls), "")
    number = operands[1] if len(operands) == 3 else None
    if not name or not isinstance(number, Number) or immediate(number) != 0:
        raise Unsupported("with a reduction at a barrier other than the whole block's")
    call = f"__syncthreads_{name}({values.read('pred', operands[2])})"
    return values.write(operands[0], call if name == "count" else f"bool({call})")


def _array(kind: str, name: str, operands: tuple[Operand, ...], values: Values) -> str:
    texts = ", ".join(values.read(kind, operand) for operand in operands)
    return f"const {TYPES[kind]} {name}[] = {{{texts}}};"


def _product(instruction: Instruction, values: Values) -> str:
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if re.fullmatch(r"m\d+n\d+k\d+", m)), "")
    kinds = tuple(m for m in modifiers if m != "satfinite")[-4:]
    if "sync" not in modifiers or len(instruction.operands) != 4 or "col" not in modifiers:
        raise Unsupported("of that form")
    of_d, of_a, of_b, of_c = kinds
    if of_a in _INTEGERS and of_b in _INTEGERS and of_d == of_c == "s32":
        return _integer_product(instruction, values, shape)
    missing = _SHALLOW_PRODUCTS.get((shape, of_a), ("", 0, 0))
    shape = missing[0] or shape
    counts = _PRODUCTS.get((shape, of_a))
    is_half = of_d == of_c == "f16" and of_a == of_b == "f16"
    pairs_of_types = {of_a, of_b} <= {"e4m3", "e5m2"} or of_a == of_b
    if counts is None or not pairs_of_types or not (of_d == of_c == "f32" or is_half):
        raise Unsupported("of that shape and these types")
    d, a, b, c = (vector(operand) for operand in instruction.operands)
    sums, kind = (2, "u32") if is_half else (counts[0], "f32")
    a, b = a + (Number("0"),) * missing[1], b + (Number("0"),) * missing[2]
    if (len(d), len(a), len(b), len(c)) != (sums, counts[1], counts[2], sums):
        raise NotPtx(f"`{instruction}` has other counts of registers")
    element = "gf_emulator::Element::"
    lines = [
        "{",
        _array("u32", "gf_emulator_a", a, values),
        _array("u32", "gf_emulator_b", b, values),
        _array(kind, "gf_emulator_c", c, values),
        f"{TYPES[kind]} gf_emulator_d[{sums}];",
        (
            "gf_emulator_matrix_multiply(gf_emulator_d, gf_emulator_a, gf_emulator_b, "
            "gf_emulator_c, "
            f"gf_emulator::TileShape::{shape}, {element}{_ELEMENTS[of_a]}, "
            f"{element}{_ELEMENTS[of_b]}, "
            f"{element}{_ELEMENTS[of_d]}, gf_emulator::Collective::mma);"
        ),
        *(values.write(part, f"gf_emulator_d[{index}]") for index, part in enumerate(d)),
        "}",
    ]
    return " ".join(lines)


def _integer_product(instruction: Instruction, values: Values, shape: str) -> str:
    _, of_a, of_b, _ = tuple(m for m in instruction.modifiers if m != "satfinite")[-4:]
    bits = int(of_a[1:])
    if (shape, bits) not in _INTEGER_PRODUCTS or int(of_b[1:]) != bits:
        raise Unsupported("of that shape and these types")
    rows, depth = _INTEGER_PRODUCTS[shape, bits]
    d, a, b, c = (vector(operand) for operand in instruction.operands)
    sums, in_a, in_b = rows // 4, rows * depth * bits // 1024, depth * bits // 128
    if (len(d), len(a), len(b), len(c)) != (sums, in_a, in_b, sums):
        raise NotPtx(f"`{instruction}` has other counts of registers")
    operand = "gf_emulator::PlainOperand::"
    saturates = "true" if "satfinite" in instruction.modifiers else "false"
    lines = [
        "{",
        _array("u32", "gf_emulator_a", a, values),
        _array("u32", "gf_emulator_b", b, values),
        _array("s32", "gf_emulator_c", c, values),
        f"int gf_emulator_d[{sums}];",
        (
            "gf_emulator_integer_product(gf_emulator_d, gf_emulator_a, gf_emulator_b, "
            f"gf_emulator_c, {rows}, {depth}, {operand}{_INTEGERS[of_a]}, "
            f"{operand}{_INTEGERS[of_b]}, {saturates});"
        ),
        *(values.write(part, f"gf_emulator_d[{index}]") for index, part in enumerate(d)),
        "}",
    ]
    return " ".join(lines)


def _matrix_move(instruction: Instruction, values: Values) -> str:
    modifiers = instruction.modifiers
    loads = instruction.opcode == "ldmatrix"
    count = next((int(m[1:]) for m in modifiers if m in ("x1", "x2", "x4")), 0)
    if "m8n8" not in modifiers or "b16" not in modifiers or not count:
        raise Unsupported("of that shape")
    needs(instruction, 2)
    registers, place = instruction.operands if loads else instruction.operands[::-1]
    parts = vector(registers)
    if len(parts) != count:
        raise NotPtx(f"`{instruction}` moves {count} registers, not {len(parts)}")
    address, turned = (
        values.address(place, space_of(instruction)),
        "true" if "trans" in modifiers else "false",
    )
    if loads:
        lines = [f"{{ unsigned gf_emulator_all[{count}];"]
        lines.append(f"gf_emulator_ldmatrix(gf_emulator_all, {address}, {count}, {turned});")
        lines += [values.write(part, f"gf_emulator_all[{i}]") for i, part in enumerate(parts)]
        return " ".join((*lines, "}"))
    array = _array("u32", "gf_emulator_all", parts, values)
    return f"{{ {array} gf_emulator_stmatrix({address}, gf_emulator_all, {count}, {turned}); }}"


def _matrix_turn(instruction: Instruction, values: Values) -> str:
    if instruction.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise Unsupported("of that shape")
    needs(instruction, 2)
    target, source = instruction.operands
    return values.write(target, f"{PTX}turned_matrix({values.read('u32', source)})")


def _dependent_launch(instruction: Instruction, values: Values) -> str:
    needs(instruction, 0)
    calls = {"wait": "wait", "launch_dependents": "allow"}
    (name,) = instruction.modifiers or ("",)
    if name not in calls:
        raise NotPtx(f"`{instruction}` is not an instruction")
    return f"gf_emulator_dependent_launch_{calls[name]}();"


def _warpgroup(instruction: Instruction, values: Values) -> str:
    name = instruction.modifiers[0]
    if name == "fence":
        return "gf_emulator_wgmma_fence();"
    if name == "commit_group":
        return "gf_emulator_wgmma_commit();"
    if name == "wait_group":
        needs(instruction, 1)
        return f"gf_emulator_wgmma_wait({values.read('s32', instruction.operands[0])});"
    return _warpgroup_product(instruction, values)


def _warpgroup_product(instruction: Instruction, values: Values) -> str:
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if re.fullmatch(r"m64n\d+k\d+", m)), "")
    *_, of_d, of_a, of_b = modifiers
    depth, kinds_of_d, kinds_of_b = _WARPGROUP_PRODUCTS.get(of_a, ("", (), ()))
    if (
        not shape
        or shape.split("k")[1] != depth
        or of_d not in kinds_of_d
        or of_b not in kinds_of_b
    ):
        raise Unsupported("of that shape and these types")
    columns = int(re.findall(r"\d+", shape)[1])
    if columns % 8 or not 8 <= columns <= 256:
        raise NotPtx(
            f"`{instruction}` has {columns} columns; a multiple of 8 up to 256 belongs there"
        )
    d, a, b, accumulates, *numbers = instruction.operands
    parts = vector(d)
    if len(parts) != columns // (4 if of_d == "f16" else 2):
        raise NotPtx(f"`{instruction}` has {len(parts)} accumulators")
    places = ", ".join(values.own_place(part) for part in parts)
    registers, descriptor = "nullptr", "0ull"
    lines = [f"{{ const {PTX}Accumulators gf_emulator_d({places});"]
    from_registers = len(vector(a)) > 1
    if from_registers:
        lines.append(_array("u32", "gf_emulator_a", vector(a), values))
        registers = "gf_emulator_a"
    else:
        descriptor = values.read("u64", a)
    element = "gf_emulator::Element::"
    kinds = ", ".join(f"{element}{_ELEMENTS[kind]}" for kind in (of_d, of_a, of_b))
    flags = _product_flags(instruction, numbers, from_registers, accumulates, values)
    lines.append(
        f"gf_emulator_wgmma_mixed(gf_emulator_d.places, {descriptor}, {registers}, "
        f"{values.read('u64', b)}, {columns}, {kinds}, {flags}); }}"
    )
    return " ".join(lines)


def _product_flags(
    instruction: Instruction,
    numbers: list[Operand],
    from_registers: bool,
    accumulates: Operand,
    values: Values,
) -> str:
    """The bits of gf_emulator_wgmma's `flags`."""
    of_a = instruction.modifiers[-2]
    negations = 0 if of_a in ("s8", "u8") else 2
    turns = 0 if of_a not in ("f16", "bf16") else 1 if from_registers else 2
    if len(numbers) != negations + turns:
        raise NotPtx(f"`{instruction}` has {len(numbers)} numbers behind its operands")
    scales = [f"({values.read('s32', number)} < 0)" for number in numbers[:negations]]
    turned = [f"({values.read('s32', number)} != 0)" for number in numbers[negations:]]
    bits = {1: values.read("pred", accumulates)}
    bits |= dict(zip((8, 16), scales, strict=False))
    bits |= dict(zip((4, 2), reversed(turned), strict=False))
    if "satfinite" in instruction.modifiers:
        bits[32] = "true"
    return " | ".join(f"unsigned({text}) * {bit}u" for bit, text in sorted(bits.items()))


def _register_budget(instruction: Instruction, values: Values) -> str:
    needs(instruction, 1)
    grows = "true" if instruction.modifiers[0] == "inc" else "false"
    return f"gf_emulator_set_registers({values.read('u32', instruction.operands[0])}, {grows});"


def _text(statement: str) -> Handler:
    def handler(instruction: Instruction, values: Values) -> str:
        return statement

    return handler


HANDLERS: dict[str, Handler] = {
    "shfl": _shuffle,
    "vote": _vote,
    "match": _match,
    "redux": _reduction,
    "activemask": _active,
    "elect": _election,
    **dict.fromkeys(("bar", "barrier"), _barrier),
    "mma": _product,
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrix_move),
    "movmatrix": _matrix_turn,
    "wgmma": _warpgroup,
    "setmaxnreg": _register_budget,
    "griddepcontrol": _dependent_launch,
    "nanosleep": _text("gf_emulator_yield();"),
    "trap": _text('gf_emulator_trap("trap");'),
    "brkpt": _text('gf_emulator_trap("brkpt");'),
}
