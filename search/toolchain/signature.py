"""The parameter list of a compiled entry against the one that kernel.toml describes.

A launch passes pointers and scalars by position, so an entry that declares others reads something
else than it believes. PTX names the type of each parameter: a pointer and an int64 are both 64 bits
there, and cannot be distinguished.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?")
_TYPE = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)([^,\[]*)(\[\d+\])?")
# Registers with the state of a cooperative launch. Without one a GPU stops the kernel.
_WHOLE_GRID = "%envreg"
MAP_BYTES = "[128]"  # a CUtensorMap, passed by value
UNTYPED = {"b32": "any 32 bits", "b64": "any 64 bits"}
_CLASSES = {"int32": "32 bits", "int64": "64 bits", "float32": "float", "float64": "double"}
_WORDS = {
    "pointer": "a pointer",
    "64 bits": "a 64-bit integer",
    "32 bits": "a 32-bit integer",
    "float": "a float",
    "double": "a double",
    "map": "a tensor map",
}


@dataclass(frozen=True)
class Passed:
    """An argument that a launch passes."""

    name: str
    form: str  # of _WORDS

    @property
    def words(self) -> str:
        return f"{self.name} ({_WORDS[self.form]})"


def passed_arguments(
    kernel: KernelSpec, template: TemplateSpec, values: dict[str, Value], probe: bool
) -> tuple[Passed, ...]:
    """The arguments of every launch of a point; `values` holds its parameters and locals."""
    arguments = [
        Passed(argument.name, _CLASSES[argument.dtype] if argument.kind == "scalar" else "pointer")
        for argument in kernel.arguments
    ]
    arguments += [
        Passed(scalar.name, _CLASSES[scalar.dtype]) for scalar in template.own_scalars(values)
    ]
    arguments += [Passed(workspace.name, "pointer") for workspace in template.scratch(values)]
    arguments += [Passed(tensor_map.name, "map") for tensor_map in template.mapped(values)]
    return (*arguments, *([Passed("probe_out", "pointer")] if probe else []))


def signature_fault(
    entries: Sequence[str], passed: Sequence[Passed], ptx: str, template: str
) -> str:
    """Why a launch cannot call these entries of a module; empty when it can, or without PTX."""
    if not ptx:
        return ""
    declared = {match[1]: _forms(match[2] or "") for match in _ENTRY.finditer(ptx)}
    for entry in entries:
        if entry not in declared:
            return (
                f"template {template} launches {entry!r}, and its text has no such entry: write "
                f'extern "C" __global__ void {entry}(...); it has '
                + (", ".join(declared) or "none")
            )
        if fault := _difference(declared[entry], passed):
            return f"{entry} of template {template} {fault}"
    if _WHOLE_GRID in ptx:
        return (
            f"template {template} waits for its whole grid (grid.sync()), which needs a "
            "cooperative launch, and launches are not: divide the kernel into several launches"
        )
    return ""


def _forms(parameters: str) -> list[str]:
    forms = []
    for match in _TYPE.finditer(parameters):
        kind, attributes, array = match[1], match[2], match[3]
        if array == MAP_BYTES:
            forms.append("map")
        elif array or kind in ("b8", "b16"):
            forms.append("another type")
        elif ".ptr" in attributes:
            forms.append("pointer")
        elif kind.startswith("f"):
            forms.append({"f32": "float", "f64": "double"}.get(kind, "another type"))
        elif kind in UNTYPED:  # an integer, a float or a double
            forms.append(UNTYPED[kind])
        else:
            bits = kind[1:]
            forms.append(f"{bits} bits" if bits in ("32", "64") else "another type")
    return forms


def _difference(declared: Sequence[str], passed: Sequence[Passed]) -> str:
    if len(declared) != len(passed):
        names = ", ".join(argument.name for argument in passed) or "none"
        return (
            f"takes {len(declared)} arguments, and a launch passes {len(passed)}: {names} "
            "(the [[arguments]] of kernel.toml, then the template's scalars and workspaces)"
        )
    for number, (form, argument) in enumerate(zip(declared, passed, strict=True), 1):
        fits = {form} | ({"pointer"} if form == "64 bits" else set())
        fits |= {"32 bits", "float"} if form == UNTYPED["b32"] else set()
        fits |= {"64 bits", "double", "pointer"} if form == UNTYPED["b64"] else set()
        if argument.form not in fits:
            return (
                f"takes {_WORDS.get(form, form)} as argument {number}, where a launch passes "
                f"{argument.words}: the order is that of [[arguments]] in kernel.toml, then the "
                "template's scalars and workspaces"
            )
    return ""
