"""Inline PTX that computes: arithmetic, logic and comparisons."""

from __future__ import annotations

from greenfast.search.targets.emulator.ptx_text import Instruction, Name, NotPtx, integer
from greenfast.search.targets.emulator.ptx_values import (
    FLOATS,
    PTX,
    TYPES,
    WIDER,
    Handler,
    Unsupported,
    Values,
    needs,
    pair,
    rounding_of,
    type_of,
)

_NARROW = ("f16", "bf16", "f16x2", "bf16x2")
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_BOOLEANS = {"and": "&&", "or": "||", "xor": "!="}


def _sources(instruction: Instruction, values: Values, kind: str) -> list[str]:
    flushed = "ftz" in instruction.modifiers and kind == "f32"
    read = [values.read(kind, operand) for operand in instruction.operands[1:]]
    return [f"gf_emulator::flushed({text})" for text in read] if flushed else read


def _result(instruction: Instruction, values: Values, kind: str, value: str) -> str:
    if "sat" in instruction.modifiers and kind == "f32":
        value = f"__saturatef({value})"
    if "ftz" in instruction.modifiers and kind == "f32":
        value = f"gf_emulator::flushed({value})"
    return values.write(instruction.operands[0], value)


def _sum(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind, sign = type_of(instruction), "+" if instruction.opcode == "add" else "-"
    if "cc" in instruction.modifiers:
        raise Unsupported("with a carry")
    a, b = _sources(instruction, values, kind)
    direction = rounding_of(instruction.modifiers)
    if kind in FLOATS and direction:
        letter, name = kind.replace("f32", "f").replace("f64", "d"), "add" if sign == "+" else "sub"
        return _result(instruction, values, kind, f"__{letter}{name}_{direction}({a}, {b})")
    if kind == "s32" and "sat" in instruction.modifiers:
        value = f"{PTX}saturated_sum<int>((long long){a} {sign} {b})"
        return values.write(instruction.operands[0], value)
    if "sat" in instruction.modifiers and kind in _NARROW:
        two = "2" if kind.endswith("x2") else ""
        name = "add" if sign == "+" else "sub"
        return values.write(instruction.operands[0], f"__h{name}{two}_sat({a}, {b})")
    return _result(instruction, values, kind, f"{TYPES[kind]}({a} {sign} {b})")


def _product(instruction: Instruction, values: Values) -> str:
    kind, is_sum = type_of(instruction), instruction.opcode in ("mad", "fma")
    needs(instruction, 4 if is_sum else 3)
    sources = _sources(instruction, values, kind)
    a, b = sources[:2]
    addend = f" + {sources[2]}" if is_sum else ""
    modifiers = instruction.modifiers
    if "cc" in modifiers:
        raise Unsupported("with a carry")
    direction = rounding_of(instruction.modifiers)
    if kind in FLOATS:
        letter = "f" if kind == "f32" else "d"
        direction = direction or "rn"
        if is_sum:
            name = "__fmaf" if kind == "f32" else "__fma"
            return _result(instruction, values, kind, f"{name}_{direction}({a}, {b}, {sources[2]})")
        return _result(instruction, values, kind, f"__{letter}mul_{direction}({a}, {b})")
    if kind in _NARROW:
        two = "2" if kind.endswith("x2") else ""
        ending = "_relu" if "relu" in modifiers else "_sat" if "sat" in modifiers else ""
        name = f"__hfma{two}{ending}" if is_sum else f"__hmul{two}{ending}"
        return values.write(instruction.operands[0], f"{name}({', '.join(sources)})")
    if "wide" in modifiers:
        wide = WIDER.get(kind)
        if wide is None:
            raise Unsupported("of that type")
        third = f" + {values.read(wide, instruction.operands[3])}" if is_sum else ""
        value = f"{TYPES[wide]}({TYPES[wide]}({a}) * {TYPES[wide]}({b}){third})"
        return values.write(instruction.operands[0], value)
    if "hi" in modifiers:
        value = f"{TYPES[kind]}({PTX}high_product<{TYPES[kind]}>({a}, {b}){addend})"
        return values.write(instruction.operands[0], value)
    return values.write(instruction.operands[0], f"{TYPES[kind]}({a} * {b}{addend})")


def _mul24(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3, 4)
    kind = type_of(instruction)
    sources = _sources(instruction, values, kind)
    if "lo" not in instruction.modifiers or kind not in ("u32", "s32"):
        raise Unsupported("of that form")
    name = "__mul24" if kind == "s32" else "__umul24"
    addend = f" + {sources[2]}" if len(sources) == 3 else ""
    return values.write(instruction.operands[0], f"{name}({sources[0]}, {sources[1]}){addend}")


def _quotient(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind = type_of(instruction)
    a, b = _sources(instruction, values, kind)
    if kind in FLOATS:
        letter = "f" if kind == "f32" else "d"
        direction = rounding_of(instruction.modifiers) or "rn"
        return _result(instruction, values, kind, f"__{letter}div_{direction}({a}, {b})")
    sign = "/" if instruction.opcode == "div" else "%"
    return values.write(instruction.operands[0], f"{TYPES[kind]}({a} {sign} {b})")


def _extreme(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind = type_of(instruction)
    a, b = _sources(instruction, values, kind)
    name = instruction.opcode
    if kind in _NARROW:
        two, nan = (
            ("2" if kind.endswith("x2") else ""),
            "_nan" if "NaN" in instruction.modifiers else "",
        )
        return values.write(instruction.operands[0], f"__h{name}{two}{nan}({a}, {b})")
    if "NaN" in instruction.modifiers:
        side = "largest" if name == "max" else "smallest"
        return _result(instruction, values, kind, f"{PTX}{side}_or_nan({a}, {b})")
    return _result(instruction, values, kind, f"{name}({a}, {b})")


def _unary(template: str, narrow: str = "") -> Handler:
    """`{t}`: the type, `{a}`: the operand; `narrow`: a half's function, with `2` for pairs."""

    def handler(instruction: Instruction, values: Values) -> str:
        needs(instruction, 2)
        kind = type_of(instruction)
        (a,) = _sources(instruction, values, kind)
        if kind in _NARROW:
            if not narrow:
                raise Unsupported("of that type")
            return values.write(
                instruction.operands[0], f"{narrow.format(two='2' if 'x2' in kind else '')}({a})"
            )
        return _result(instruction, values, kind, template.format(t=TYPES[kind], a=a))

    return handler


def _approximation(single: str, narrow: str = "", pair_name: str = "", double: str = "") -> Handler:
    def handler(instruction: Instruction, values: Values) -> str:
        needs(instruction, 2)
        kind, direction = type_of(instruction), rounding_of(instruction.modifiers)
        (a,) = _sources(instruction, values, kind)
        if direction and kind in FLOATS and instruction.opcode in ("rcp", "sqrt"):
            letter = "f" if kind == "f32" else "d"
            name = f"__{letter}{instruction.opcode}_{direction}"
        else:
            name = (
                {
                    "f32": single,
                    "f64": double,
                    "f16": narrow,
                    "bf16": narrow,
                    "f16x2": pair_name,
                    "bf16x2": pair_name,
                }[kind]
                if kind in (*FLOATS, *_NARROW)
                else ""
            )
        if not name:
            raise Unsupported("of that type")
        return _result(instruction, values, kind, f"{name}({a})")

    return handler


def _bitwise(template: str) -> Handler:
    def handler(instruction: Instruction, values: Values) -> str:
        kind = type_of(instruction)
        sources = [values.read(kind, operand) for operand in instruction.operands[1:]]
        needs(instruction, template.count("{") + 1)
        if kind == "pred":
            text = template.replace("~", "!").format(*sources)
        else:
            text = f"{TYPES[kind]}({template.format(*sources)})"
        return values.write(instruction.operands[0], text)

    return handler


def _shift(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind = type_of(instruction)
    a, by = values.read(kind, instruction.operands[1]), values.read("u32", instruction.operands[2])
    side = "left" if instruction.opcode == "shl" else "right"
    return values.write(instruction.operands[0], f"{PTX}shifted_{side}<{TYPES[kind]}>({a}, {by})")


def _funnel(instruction: Instruction, values: Values) -> str:
    needs(instruction, 4)
    side, wraps = instruction.modifiers[0], "wrap" in instruction.modifiers
    sources = ", ".join(values.read("u32", operand) for operand in instruction.operands[1:])
    name = f"__funnelshift_{side}{'' if wraps else 'c'}"
    return values.write(instruction.operands[0], f"{name}({sources})")


def _logic_of_three(instruction: Instruction, values: Values) -> str:
    needs(instruction, 5)
    *sources, table = instruction.operands[1:]
    value = values.read("u32", table)
    texts = ", ".join(values.read("u32", operand) for operand in sources)
    return values.write(instruction.operands[0], f"{PTX}lop3<{value}>({texts})")


def _permutation(instruction: Instruction, values: Values) -> str:
    needs(instruction, 4)
    if instruction.modifiers != ("b32",):
        raise Unsupported("in that mode")
    sources = ", ".join(values.read("u32", operand) for operand in instruction.operands[1:])
    return values.write(instruction.operands[0], f"__byte_perm({sources})")


def _bit_field(instruction: Instruction, values: Values) -> str:
    kind = type_of(instruction)
    inserts = instruction.opcode == "bfi"
    needs(instruction, 5 if inserts else 4)
    count = 2 if inserts else 1
    texts = [values.read(kind, operand) for operand in instruction.operands[1 : 1 + count]]
    texts += [values.read("u32", operand) for operand in instruction.operands[1 + count :]]
    name = "with_bit_field" if inserts else "bit_field"
    return values.write(instruction.operands[0], f"{PTX}{name}<{TYPES[kind]}>({', '.join(texts)})")


def _bits(narrow: str, wide: str) -> Handler:
    def handler(instruction: Instruction, values: Values) -> str:
        needs(instruction, 2)
        kind = type_of(instruction)
        name = wide if kind.endswith("64") else narrow
        return values.write(
            instruction.operands[0], f"{name}({values.read(kind, instruction.operands[1])})"
        )

    return handler


def _highest_bit(instruction: Instruction, values: Values) -> str:
    needs(instruction, 2)
    kind = type_of(instruction)
    bits = 63 if kind.endswith("64") else 31
    text = f"{PTX}highest_bit<{TYPES[kind]}>({values.read(kind, instruction.operands[1])})"
    if "shiftamt" in instruction.modifiers:
        text = f"({text} == ~0u ? ~0u : {bits}u - {text})"
    return values.write(instruction.operands[0], text)


def _call(name: str, kinds: str) -> Handler:
    """A function of CUDA of the same meaning; the operands' types, or `t` for the instruction's."""
    types = kinds.split()

    def handler(instruction: Instruction, values: Values) -> str:
        needs(instruction, len(types) + 1)
        kind = type_of(instruction)
        texts = [
            values.read(kind if of == "t" else of, operand)
            for of, operand in zip(types, instruction.operands[1:], strict=True)
        ]
        return values.write(instruction.operands[0], f"{name}({', '.join(texts)})")

    return handler


def _dot(instruction: Instruction, values: Values) -> str:
    needs(instruction, 4)
    *_, of_a, of_b = instruction.modifiers
    if of_a != of_b or of_a not in ("u32", "s32"):
        raise Unsupported("of two types")
    name = f"__{instruction.opcode}" + (
        f"_{instruction.modifiers[0]}" if instruction.opcode == "dp2a" else ""
    )
    texts = ", ".join(values.read(of_a, operand) for operand in instruction.operands[1:])
    return values.write(instruction.operands[0], f"{name}({texts})")


def _comparison(kind: str, modifiers: tuple[str, ...], a: str, b: str) -> str:
    name = modifiers[0]
    if name in _COMPARISONS:
        sign = _COMPARISONS[name]
        if name == "ne" and kind in (*FLOATS, *_NARROW):
            return f"({a} < {b} || {a} > {b})"
        return f"({a} {sign} {b})"
    if name in _UNORDERED:
        sign = _UNORDERED[name]
        return f"({a} {sign} {b} || {PTX}is_nan({a}) || {PTX}is_nan({b}))"
    if name in ("num", "nan"):
        text = f"({PTX}is_nan({a}) || {PTX}is_nan({b}))"
        return text if name == "nan" else f"(!{text})"
    raise Unsupported(f"with the comparison `{name}`")


def _set_predicate(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3, 4)
    kind = type_of(instruction)
    if kind.endswith("x2"):
        raise Unsupported("of two values")
    a, b = (values.read(kind, operand) for operand in instruction.operands[1:3])
    text = _comparison(kind, instruction.modifiers, a, b)
    opposite = f"(!{text})"
    if len(instruction.operands) == 4:
        sign = _BOOLEANS.get(instruction.modifiers[1])
        if sign is None:
            raise NotPtx(f"`{instruction}` combines by nothing")
        with_third = values.read("pred", instruction.operands[3])
        text, opposite = f"({text} {sign} {with_third})", f"({opposite} {sign} {with_third})"
    first, second = pair(instruction.operands[0])
    if second is None:
        return values.write(first, text)
    return (
        f"{{ const bool gf_emulator_is = {text}, gf_emulator_else = {opposite}; "
        f"{values.write(first, 'gf_emulator_is')} {values.write(second, 'gf_emulator_else')} }}"
    )


def _set(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    *_, to, of = instruction.modifiers
    a, b = (values.read(of, operand) for operand in instruction.operands[1:3])
    text = _comparison(of, instruction.modifiers, a, b)
    true = "1.0f" if to == "f32" else "~0u"
    return values.write(instruction.operands[0], f"({text} ? {true} : {TYPES[to]}(0))")


def _selection(instruction: Instruction, values: Values) -> str:
    needs(instruction, 4)
    kind = type_of(instruction)
    a, b = (values.read(kind, operand) for operand in instruction.operands[1:3])
    predicate = values.read("pred", instruction.operands[3])
    return values.write(instruction.operands[0], f"({predicate} ? {a} : {b})")


def _copy_sign(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    kind = type_of(instruction)
    a, b = (values.read(kind, operand) for operand in instruction.operands[1:3])
    suffix = "f" if kind == "f32" else ""
    return values.write(instruction.operands[0], f"__builtin_copysign{suffix}({b}, {a})")


def _negated_not(instruction: Instruction, values: Values) -> str:
    needs(instruction, 2)
    kind = type_of(instruction)
    value = values.read(kind, instruction.operands[1])
    text = f"!{value}" if kind == "pred" else f"{TYPES[kind]}(~{value})"
    return values.write(instruction.operands[0], text)


def immediate(operand: object) -> int:
    """The value of a literal operand."""
    if isinstance(operand, Name) or not hasattr(operand, "text"):
        raise Unsupported("with a number that is not a literal")
    return integer(operand.text)


_VIDEO = ("vadd4", "vabsdiff4", "vadd2", "vsub2", "vsub4", "vabsdiff2", "vmin4", "vmax4")


def _video(instruction: Instruction, values: Values) -> str:
    needs(instruction, 4)
    kinds = [m for m in instruction.modifiers if m in ("u32", "s32")]
    name, sums = instruction.opcode, "add" in instruction.modifiers
    if name not in ("vabsdiff4", "vabsdiff2") or len(set(kinds)) != 1 or not sums:
        raise Unsupported("of that form")
    a, b, c = (values.read("u32", operand) for operand in instruction.operands[1:])
    letter = "u" if kinds[0] == "u32" else "s"
    return values.write(instruction.operands[0], f"(__vsad{letter}{name[-1]}({a}, {b}) + {c})")


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("add", "sub"), _sum),
    **dict.fromkeys(("mul", "mad", "fma"), _product),
    **dict.fromkeys(("mul24", "mad24"), _mul24),
    **dict.fromkeys(("div", "rem"), _quotient),
    **dict.fromkeys(("min", "max"), _extreme),
    "abs": _unary("{t}({a} < {t}(0) ? -{a} : {a} == {t}(0) ? {t}(0) : {a})", "__habs{two}"),
    "neg": _unary("{t}(-{a})", "__hneg{two}"),
    "ex2": _approximation("gf_emulator::fast_exp2", "hexp2", "h2exp2"),
    "lg2": _approximation("gf_emulator::fast_log2"),
    "rcp": _approximation("__frcp_rn", double="__drcp_rn"),
    "rsqrt": _approximation("__frsqrt_rn", double="rsqrt"),
    "sqrt": _approximation("__fsqrt_rn", double="__dsqrt_rn"),
    "sin": _approximation("gf_emulator::fast_sin"),
    "cos": _approximation("gf_emulator::fast_cos"),
    "tanh": _approximation("gf_emulator::fast_tanh", "htanh", "h2tanh"),
    "and": _bitwise("{} & {}"),
    "or": _bitwise("{} | {}"),
    "xor": _bitwise("{} ^ {}"),
    "cnot": _bitwise("{} == 0"),
    "not": _negated_not,
    **dict.fromkeys(("shl", "shr"), _shift),
    "shf": _funnel,
    "lop3": _logic_of_three,
    "prmt": _permutation,
    **dict.fromkeys(("bfe", "bfi"), _bit_field),
    "popc": _bits("__popc", "__popcll"),
    "clz": _bits("__clz", "__clzll"),
    "brev": _bits("__brev", "__brevll"),
    "bfind": _highest_bit,
    "fns": _call("__fns", "u32 u32 s32"),
    "sad": _call("__usad", "u32 u32 u32"),
    **dict.fromkeys(("dp4a", "dp2a"), _dot),
    "setp": _set_predicate,
    "set": _set,
    "selp": _selection,
    "copysign": _copy_sign,
    **dict.fromkeys(_VIDEO, _video),
}
