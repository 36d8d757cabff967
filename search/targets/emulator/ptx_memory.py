"""Inline PTX that touches memory: loads, stores, atomics, copies, fences, mbarriers."""

from __future__ import annotations

from greenfast.search.targets.emulator.ptx_text import (
    Address,
    Instruction,
    Name,
    NotPtx,
    Operand,
)
from greenfast.search.targets.emulator.ptx_values import (
    PTX,
    SPACES,
    TYPES,
    Handler,
    Unsupported,
    Values,
    needs,
    space_of,
    type_of,
    vector,
)

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
# Bytes of a type that an atomic updates, as native/ knows it.
_REDUCED = {
    "u32": "uint32",
    "s32": "int32",
    "u64": "uint64",
    "s64": "int64",
    "b32": "uint32",
    "b64": "uint64",
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
}
_DEVICE_FENCE, _BLOCK_FENCE = "gf_emulator_fence(true);", "gf_emulator_fence(false);"


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
    if "async" in instruction.modifiers:
        return _async_store(instruction, values)
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


def _async_store(instruction: Instruction, values: Values) -> str:
    """st.async: the store, and its bytes on the mbarrier."""
    needs(instruction, 3)
    target, source, barrier = instruction.operands
    arguments, parts = _several(instruction, source)
    kind = type_of(instruction)
    texts = ", ".join(values.read(kind, part) for part in parts)
    put = f"{PTX}put{arguments}({values.address(target, 'shared')}, {{{{{texts}}}}});"
    return f"{{ {put} {_completed(values, barrier, f'sizeof({TYPES[kind]}) * {len(parts)}')} }}"


def _completed(values: Values, barrier: Operand, size: str) -> str:
    return f"gf_emulator_mbarrier_complete({values.address(barrier, 'shared')}, {size}, true);"


def _async_atomic(instruction: Instruction, values: Values) -> str:
    """red.async: the update, and its bytes on the mbarrier."""
    needs(instruction, 3)
    target, source, barrier = instruction.operands
    parts = tuple(m for m in instruction.modifiers if m != "async")
    update = _atomic(Instruction("red", parts, (target, source)), values)
    size = f"sizeof({TYPES[type_of(instruction)]})"
    return f"{{ {update} {_completed(values, barrier, size)} }}"


def _atomic(instruction: Instruction, values: Values) -> str:
    if "async" in instruction.modifiers:
        return _async_atomic(instruction, values)
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
    """Hints to caches: they have no effect."""
    return ";"


def _policy(instruction: Instruction, values: Values) -> str:
    return values.write(instruction.operands[0], "0ull")


def _copy(instruction: Instruction, values: Values) -> str:
    """cp.async and its relatives."""
    modifiers = instruction.modifiers
    if modifiers[:3] == ("reduce", "async", "bulk"):
        return _bulk_reduction(instruction, values)
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
        place = values.address(instruction.operands[0], space_of(instruction))
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
    if any(m.startswith("im2col") for m in modifiers):
        raise Unsupported("in im2col mode")
    has_policy = any(m.endswith("cache_hint") for m in modifiers)
    operands = instruction.operands[:-1] if has_policy else instruction.operands
    loads = any(m.startswith("mbarrier::") for m in modifiers)
    spaces = [m for m in modifiers if m in SPACES]
    if len(spaces) != 2 or loads == (spaces[0] == "global"):
        raise Unsupported("between these memories")
    if "tensor" in modifiers:
        return _tensor(operands, modifiers, loads, values)
    if loads:
        target, source, size, barrier, *ranks = operands
        mask = "".join(f", {values.read('u16', rank)}" for rank in ranks)
        name = "multicast" if ranks else "load" if spaces[1] == "global" else "move"
        return (
            f"gf_emulator_bulk_{name}({values.address(target, 'shared')}, "
            f"{values.address(source, spaces[1])}, {values.read('u32', size)}, "
            f"{values.address(barrier, 'shared')}{mask});"
        )
    if not loads and spaces[1].startswith("shared"):
        target, source, size = operands
        return (
            f"gf_emulator_bulk_store({values.address(target, 'global')}, "
            f"{values.address(source, 'shared')}, {values.read('u32', size)});"
        )
    raise Unsupported("between these memories")


def _bulk_reduction(instruction: Instruction, values: Values) -> str:
    """cp.reduce.async.bulk from shared to global memory."""
    modifiers = instruction.modifiers
    name = next((m for m in modifiers if m in _OPERATIONS), "")
    spaces = [m for m in modifiers if m in SPACES]
    if not name or len(spaces) != 2 or spaces[0] != "global":
        raise Unsupported("between these memories")
    reduction = f"gf_emulator::AtomicOperation::{_OPERATIONS[name]}"
    has_policy = any(m.endswith("cache_hint") for m in modifiers)
    operands = instruction.operands[:-1] if has_policy else instruction.operands
    if "tensor" in modifiers:
        return _tensor(operands, modifiers, False, values, reduction)
    kind = modifiers[-1]
    if kind not in _REDUCED or (kind in ("f16", "bf16", "f32", "f64") and name != "add"):
        raise Unsupported("of that operation and type")
    target, source, size = operands
    return (
        f"gf_emulator_bulk_reduce({values.address(target, 'global')}, "
        f"{values.address(source, 'shared')}, {values.read('u32', size)}, {reduction}, "
        f"gf_emulator::AtomicType::{_REDUCED[kind]});"
    )


def _tensor(
    operands: tuple[Operand, ...],
    modifiers: tuple[str, ...],
    loads: bool,
    values: Values,
    reduction: str = "",
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
        call, last = ("reduce", f", {reduction}") if reduction else ("store", "")
        lines.append(
            f"gf_emulator_tensor_{call}({place}, {shared}, {rank}, gf_emulator_at{last}); }}"
        )
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
    space = space_of(instruction)
    if name == "init":
        needs(instruction, 2)
        place, count = values.address(operands[0], space), values.read("u32", operands[1])
        return f"gf_emulator_mbarrier_init({place}, {count});"
    if name == "inval":
        needs(instruction, 1)
        return f"gf_emulator_mbarrier_invalidate({values.address(operands[0], space)});"
    if name in ("expect_tx", "complete_tx"):
        needs(instruction, 2)
        place, count = values.address(operands[0], space), values.read("u32", operands[1])
        return f"gf_emulator_mbarrier_{name.removesuffix('_tx')}({place}, {count}, false);"
    if "relaxed" in modifiers:
        raise Unsupported("without a release or an acquire")
    if name == "arrive":
        return _arrival(instruction, values)
    if name in ("try_wait", "test_wait"):
        needs(instruction, 3, 4)
        place = values.address(operands[1], space)
        if "parity" in modifiers:
            parity = values.read("u32", operands[2])
        else:  # by the state that an arrival gave
            parity = f"unsigned({values.read('u64', operands[2])}) & 1"
        return values.write(operands[0], f"gf_emulator_mbarrier_try_wait({place}, {parity})")
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
    address = values.address(place, space_of(instruction))
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
    if is_local:
        arrival = f"{call}({address});"
    else:
        where = values.read("u64", place.base)
        arrival = (
            f"{{ const unsigned gf_emulator_place = unsigned({where}) + {place.offset}u; "
            "void* const gf_emulator_own = "
            "gf_emulator_shared_pointer(gf_emulator_place & 0xffffffu); "
            "if (gf_emulator_place >> 24) gf_emulator_mbarrier_arrive_rank(gf_emulator_own, "
            "(gf_emulator_place >> 24) - 1); else gf_emulator_mbarrier_arrive(gf_emulator_own); }"
        )
    if rest:
        count = values.read("u32", rest[0])
        arrival = (
            f"for (unsigned gf_emulator_left = {count}; gf_emulator_left; gf_emulator_left--) "
            f"{arrival}"
        )
    return f"{{ {state} {arrival} }}"


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


def _rank(instruction: Instruction, values: Values) -> str:
    """getctarank: of the block in whose shared memory an address lies."""
    needs(instruction, 2)
    target, place = instruction.operands
    address = values.address(Address(place), space_of(instruction))
    return values.write(target, f"gf_emulator_rank_of({address})")


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
    "getctarank": _rank,
}
