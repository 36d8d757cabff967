"""Inline PTX that touches memory: loads, stores, atomics, copies, fences, mbarriers."""

from __future__ import annotations

from greenfast.search.targets.emulator.ptx_arithmetic import immediate
from greenfast.search.targets.emulator.ptx_text import (
    Address,
    Instruction,
    Name,
    NotPtx,
    Number,
    Operand,
)
from greenfast.search.targets.emulator.ptx_values import (
    PTX,
    TYPES,
    Handler,
    Unsupported,
    Values,
    needs,
    type_of,
    vector,
)

_SPACES = ("shared", "shared::cta", "shared::cluster", "global", "const", "local", "param")
_WEAK = ("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio")
_OPERATIONS = {
    "add": "add",
    "min": "minimum",
    "max": "maximum",
    "exch": "exchange",
    "cas": "compare_and_swap",
    "and": "bit_and",
    "or": "bit_or",
    "xor": "bit_xor",
    "inc": "increment",
    "dec": "decrement",
}
_DEVICE_FENCE, _BLOCK_FENCE = "gf_emulator_fence(true);", "gf_emulator_fence(false);"


def space_of(instruction: Instruction) -> str:
    return next((m for m in instruction.modifiers if m in _SPACES), "")


def _fence(instruction: Instruction) -> str:
    return _BLOCK_FENCE if "cta" in instruction.modifiers else _DEVICE_FENCE


def _count(instruction: Instruction) -> int:
    words = ("v2", "v4", "v8")
    return next((int(m[1:]) for m in instruction.modifiers if m in words), 1)


def _several(instruction: Instruction, operand: Operand) -> tuple[str, tuple[Operand, ...]]:
    """The template's arguments and the registers of a load or store."""
    parts, count = vector(operand), _count(instruction)
    if len(parts) != count:
        raise NotPtx(f"`{instruction}` moves {count} values, not {len(parts)}")
    return f"<{TYPES[type_of(instruction)]}, {count}>", parts


def _without_policy(instruction: Instruction, count: int) -> tuple[Operand, ...]:
    """The operands without a cache policy behind them."""
    extra = 1 if any(m.endswith("cache_hint") for m in instruction.modifiers) else 0
    needs(instruction, count + extra)
    return instruction.operands[:count]


def _with_scope(instruction: Instruction, arguments: str) -> str:
    block_wide = "true" if "cta" in instruction.modifiers else "false"
    return f"<{block_wide}, {arguments.removeprefix('<')}"


def _load(instruction: Instruction, values: Values) -> str:
    target, source = _without_policy(instruction, 2)
    arguments, parts = _several(instruction, target)
    address = values.address(source, space_of(instruction))
    modifiers = instruction.modifiers
    name = "load"
    if any(m in _WEAK for m in modifiers):
        name, arguments = "load_flag", _with_scope(instruction, arguments)
    elif "nc" in modifiers:
        name = "load_read_only"
    elif "cg" in modifiers or "cv" in modifiers:
        name = "load_bypassing"
    lines = [f"{{ const auto gf_emulator_all = {PTX}{name}{arguments}({address});"]
    lines += [
        values.write(part, f"gf_emulator_all.value[{index}]") for index, part in enumerate(parts)
    ]
    if "acquire" in modifiers:
        lines.append(_fence(instruction))
    return " ".join((*lines, "}"))


def _store(instruction: Instruction, values: Values) -> str:
    target, source = _without_policy(instruction, 2)
    arguments, parts = _several(instruction, source)
    address = values.address(target, space_of(instruction))
    texts = ", ".join(values.read(type_of(instruction), part) for part in parts)
    modifiers = instruction.modifiers
    name = "put"
    if any(m in _WEAK for m in modifiers):
        name, arguments = "put_flag", _with_scope(instruction, arguments)
    fence = _fence(instruction) if "release" in modifiers else ""
    return f"{{ {fence} {PTX}{name}{arguments}({address}, {{{{{texts}}}}}); }}"


def _atomic(instruction: Instruction, values: Values) -> str:
    returns = instruction.opcode == "atom"
    operands = instruction.operands if returns else (Name("_"), *instruction.operands)
    target, place, *sources = operands
    modifiers = instruction.modifiers
    name = next((m for m in modifiers if m in _OPERATIONS), "")
    if not name or _count(instruction) != 1:
        raise Unsupported("of that form")
    kind = type_of(instruction)
    if len(sources) != (2 if name == "cas" else 1):
        raise NotPtx(f"`{instruction}` has {len(instruction.operands)} operands")
    if name in ("and", "or", "xor", "exch", "cas") and kind in ("f32", "f64"):
        raise NotPtx(f"`{instruction}` has no such type")
    texts = [values.read(kind, operand) for operand in sources]
    compared, operand = texts if name == "cas" else (f"{TYPES[kind]}()", texts[0])
    block = "true" if "cta" in modifiers else "false"
    call = (
        f"{PTX}update<{TYPES[kind]}, {block}>({values.address(place, space_of(instruction))}, "
        f"{operand}, gf_emulator::AtomicOperation::{_OPERATIONS[name]}, {compared})"
    )
    before = _fence(instruction) if {"release", "acq_rel"} & set(modifiers) else ""
    after = _fence(instruction) if {"acquire", "acq_rel"} & set(modifiers) else ""
    return f"{{ {before} {values.write(target, call)} {after} }}"


def _nothing(instruction: Instruction, values: Values) -> str:
    """Hints to caches: there is none."""
    return ";"


def _policy(instruction: Instruction, values: Values) -> str:
    return values.write(instruction.operands[0], "0ull")


def _copy(instruction: Instruction, values: Values) -> str:
    """cp.async and its relatives."""
    modifiers = instruction.modifiers
    if not modifiers or modifiers[0] != "async":
        raise Unsupported("of that form")
    if "bulk" in modifiers:
        return _bulk(instruction, values)
    if "commit_group" in modifiers:
        return "gf_emulator_async_copy_commit();"
    if "wait_all" in modifiers:
        return "gf_emulator_async_copy_commit(); gf_emulator_async_copy_wait(0);"
    if "wait_group" in modifiers:
        needs(instruction, 1)
        return f"gf_emulator_async_copy_wait({values.read('s32', instruction.operands[0])});"
    if "mbarrier" in modifiers:
        needs(instruction, 1)
        adds = "false" if "noinc" in modifiers else "true"
        place = values.address(instruction.operands[0], "shared")
        return f"gf_emulator_async_copy_arrive({place}, {adds});"
    has_policy = any(m.endswith("cache_hint") for m in modifiers)
    operands = instruction.operands[:-1] if has_policy else instruction.operands
    if len(operands) not in (3, 4):
        raise NotPtx(f"`{instruction}` has {len(instruction.operands)} operands")
    target, source = values.address(operands[0], "shared"), values.address(operands[1], "global")
    size = values.read("s32", operands[2])
    valid = values.read("s32", operands[3]) if len(operands) == 4 else size
    return f"gf_emulator_async_copy({target}, {source}, {size}, {valid});"


def _bulk(instruction: Instruction, values: Values) -> str:
    modifiers = instruction.modifiers
    if "commit_group" in modifiers:
        return "gf_emulator_bulk_commit();"
    if "wait_group" in modifiers:
        needs(instruction, 1)
        for_reads = "true" if "read" in modifiers else "false"
        groups = values.read("s32", instruction.operands[0])
        return f"gf_emulator_bulk_wait({groups}, {for_reads});"
    if "prefetch" in modifiers:
        return ";"
    if "im2col" in modifiers or "reduce" in modifiers:
        raise Unsupported("of that form")
    has_policy = any(m.endswith("cache_hint") for m in modifiers)
    operands = instruction.operands[:-1] if has_policy else instruction.operands
    loads = any(m.startswith("mbarrier::") for m in modifiers)
    spaces = [m for m in modifiers if m in _SPACES]
    if len(spaces) != 2 or loads == (spaces[0] == "global"):
        raise Unsupported("between these memories")
    if "tensor" in modifiers:
        return _tensor(operands, modifiers, loads, values)
    if loads and spaces[1] == "global" and not any(m.startswith("multicast") for m in modifiers):
        target, source, size, barrier = operands
        return (
            f"gf_emulator_bulk_load({values.address(target, 'shared')}, "
            f"{values.address(source, 'global')}, {values.read('u32', size)}, "
            f"{values.address(barrier, 'shared')});"
        )
    if not loads and spaces[1].startswith("shared"):
        target, source, size = operands
        return (
            f"gf_emulator_bulk_store({values.address(target, 'global')}, "
            f"{values.address(source, 'shared')}, {values.read('u32', size)});"
        )
    raise Unsupported("between these memories")


def _tensor(
    operands: tuple[Operand, ...], modifiers: tuple[str, ...], loads: bool, values: Values
) -> str:
    box = operands[0] if not loads else operands[1]
    if not isinstance(box, Address) or not box.coordinates:
        raise NotPtx("a tensor copy names its map and coordinates")
    at = ", ".join(values.read("s32", part) for part in box.coordinates)
    rank = len(box.coordinates)
    lines = [f"{{ const int gf_emulator_at[] = {{{at}}};"]
    place = values.address(Address(box.base), "")
    if not loads:
        shared = values.address(operands[1], "shared")
        lines.append(f"gf_emulator_tensor_store({place}, {shared}, {rank}, gf_emulator_at); }}")
        return " ".join(lines)
    mask = "nullptr"
    if any(m.startswith("multicast") for m in modifiers):
        lines.append(f"const unsigned gf_emulator_ranks = {values.read('u32', operands[3])};")
        mask = "&gf_emulator_ranks"
    lines.append(
        f"gf_emulator_tensor_load({values.address(operands[0], 'shared')}, {place}, "
        f"{values.address(operands[2], 'shared')}, {mask}, {rank}, gf_emulator_at); }}"
    )
    return " ".join(lines)


def _memory_barrier(instruction: Instruction, values: Values) -> str:
    modifiers = instruction.modifiers
    if "mbarrier_init" in modifiers:
        return "gf_emulator_mbarrier_init_fence();"
    if "proxy" in modifiers:
        if "async" not in modifiers and not any(m.startswith("async") for m in modifiers):
            raise Unsupported("between these proxies")
        spaces = "true, true"
        if "global" in modifiers:
            spaces = "false, true"
        elif any(m.startswith("shared") for m in modifiers):
            spaces = "true, false"
        return f"gf_emulator_proxy_fence({spaces});"
    return _fence(instruction)


def _mbarrier(instruction: Instruction, values: Values) -> str:
    name, modifiers, operands = (
        instruction.modifiers[0],
        instruction.modifiers,
        instruction.operands,
    )
    if name == "init":
        needs(instruction, 2)
        place, count = values.address(operands[0], "shared"), values.read("u32", operands[1])
        return f"gf_emulator_mbarrier_init({place}, {count});"
    if name == "inval":
        needs(instruction, 1)
        return f"gf_emulator_mbarrier_invalidate({values.address(operands[0], 'shared')});"
    if name != "expect_tx" and "relaxed" in modifiers:
        raise Unsupported("without a release or an acquire")
    if name == "arrive":
        return _arrival(instruction, values)
    if name == "expect_tx":
        needs(instruction, 2)
        place, count = values.address(operands[0], "shared"), values.read("u32", operands[1])
        return f"gf_emulator_mbarrier_expect({place}, {count}, false);"
    if name in ("try_wait", "test_wait") and "parity" in modifiers:
        needs(instruction, 3, 4)
        place, parity = values.address(operands[1], "shared"), values.read("u32", operands[2])
        return values.write(operands[0], f"gf_emulator_mbarrier_try_wait({place}, {parity})")
    if name in ("try_wait", "test_wait"):  # by the state that an arrival gave
        needs(instruction, 3, 4)
        place, state = values.address(operands[1], "shared"), values.read("u64", operands[2])
        text = f"gf_emulator_mbarrier_try_wait({place}, unsigned({state}) & 1)"
        return values.write(operands[0], text)
    if name == "arrive_drop":
        return _arrival(instruction, values, "gf_emulator_mbarrier_drop")
    raise Unsupported("of that form")


def _arrival(
    instruction: Instruction, values: Values, call: str = "gf_emulator_mbarrier_arrive"
) -> str:
    modifiers, operands = instruction.modifiers, instruction.operands
    target: Operand = Name("_")
    if not isinstance(operands[0], Address):
        target, *operands_left = operands
        operands = tuple(operands_left)
    if not operands or not isinstance(operands[0], Address):
        raise NotPtx(f"`{instruction}` names no mbarrier")
    place, rest = operands[0], operands[1:]
    address = values.address(place, "shared")
    is_local = "shared::cluster" not in modifiers
    # The state that an arrival gives is the phase's parity.
    is_read = is_local and target != Name("_")
    state = (
        values.write(target, f"(unsigned long long)gf_emulator_mbarrier_parity({address})")
        if is_read
        else ""
    )
    if "expect_tx" in modifiers:
        if len(rest) != 1:
            raise NotPtx(f"`{instruction}` names its bytes")
        count = values.read("u32", rest[0])
        return f"{{ {state} gf_emulator_mbarrier_expect({address}, {count}, true); }}"
    if rest and not (isinstance(rest[0], Number) and immediate(rest[0]) == 1):
        if not is_local:
            raise Unsupported("with more than one arrival")
        count = values.read("u32", rest[0])
        return (
            f"{{ {state} for (unsigned gf_emulator_left = {count}; gf_emulator_left; "
            f"gf_emulator_left--) {call}({address}); }}"
        )
    if not is_local:
        where = values.read("u64", place.base)
        return (
            f"{{ const unsigned gf_emulator_place = unsigned({where}) + {place.offset}u; "
            "void* const gf_emulator_own = "
            "gf_emulator_shared_pointer(gf_emulator_place & 0xffffffu); "
            "if (gf_emulator_place >> 24) gf_emulator_mbarrier_arrive_rank(gf_emulator_own, "
            "(gf_emulator_place >> 24) - 1); else gf_emulator_mbarrier_arrive(gf_emulator_own); }"
        )
    return f"{{ {state} {call}({address}); }}"


def _mapped(instruction: Instruction, values: Values) -> str:
    needs(instruction, 3)
    target, place, rank = instruction.operands
    rank_text = values.read("u32", rank)
    if space_of(instruction).startswith("shared"):
        text = f"{PTX}mapped({values.read('u32', place)}, {rank_text})"
    else:
        address = values.read("u64", place)
        text = (
            "(unsigned long long)(std::uintptr_t)gf_emulator_map_shared_rank("
            f"{PTX}generic({address}), {rank_text})"
        )
    return values.write(target, text)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("ld", "ldu"), _load),
    "st": _store,
    **dict.fromkeys(("atom", "red"), _atomic),
    **dict.fromkeys(("prefetch", "prefetchu", "applypriority", "discard"), _nothing),
    "createpolicy": _policy,
    "cp": _copy,
    **dict.fromkeys(("membar", "fence"), _memory_barrier),
    "mbarrier": _mbarrier,
    "mapa": _mapped,
}
