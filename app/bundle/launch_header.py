"""launch.h: the numbers of launch.json as C++ tables, for the bundle's host example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenfast.runtime.cpp_expression import quoted

_TYPES = {
    "fp16": "Type::fp16",
    "bf16": "Type::bf16",
    "float32": "Type::float32",
    "float64": "Type::float64",
    "int8": "Type::int8",
    "int16": "Type::int16",
    "int32": "Type::int32",
    "int64": "Type::int64",
    "uint8": "Type::uint8",
}
_HEAD = """// Generated: the launches and arguments of launch.json. host.cu reads these tables.
#pragma once

enum class Kind { input, output, scalar, workspace, tensor_map };
enum class Type { none, fp16, bf16, float32, float64, int8, int16, int32, int64, uint8 };
struct TensorMapNumbers {           // axes are innermost first
    int argument;            // that it describes: its place in the list
    int rank;
    unsigned long long sizes[5];          // elements
    unsigned long long strides_bytes[4];  // of the axes after the first
    unsigned box[5];                      // elements
    int swizzle_bytes;
    bool fill_nan;
    int l2_promotion_bytes;
};
struct Argument {
    const char* name;
    Kind kind;
    Type type;
    long long bytes;
    bool zero_fill;       // workspaces
    long long whole;      // scalars: the value of an integer,
    double real;          // or of a float
    const TensorMapNumbers* map = nullptr;  // tensor maps; `type` is that of the elements
};
struct Launch {
    const char* entry;
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
    """The tables of launch.json; ValueError for a name that would become code."""
    parts, rows = [_HEAD], []
    arch = quoted(description["arch"])
    parts.append(
        f"// Code for sm_90a runs on sm_90 alone.\nstatic const char compiled_arch[] = {arch};\n"
    )
    for number, workload in enumerate(description["workloads"]):
        places = {each["name"]: place for place, each in enumerate(workload["arguments"])}
        maps = [argument for argument in workload["arguments"] if argument["kind"] == "tensor_map"]
        parts += [
            _tensor_map(number, tensor_map, places[tensor_map["buffer"]]) for tensor_map in maps
        ]
        arguments = ",\n".join(
            f"    {_argument(argument, number)}" for argument in workload["arguments"]
        )
        launches = ",\n".join(f"    {_launch(launch)}" for launch in workload["launches"])
        parts.append(
            f"static const Argument arguments_{number}[] = {{\n{arguments}\n}};\n"
            f"static const Launch launches_{number}[] = {{\n{launches}\n}};\n"
        )
        rows.append(
            f"    {{{quoted(workload['name'])}, {float(workload['flop'])!r}, "
            f"{float(workload['bytes'])!r}, arguments_{number}, {len(workload['arguments'])}, "
            f"launches_{number}, {len(workload['launches'])}}}"
        )
    parts.append("static const Workload workloads[] = {\n" + ",\n".join(rows) + "\n};\n")
    return "\n".join(parts)


def _tensor_map(number: int, numbers: Mapping[str, Any], place: int) -> str:
    def listed(values: Any, suffix: str) -> str:
        return "{" + ", ".join(f"{int(value)}{suffix}" for value in values) + "}"

    return (
        f"static const TensorMapNumbers {_map_name(number, numbers)} = {{{place}, "
        f"{len(numbers['sizes'])}, "
        f"{listed(numbers['sizes'], 'ull')}, {listed(numbers['strides_bytes'], 'ull')}, "
        f"{listed(numbers['box'], 'u')}, {int(numbers['swizzle_bytes'])}, "
        f"{'true' if numbers['fill'] == 'nan' else 'false'}, "
        f"{int(numbers['l2_promotion_bytes'])}}};\n"
    )


def _argument(argument: Mapping[str, Any], number: int) -> str:
    kind, dtype = argument["kind"], str(argument.get("dtype"))
    whole = argument["value"] if kind == "scalar" and dtype in ("int32", "int64") else 0
    real = float(argument["value"]) if kind == "scalar" and dtype in ("float32", "float64") else 0.0
    zero = "true" if argument.get("zero_fill") else "false"
    map_address = f", &{_map_name(number, argument)}" if kind == "tensor_map" else ""
    type_name = _TYPES.get(dtype, "Type::none")
    return (
        f"{{{quoted(argument['name'])}, Kind::{_identifier(kind)}, {type_name}, "
        f"{int(argument.get('bytes', 0))}, {zero}, "
        f"{int(whole)}LL, {real!r}{map_address}}}"
    )


def _launch(launch: Mapping[str, Any]) -> str:
    def three(sizes: Any) -> str:
        return "{" + ", ".join(f"{int(size)}u" for size in sizes) + "}"

    return (
        f"{{{quoted(launch['entry'])}, {three(launch['grid'])}, "
        f"{three(launch['block'])}, {int(launch['smem_dynamic_bytes'])}}}"
    )


def _map_name(number: int, tensor_map: Mapping[str, Any]) -> str:
    return f"map_{number}_{_identifier(tensor_map['name'])}"


def _identifier(name: Any) -> str:
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        raise ValueError(f"{name!r} is no name")
    return name
