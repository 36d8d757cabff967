"""Inline PTX that moves and converts values, or addresses between spaces."""

from __future__ import annotations

from greenfast.search.targets.emulator.ptx_text import Instruction, NotPtx, Operand, Vector
from greenfast.search.targets.emulator.ptx_values import (
    FLOATS,
    PTX,
    TYPES,
    Handler,
    Unsupported,
    Values,
    needs,
    rounding_of,
    type_of,
    vector,
)


def _move(instruction: Instruction, values: Values) -> str:
    needs(instruction, 2)
    kind = type_of(instruction)
    target, source = instruction.operands
    if isinstance(target, Vector):
        return _split(target, values.read(kind, source), kind, values)
    if isinstance(source, Vector):
        bits = int(kind[1:]) // len(source.parts)
        texts = [
            f"(({TYPES[kind]}){values.read(f'u{bits}', part)} << {bits * index})"
            for index, part in enumerate(source.parts)
        ]
        return values.write(target, f"({' | '.join(texts)})")
    return values.write(target, values.read(kind, source))


def _split(target: Vector, source: str, kind: str, values: Values) -> str:
    parts = vector(target)
    bits = int(kind[1:]) // len(parts)
    if bits not in (8, 16, 32):
        raise NotPtx(f"`mov` of {len(parts)} parts of {kind}")
    lines = [f"{{ const {TYPES[kind]} gf_emulator_whole = {source};"]
    for index, part in enumerate(parts):
        lines.append(
            values.write(part, f"{TYPES[f'u{bits}']}(gf_emulator_whole >> {bits * index})")
        )
    return " ".join((*lines, "}"))


def _pair_of_fp8(to: str, of: str, source: Operand, values: Values) -> str:
    """Between pairs of fp8 codes and of 16-bit numbers; empty: it is no such conversion."""
    form = next((form for form in ("e4m3", "e5m2") if f"{form}x2" in (to, of)), "")
    if form and to == "f16x2":
        codes = values.read("u16", source)
        return f"__half2(__nv_cvt_fp8x2_to_halfraw2({codes}, __NV_{form.upper()}))"
    if form and of in ("f16x2", "bf16x2"):
        name = f"__nv_cvt_{'half' if of == 'f16x2' else 'bfloat16'}raw2_to_fp8x2"
        pair = values.read(of, source)
        return f"(unsigned short){name}({pair}, __NV_SATFINITE, __NV_{form.upper()})"
    return ""


def _packed_integers(instruction: Instruction, values: Values) -> str:
    """cvt.pack: two saturated integers, and bits of a third operand above them."""
    modifiers = instruction.modifiers
    if modifiers[:2] != ("pack", "sat") or modifiers[3] != "s32":
        raise Unsupported("between these types")
    kind, bits = modifiers[2], int(modifiers[2][1:])
    needs(instruction, 3 if bits == 16 else 4)
    target, *sources = instruction.operands
    low = -(1 << bits - 1) if kind[0] == "s" else 0
    high, mask = low + (1 << bits) - 1, (1 << bits) - 1
    parts = [
        f"((unsigned)::min(::max({values.read('s32', source)}, {low}), {high}) & {mask}u)"
        for source in sources[:2]
    ]
    text = f"{parts[0]} << {bits} | {parts[1]}"
    if bits < 16:
        text += f" | {values.read('u32', sources[2])} << {2 * bits}"
    return values.write(target, f"({text})")


def _conversion(instruction: Instruction, values: Values) -> str:
    modifiers = instruction.modifiers
    if "pack" in modifiers:
        return _packed_integers(instruction, values)
    kinds = [m for m in modifiers if m in TYPES or m in ("tf32", "e4m3x2", "e5m2x2")]
    if len(kinds) != 2:
        raise Unsupported("between these types")
    to, of = kinds
    target, *sources = instruction.operands
    if to in ("f16x2", "bf16x2") and of == "f32":
        needs(instruction, 3)
        low, high = values.read("f32", sources[1]), values.read("f32", sources[0])
        text = _pair_of_floats(to, low, high, modifiers)
        return values.write(target, text)
    if to in ("e4m3x2", "e5m2x2") and of == "f32":
        needs(instruction, 3)
        form = to[:4].upper()
        low, high = values.read("f32", sources[1]), values.read("f32", sources[0])
        text = f"__nv_cvt_float2_to_fp8x2(make_float2({low}, {high}), __NV_SATFINITE, __NV_{form})"
        return values.write(target, f"(unsigned short)({text})")
    needs(instruction, 2)
    if "relu" not in modifiers and (text := _pair_of_fp8(to, of, sources[0], values)):
        return values.write(target, text)
    if to == "tf32":
        name = {"rna": "tf32_bits", "rn": "tf32_bits_to_even"}.get(
            next((m for m in modifiers if m.startswith("rn")), "")
        )
        if name is None or "relu" in modifiers:
            raise Unsupported("with that rounding")
        return values.write(target, f"gf_emulator::{name}({values.read('f32', sources[0])})")
    if to not in TYPES or of not in TYPES or "x2" in to + of:
        raise Unsupported("between these types")
    a = values.read(of, sources[0])
    if "ftz" in modifiers and of == "f32":
        a = f"gf_emulator::flushed({a})"
    text = _converted(to, of, a, modifiers)
    if "sat" in modifiers and to in (*FLOATS, "f16", "bf16"):
        text = f"__saturatef({text})"
    if "relu" in modifiers:
        text = f"gf_emulator::without_negatives({TYPES[to]}({text}))"
    return values.write(target, text)


def _pair_of_floats(to: str, low: str, high: str, modifiers: tuple[str, ...]) -> str:
    if rounding_of(modifiers) not in ("", "rn"):
        raise Unsupported("with that rounding")
    make = "__floats2half2_rn" if to == "f16x2" else "__floats2bfloat162_rn"
    if "relu" in modifiers:
        low, high = (f"({text} <= 0.0f ? 0.0f : {text})" for text in (low, high))
    return f"{make}({low}, {high})"


def _converted(to: str, of: str, a: str, modifiers: tuple[str, ...]) -> str:
    real = (*FLOATS, "f16", "bf16")
    direction = rounding_of(modifiers)
    whole = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
    rounding = next((whole[m] for m in modifiers if m in whole), "")
    if of in real and to in real:
        if rounding:
            return f"{TYPES[to]}(__builtin_{rounding}(double({a})))"
        if to == "f32" and of == "f64":
            return f"__double2float_{direction or 'rn'}({a})"
        if to in ("f16", "bf16") and direction not in ("", "rn"):
            name = "half" if to == "f16" else "bfloat16"
            return f"__float2{name}_{direction}(float({a}))"
        return f"{TYPES[to]}({a})"
    if of in real:
        if not rounding:
            raise NotPtx("a conversion to a whole number names its rounding")
        call = f"__builtin_{rounding}({a})" if of == "f64" else f"__builtin_{rounding}f(float({a}))"
        return f"{PTX}to_integer<{TYPES[to]}>({call})"
    if to in FLOATS:
        name = {"s": "ll", "u": "ull", "b": "ull"}[of[0]]
        return f"__{name}2{'float' if to == 'f32' else 'double'}_{direction or 'rn'}({a})"
    if to in ("f16", "bf16"):
        name = {"s": "ll", "u": "ull", "b": "ull"}[of[0]]
        return f"__{name}2{'half' if to == 'f16' else 'bfloat16'}_{direction or 'rn'}({a})"
    if "sat" in modifiers:
        return f"{PTX}saturated_integer<{TYPES[to]}>({a})"
    return f"{TYPES[to]}({a})"


def _to_space(instruction: Instruction, values: Values) -> str:
    """cvta: between generic addresses and those of a space."""
    needs(instruction, 2)
    kind = type_of(instruction)
    a = values.read("u64", instruction.operands[1])
    if any(modifier.startswith("shared") for modifier in instruction.modifiers):
        if "to" in instruction.modifiers:
            text = f"{PTX}shared_offset_of({a})"
        else:
            text = f"(unsigned long long)(std::uintptr_t){PTX}shared({a})"
    else:
        text = a
    return values.write(instruction.operands[0], f"{TYPES[kind]}({text})")


def _is_space(instruction: Instruction, values: Values) -> str:
    needs(instruction, 2)
    text = f"{PTX}is_shared({values.read('u64', instruction.operands[1])})"
    space = instruction.modifiers[0]
    if space not in ("shared", "shared::cta", "global"):
        raise Unsupported("of that space")
    return values.write(instruction.operands[0], text if space != "global" else f"(!{text})")


HANDLERS: dict[str, Handler] = {
    "mov": _move,
    "cvt": _conversion,
    "cvta": _to_space,
    "isspacep": _is_space,
}
