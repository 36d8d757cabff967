"""Values of launch.toml that are more than a number: small scalars, structs, device variables."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.oracle.problem import Packed

POINTER_BYTES = 8
# Scalars by their bytes, with the format of struct.
FORMATS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "fp16": "e",
    "float32": "f",
    "float64": "d",
}


def packed_value(given: Mapping[str, Any], buffers: Sequence[str] = ()) -> Packed | None:
    """The bytes of `{ uint8 = 3 }`, `{ float32 = [1, 2, 3] }` or `{ struct = [...] }`.

    None for anything else. Members of a struct are laid out as by a compiler: each at a
    multiple of its own size, the whole a multiple of the largest. A string is a buffer's address.
    """
    ((kind, value),) = given.items()
    if kind == "struct" and isinstance(value, list) and value:
        return _struct(value, buffers)
    if kind == "bf16" and isinstance(value, (int, float)):
        bits = np.float32(value).view(np.uint32) >> 16  # exact for values that bf16 holds
        return Packed(struct.pack("<H", int(bits)))
    if kind not in FORMATS:
        return None
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) is not (kind == "bool") for each in values):
        return None
    try:
        return Packed(struct.pack(f"<{len(values)}{FORMATS[kind]}", *values))
    except (struct.error, OverflowError, TypeError):
        return None


def _struct(members: Sequence[Any], buffers: Sequence[str]) -> Packed | None:
    data, pointers, widest = bytearray(), [], 1
    for member in members:
        if isinstance(member, str):
            part, align = Packed(bytes(POINTER_BYTES), ((0, member),)), POINTER_BYTES
            if member not in buffers:
                return None
        elif member == {"null": True}:
            part, align = Packed(bytes(POINTER_BYTES)), POINTER_BYTES
        elif isinstance(member, dict) and len(member) == 1:
            inner = packed_value(member, buffers)
            if inner is None:
                return None
            part, align = inner, _alignment(member)
        else:
            return None
        data += bytes(-len(data) % align)
        pointers += [(len(data) + offset, name) for offset, name in part.pointers]
        data += part.data
        widest = max(widest, align)
    data += bytes(-len(data) % widest)
    return Packed(bytes(data), tuple(pointers))


def _alignment(member: Mapping[str, Any]) -> int:
    ((kind, value),) = member.items()
    if kind == "struct":
        parts = [each for each in value if isinstance(each, dict)]
        has_pointer = any(isinstance(each, str) for each in value) or {"null": True} in parts
        inner = [_alignment(each) for each in parts if each != {"null": True}]
        return max([POINTER_BYTES if has_pointer else 1, *inner])
    return 2 if kind == "bf16" else struct.calcsize(f"<{FORMATS[kind]}")


def read_data(table: Table, seed: int) -> dict[str, str]:
    """`[[data]]`: initial values of `__constant__` and `__device__` variables, as C++."""
    data: dict[str, str] = {}
    for number, row in enumerate(table.tables("data")):
        name = row.get("name", str)
        value = row.get("value", (str, int, float, list), None)
        elements, fill = row.get("elements", int, None), row.get("fill", str, "random")
        row.finish()
        if value is None and elements is None:
            raise SpecError(f"{row.where}: give value, or elements with fill", code="bad_spec")
        if value is None:
            assert elements is not None
            value = _filled(fill, elements, np.random.default_rng((seed, 1000 + number)), row.where)
        data[name] = _initialiser(value)
    return data


def _filled(fill: str, elements: int, random: np.random.Generator, where: str) -> list[float]:
    if not 0 < elements <= 65536:
        raise SpecError(f"{where}: elements is 1 to 65536, not {elements}", code="bad_spec")
    match fill:
        case "random":
            return [float(value) for value in random.normal(size=elements).astype(np.float32)]
        case "zeros" | "ones":
            return [float(fill == "ones")] * elements
        case "iota":
            return [*range(elements)]
    raise SpecError(
        f"{where}: fill = {fill!r}; it may be random, zeros, ones, iota", code="bad_spec"
    )


def _initialiser(value: Any) -> str:
    """A C++ initialiser; a string is one already."""
    if isinstance(value, list):
        return "{" + ", ".join(map(_initialiser, value)) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
