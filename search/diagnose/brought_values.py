"""Values of launch.toml that are more than a number: small scalars, structs, device variables."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greenfast.search.devices.tensor_map import MAP_ALIGNMENT, MAP_BYTES, TensorMap
from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.oracle.problem import Packed, Tensor

Named = Tensor | TensorMap  # what a launch file's strings may name
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


def packed_value(given: Mapping[str, Any], named: Mapping[str, Named]) -> Packed | None:
    """The bytes of `{ uint8 = 3 }`, `{ float32 = [1, 2, 3] }` or `{ struct = [...] }`.

    None for anything else. Members of a struct are laid out as by a compiler: each at a
    multiple of its alignment, the whole a multiple of the largest. A string is the address of
    a buffer, or a tensor map.
    """
    ((kind, value),) = given.items()
    if kind == "struct" and isinstance(value, list) and value:
        return _struct(value, named)
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


def _struct(members: Sequence[Any], named: Mapping[str, Named]) -> Packed | None:
    data, widest = bytearray(), 1
    pointers: list[tuple[int, str]] = []
    maps: list[tuple[int, TensorMap]] = []
    for member in members:
        if isinstance(member, str):
            if member not in named:
                return None
            part, align = _member(member, named[member]), _alignment_of(named[member])
        elif member == {"null": True}:
            part, align = Packed(bytes(POINTER_BYTES)), POINTER_BYTES
        elif isinstance(member, dict) and len(member) == 1:
            inner = packed_value(member, named)
            if inner is None:
                return None
            part, align = inner, _alignment(member, named)
        else:
            return None
        data += bytes(-len(data) % align)
        pointers += [(len(data) + offset, name) for offset, name in part.pointers]
        maps += [(len(data) + offset, each) for offset, each in part.maps]
        data += part.data
        widest = max(widest, align)
    data += bytes(-len(data) % widest)
    return Packed(bytes(data), tuple(pointers), tuple(maps))


def _member(name: str, value: Named) -> Packed:
    if isinstance(value, TensorMap):
        return Packed(bytes(MAP_BYTES), maps=((0, value),))
    return Packed(bytes(POINTER_BYTES), ((0, name),))


def _alignment_of(value: Named) -> int:
    return MAP_ALIGNMENT if isinstance(value, TensorMap) else POINTER_BYTES


def _alignment(member: Mapping[str, Any], named: Mapping[str, Named]) -> int:
    ((kind, value),) = member.items()
    if kind == "struct":
        strings = [_alignment_of(named[each]) for each in value if isinstance(each, str)]
        parts = [each for each in value if isinstance(each, dict)]
        nulls = [POINTER_BYTES] if {"null": True} in parts else []
        inner = [_alignment(each, named) for each in parts if each != {"null": True}]
        return max([1, *strings, *nulls, *inner])
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
