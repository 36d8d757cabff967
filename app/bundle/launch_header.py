"""launch.h: the numbers of launch.json as C++ tables, for the bundle's host example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {
    "fp16": "Type::fp16",
    "bf16": "Type::bf16",
    "float32": "Type::float32",
    "int32": "Type::int32",
    "int64": "Type::int64",
    "uint8": "Type::uint8",
}
_HEAD = """// Generated: the launches and arguments of launch.json. host.cu reads these tables.
#pragma once

enum class Kind { input, output, scalar, workspace };
enum class Type { none, fp16, bf16, float32, int32, int64, uint8 };
struct Argument {
    const char* name;
    Kind kind;
    Type type;
    long long bytes;
    bool zero_fill;       // workspaces
    long long whole;      // scalars: the value of an integer,
    double real;          // or of a float
};
struct Launch {
    const void* entry;
    unsigned grid[3], block[3];
    int smem_dynamic_bytes;
};
struct Workload {
    const char* name;
    double flop, bytes;      // of the operation, however it is written
    const Argument* arguments;
    int argument_count;
    const Launch* launches;
    int launch_count;
};
"""


def launch_header(description: Mapping[str, Any]) -> str:
    """The tables; names in it are a kernel's own (checked when its files were read) and numbers."""
    parts, rows = [_HEAD], []
    for number, one in enumerate(description["workloads"]):
        arguments = ",\n".join(f"    {_argument(each)}" for each in one["arguments"])
        launches = ",\n".join(f"    {_launch(each)}" for each in one["launches"])
        parts.append(
            f"static const Argument arguments_{number}[] = {{\n{arguments}\n}};\n"
            f"static const Launch launches_{number}[] = {{\n{launches}\n}};\n"
        )
        rows.append(
            f'    {{"{one["name"]}", {float(one["flop"])!r}, {float(one["bytes"])!r}, arguments_{number}, '
            f"{len(one['arguments'])}, launches_{number}, {len(one['launches'])}}}"
        )
    parts.append("static const Workload workloads[] = {\n" + ",\n".join(rows) + "\n};\n")
    return "\n".join(parts)


def _argument(one: Mapping[str, Any]) -> str:
    kind, dtype = one["kind"], one.get("dtype")
    whole = one["value"] if kind == "scalar" and dtype in ("int32", "int64") else 0
    real = float(one["value"]) if kind == "scalar" and dtype == "float32" else 0.0
    zero = "true" if one.get("zero_fill") else "false"
    return (
        f'{{"{one["name"]}", Kind::{kind}, {_TYPES.get(dtype, "Type::none")}, {one.get("bytes", 0)}, {zero}, '
        f"{int(whole)}LL, {real!r}}}"
    )


def _launch(one: Mapping[str, Any]) -> str:
    def three(sizes: Any) -> str:
        return "{" + ", ".join(f"{int(size)}u" for size in sizes) + "}"

    return (
        f"{{reinterpret_cast<const void*>(&{one['entry']}), {three(one['grid'])}, {three(one['block'])}, "
        f"{int(one['smem_dynamic_bytes'])}}}"
    )
