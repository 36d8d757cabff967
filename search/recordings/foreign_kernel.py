"""The kernel that represents a space of another tuner: parameters without code.

Its files are written once, at import, so that searches freeze them like any kernel's. The text of a
candidate lists its parameters; nothing compiles it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import SM_COUNT, Value
from greenfast.search.recordings.foreign import ForeignSpace, Scalar

TEMPLATE, WORKLOAD, FIRST = "recorded", "recorded", "first"
ORIGINALS = "originals.json"  # the file's values of parameters, for exports
LONGEST_NAME = 40
MOST_VALUES = 4096  # of one parameter
LARGEST = 2**63  # whole numbers from there on are texts: a template's file takes none
INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,17})\Z")  # as a number is written, and no other way
RESERVED = frozenset({SM_COUNT, "probe", "probe_parameter", "loop", "true", "false", "none"})

REFERENCE = '''"""An imported space has times and no code: nothing is computed."""


def make_inputs(dims, options, recipe, seed, tiles):
    return {}


def reference(dims, options, inputs):
    return {}
'''


@dataclass(frozen=True)
class ForeignParameter:
    """A parameter of the file, and its form in a template."""

    original: str
    name: str
    kind: str  # "int" | "bool" | "choice"
    values: tuple[tuple[Scalar, Value], ...]  # (in the file, here), in order

    def here(self, value: Scalar) -> Value:
        return self._table[type(value), value]

    @cached_property
    def _table(self) -> dict[tuple[type, Scalar], Value]:
        return {(type(there), there): here for there, here in self.values}


def parameters_of(space: ForeignSpace) -> tuple[ForeignParameter, ...]:
    """The space's parameters as a template has them."""
    taken: set[str] = set()
    parameters = []
    for column, original in enumerate(space.parameters):
        kinds: dict[tuple[type, Scalar], Scalar] = {}
        for result in space.results:
            value = result.configuration[column]
            kinds.setdefault((type(value), value), value)
        values = tuple(kinds.values())
        if len(values) > MOST_VALUES:
            raise UsageError(
                f"parameter {original!r} has {len(values):,} values; an imported space may have "
                f"{MOST_VALUES:,}",
                code="space_too_large",
            )
        name = _name(original, taken)
        taken.add(name)
        parameters.append(_parameter(original, name, values))
    return tuple(parameters)


def _name(original: str, taken: set[str]) -> str:
    """A template's name for it: small letters, digits and _."""
    name = re.sub(r"[^a-z0-9_]", "_", original.lower())[:LONGEST_NAME] or "parameter"
    name = name if name[0].isalpha() else f"p_{name}"
    name = f"{name}_" if name in RESERVED else name
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name}_{number}", number + 1
    return unique


def _parameter(original: str, name: str, values: tuple[Scalar, ...]) -> ForeignParameter:
    kinds = {type(value) for value in values}
    if kinds == {str} and all(INTEGER.match(str(value)) for value in values):  # KTT's T4
        by_number = sorted(values, key=int)
        return ForeignParameter(original, name, "int", tuple((v, int(v)) for v in by_number))
    if kinds == {bool}:
        ordered: Sequence[Scalar] = sorted(values)
        return ForeignParameter(original, name, "bool", tuple((v, bool(v)) for v in ordered))
    small = all(abs(value) < LARGEST for value in values if isinstance(value, int))
    if kinds == {int} and small:
        ordered = sorted(values)
        return ForeignParameter(original, name, "int", tuple((v, int(v)) for v in ordered))
    numbers = kinds <= {int, float} and small
    ordered = sorted(values, key=float) if numbers else values
    texts = [value if isinstance(value, str) else json.dumps(value) for value in ordered]
    if len(set(texts)) < len(texts):  # the number 1 and the text "1"
        texts = [json.dumps(value) for value in ordered]
    return ForeignParameter(original, name, "choice", tuple(zip(ordered, texts, strict=True)))


def kernel_texts(
    name: str, space: ForeignSpace, parameters: tuple[ForeignParameter, ...], title: str
) -> dict[str, str]:
    """The files of the kernel's folder, by name."""
    first = next(result for result in space.results if result.figure is not None)
    point = {
        parameter.name: parameter.here(value)
        for parameter, value in zip(parameters, first.configuration, strict=True)
    }
    return {
        "kernel.toml": _kernel_toml(name, title),
        "reference.py": REFERENCE,
        f"{TEMPLATE}.toml": _template_toml(name, space, parameters, point),
        f"{TEMPLATE}.cu.j2": _template_text(name, parameters),
        ORIGINALS: _originals(parameters),
    }


def _originals(parameters: tuple[ForeignParameter, ...]) -> str:
    """For each parameter its values here, each with the value in the file."""
    table = {each.name: [[here, there] for there, here in each.values] for each in parameters}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _kernel_toml(name: str, title: str) -> str:
    return f"""# An imported space: times of another tuner, without code.
name = {_toml(name)}
title = {_toml(title)}
baseline = "{TEMPLATE}:{FIRST}"

[dims]
N = {{ time = "run", doc = "of nothing" }}

[[arguments]]
name = "unused"
kind = "output"
dtype = "float32"
shape = ["N"]

[work]
flop = "0"
bytes = "0"

[workloads.{WORKLOAD}]
title = "as in the file"
dims = {{ N = 1 }}
"""


def _template_toml(
    name: str,
    space: ForeignSpace,
    parameters: tuple[ForeignParameter, ...],
    point: dict[str, Value],
) -> str:
    lines = [
        f'name = "{TEMPLATE}"',
        f"kernel = {_toml(name)}",
        f"idea = {_toml(f'Configurations of a {space.form} file, by {space.objective}.')}",
        "minimum_sm = 0",
        "",
    ]
    for parameter in parameters:
        values = [here for _, here in parameter.values]
        lines += [
            f"[parameters.{parameter.name}]",
            f'type = "{parameter.kind}"',
            f"values = [{', '.join(map(_toml, values))}]",
            f"default = {_toml(point[parameter.name])}",
            f"doc = {_toml(parameter.original)}",
            "",
        ]
    settings = ", ".join(f"{key} = {_toml(value)}" for key, value in point.items())
    lines += [
        "[[launches]]",
        'entry = "recorded"',
        'grid = ["1", "1", "1"]',
        'block = ["1", "1", "1"]',
        "",
        f"[presets.{FIRST}]",
        'doc = "the first valid configuration of the file"',
        f"parameters = {{ {settings} }}",
        "",
    ]
    return "\n".join(lines)


def _template_text(name: str, parameters: tuple[ForeignParameter, ...]) -> str:
    rows = [f"//   {parameter.name} = {{{{ {parameter.name} }}}}" for parameter in parameters]
    lines = [
        f"// A configuration of the imported space {name}. The file has its time, not its code.",
        "//",
        *rows,
        'extern "C" __global__ void recorded(float* unused) {}',
        "",
    ]
    return "\n".join(lines)


def _toml(value: Value) -> str:
    """A value as TOML: JSON's notation of texts and numbers is valid there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = json.dumps(str(value))
    return text.replace("\x7f", "\\u007f")
