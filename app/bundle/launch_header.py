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
    """The tables of launch.json. Names in them were checked when the kernel's files were read."""
    parts, rows = [_HEAD], []
    for number, workload in enumerate(description["workloads"]):
        arguments = ",\n".join(f"    {_argument(each)}" for each in workload["arguments"])
        launches = ",\n".join(f"    {_launch(each)}" for each in workload["launches"])
        parts.append(
            f"static const Argument arguments_{number}[] = {{\n{arguments}\n}};\n"
            f"static const Launch launches_{number}[] = {{\n{launches}\n}};\n"
        )
        rows.append(
            f'    {{"{workload["name"]}", {float(workload["flop"])!r}, '
            f"{float(workload['bytes'])!r}, arguments_{number}, {len(workload['arguments'])}, "
            f"launches_{number}, {len(workload['launches'])}}}"
        )
    parts.append("static const Workload workloads[] = {\n" + ",\n".join(rows) + "\n};\n")
    return "\n".join(parts)


def _argument(argument: Mapping[str, Any]) -> str:
    kind, dtype = argument["kind"], str(argument.get("dtype"))
    whole = argument["value"] if kind == "scalar" and dtype in ("int32", "int64") else 0
    real = float(argument["value"]) if kind == "scalar" and dtype == "float32" else 0.0
    zero = "true" if argument.get("zero_fill") else "false"
    type_name = _TYPES.get(dtype, "Type::none")
    return (
        f'{{"{argument["name"]}", Kind::{kind}, {type_name}, {argument.get("bytes", 0)}, {zero}, '
        f"{int(whole)}LL, {real!r}}}"
    )


def _launch(launch: Mapping[str, Any]) -> str:
    def three(sizes: Any) -> str:
        return "{" + ", ".join(f"{int(size)}u" for size in sizes) + "}"

    return (
        f"{{reinterpret_cast<const void*>(&{launch['entry']}), {three(launch['grid'])}, "
        f"{three(launch['block'])}, {int(launch['smem_dynamic_bytes'])}}}"
    )
