"""The files of an imported kernel: its texts from what the command line says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from greenfast.app.cli.import_in_out import (
    COPY_THREADS,
    copied,
    copy_entry,
    copy_grid,
    with_copies,
)
from greenfast.app.cli.import_source import Entry, ImportedArgument, Tuning
from greenfast.search.diagnose.plain_reference import own_defines_off
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.forms import SCHEMA_FOLDER

TEMPLATE = "plain"


@dataclass(frozen=True)
class Imported:
    """A plain kernel, with everything that its files need; expressions have been checked."""

    name: str
    source: str  # the file's name
    text: str
    entry: Entry
    arguments: tuple[ImportedArgument, ...]
    tuning: Tuning
    defines: Mapping[str, str]  # a parameter's name in the file, by its own
    defaults: Mapping[str, Value]
    grid: list[str]
    block: list[str]
    smem: str
    tolerance: float

    @cached_property
    def dims(self) -> dict[str, int]:
        """Sizes by name: integer scalars that a shape or the grid uses, and literal sizes."""
        used = {size for argument in self.arguments for size in argument.shape}
        words = {word for text in self.grid for word in re.findall(r"[A-Za-z_]\w*", text)}
        dims = {
            argument.name: int(argument.value)
            for argument in self.arguments
            if argument.is_size and argument.name in used | words and argument.value > 0
        }
        return {**dims, **{f"size_{size}": int(size) for size in sorted(used) if size.isdigit()}}

    @property
    def truth(self) -> str:
        """The sentence on what candidates are compared with."""
        values = ", ".join(f"{self.defines[name]}={value}" for name, value in self.defaults.items())
        return (
            f"the truth is the unmodified kernel {self.entry.name} of {self.source} at {values}, "
            "run on the emulator, so a mistake that it makes itself is not found"
        )


def imported_files(imported: Imported) -> dict[str, str]:
    """The files of the kernel's folder, by name."""
    return {
        "kernel.toml": _kernel_toml(imported),
        "reference.py": _reference(imported),
        f"{TEMPLATE}.toml": _template_toml(imported),
        f"{TEMPLATE}.cu.j2": _template_text(imported),
    }


def _kernel_toml(imported: Imported) -> str:
    dims = imported.dims
    blocks = [
        f"#:schema {SCHEMA_FOLDER}/kernel.schema.json",
        f"# Written by `greenfast import {_comment(imported.source)}`.",
        f"# {_sentence(imported.truth)}",
        f"name = {_toml(imported.name)}",
        f"title = {_toml(f'{imported.entry.name}, imported from {imported.source}')}",
        f"baseline = {_toml(f'{TEMPLATE}:defaults')}",
        "",
        "[dims]",
    ]
    for name, size in dims.items():
        fixed = name.startswith("size_") and name[5:].isdigit()
        rest = f', values = [{size}], default = "{size}"' if fixed else ""
        blocks.append(f'{name} = {{ time = "run", doc = ""{rest} }}')
    for argument in imported.arguments:
        blocks += ["", "[[arguments]]", f"name = {_toml(argument.name)}"]
        if argument.role == "scalar":
            value = argument.name if argument.name in dims else repr(argument.value)
            blocks += ['kind = "scalar"', f"dtype = {_toml(argument.dtype)}"]
            blocks.append(f"value = {_toml(value)}")
            continue
        shape = [f"size_{size}" if size.isdigit() else size for size in argument.shape]
        blocks += [f"kind = {_toml(argument.role)}", f"dtype = {_toml(argument.dtype)}"]
        blocks += [f"shape = {json.dumps(shape)}", "contiguous = true"]
    tensors = [argument for argument in imported.arguments if argument.shape]
    elements = [_product(argument) for argument in tensors]
    sizes = [f"{_bytes(argument)} * {_product(argument)}" for argument in tensors]
    given = ", ".join(f"{name} = {size}" for name, size in dims.items())
    blocks += [
        "",
        "# A guess: an operation for each element. Correct it, so that times can be judged.",
        "[work]",
        f"flop = {_toml(' + '.join(elements))}",
        f"bytes = {_toml(' + '.join(sizes))}",
        "",
        "[workloads.imported]",
        f"title = {_toml('the sizes of the import')}",
        f"dims = {{ {given} }}",
        "",
        "[[checks]]",
        'name = "imported"',
        f"dims = {{ {given} }}",
        'inputs = "normal"',
        "seeds = 2",
    ]
    free = [name for name in dims if not name.startswith("size_")]
    for check, change in (("one_less", -1), ("one_more", 1)):
        if free:
            changed = ", ".join(
                f"{name} = {max(size + change, 1) if name in free else size}"
                for name, size in dims.items()
            )
            blocks += ["", "[[checks]]", f'name = "{check}"', f"dims = {{ {changed} }}"]
            blocks += ['inputs = "normal"', "seeds = 1"]
    return "\n".join(blocks) + "\n"


def _product(argument: ImportedArgument) -> str:
    return " * ".join(f"size_{size}" if size.isdigit() else size for size in argument.shape)


def _bytes(argument: ImportedArgument) -> int:
    return {"fp16": 2, "bf16": 2, "int64": 8, "uint8": 1}.get(argument.dtype, 4)


def _template_toml(imported: Imported) -> str:
    lines = [
        f"#:schema {SCHEMA_FOLDER}/template.schema.json",
        f'name = "{TEMPLATE}"',
        f"kernel = {_toml(imported.name)}",
        f"idea = {_toml(f'{imported.source} with its #defines as parameters')}",
    ]
    for name, values in imported.tuning.parameters.items():
        kind = {bool: "bool", int: "int", str: "choice"}[type(values[0])]
        lines += ["", f"[parameters.{name}]", f'type = "{kind}"']
        lines += [f"values = {json.dumps(values)}"]
        lines += [f"default = {json.dumps(imported.defaults[name])}"]
    for text in imported.tuning.restrictions:
        lines += ["", "[[constraints]]", f"expr = {_toml(text)}"]
        lines.append(f"because = {_toml(f'the restriction {text} does not hold')}")
    if copied(imported.arguments):
        grid = [copy_grid(imported.arguments), "1", "1"]
        lines += [
            "",
            "[[launches]]",
            f"entry = {_toml(copy_entry(imported.entry))}",
            f"grid = {json.dumps(grid)}",
            f"block = {json.dumps([str(COPY_THREADS), '1', '1'])}",
            'smem_dynamic_bytes = "0"',
        ]
    lines += [
        "",
        "[[launches]]",
        f"entry = {_toml(imported.entry.name)}",
        f"grid = {json.dumps(imported.grid)}",
        f"block = {json.dumps(imported.block)}",
        f"smem_dynamic_bytes = {_toml(imported.smem)}",
        "",
        "[presets.defaults]",
        'doc = "the values of the plain file"',
        "parameters = {}",
    ]
    return "\n".join(lines) + "\n"


def _with_extern_c(imported: Imported) -> str:
    """The text with the entry's name as it is, and without its own values of parameters."""
    text = own_defines_off(imported.text, set(imported.defines.values()))
    text = with_copies(text, imported.entry, imported.arguments)
    if imported.entry.is_extern_c:
        return text
    pattern = rf"__global__(?=[^;{{}}]*\b{imported.entry.name}\s*\()"
    return re.sub(pattern, 'extern "C" __global__', text, count=1)


def _template_text(imported: Imported) -> str:
    defines = []
    for name, values in imported.tuning.parameters.items():
        value = f"{{{{ {name} }}}}"
        if isinstance(values[0], bool):
            value = f"{{{{ 1 if {name} else 0 }}}}"
        defines.append(f"#define {imported.defines[name]} {value}")
    return (
        f"// {_comment(imported.source)}, with its tunable values as parameters.\n"
        + "\n".join(defines)
        + "\n{% raw %}\n"
        + _with_extern_c(imported).strip("\n")
        + "\n{% endraw %}\n"
    )


def _reference(imported: Imported) -> str:
    inputs = [argument for argument in imported.arguments if argument.role == "input"]
    outputs = [argument for argument in imported.arguments if argument.role == "output"]
    values = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in imported.defaults.items()
    }
    defines = {imported.defines[name]: value for name, value in values.items()}
    passed = [
        f"({argument.dtype!r}, {_scalar(imported, argument)})"
        if argument.role == "scalar"
        else repr(argument.name)
        for argument in imported.arguments
    ]
    made = "\n".join(
        f"        {argument.name!r}: stored(random, {_shape(argument)}, {argument.dtype!r}),"
        for argument in inputs
    )
    returned = ", ".join(
        f"{argument.name!r}: ({argument.dtype!r}, {_shape(argument)})" for argument in outputs
    )
    first = ""
    if copied(imported.arguments):
        first = f"\n        first_entry={copy_entry(imported.entry)!r},"
    return f'''"""Inputs and outputs of {imported.name}, imported from {_comment(imported.source)}.

{_sentence(imported.truth)}
Write a float64 computation in place of `plain_outputs` to find those too: see
docs/reference/reference-py.md.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from greenfast.search.diagnose.plain_reference import (
    PlainKernel,
    plain_outputs,
    three,
    value_of,
    with_defines,
)

# Reports and evidence repeat this sentence.
TRUTH = {imported.truth!r}
TOLERANCE = {imported.tolerance!r}
DEFINES = {defines!r}
PARAMETERS = {values!r}
STORAGE = {{"fp16": np.float16, "bf16": ml_dtypes.bfloat16}}
PLAIN = with_defines(
    {_with_extern_c(imported)!r},
    DEFINES,
)


def stored(random, shape, dtype):
    if dtype in ("int32", "int64", "uint8"):
        return random.integers(0, 100, shape).astype(dtype)
    return random.standard_normal(shape).astype(STORAGE.get(dtype, np.float32))


def make_inputs(dims, options, recipe, seed, tiles):
    random = np.random.default_rng(seed)
    return {{
{made}
    }}


def launch(dims):
    """The plain kernel with the grid of these sizes."""
    names = {{**dims, **PARAMETERS}}
    return PlainKernel(
        PLAIN,
        {imported.entry.name!r},
        grid=three([{_sizes(imported.grid)}]),
        block=three([{_sizes(imported.block)}]),
        smem_dynamic_bytes=int({_size(imported.smem)}),{first}
    )


def reference(dims, options, inputs):
    outputs = plain_outputs(
        launch(dims), inputs, {{{returned}}}, [{", ".join(passed)}]
    )
    return {{name: within_tolerance(value) for name, value in outputs.items()}}


def within_tolerance(value):
    finite = value[np.isfinite(value)]
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    bound = TOLERANCE * (np.abs(value) + scale)
    return {{"value": value, "bound": np.where(np.isnan(bound), np.inf, bound), "rounded": None}}
'''


def _shape(argument: ImportedArgument) -> str:
    sizes = [size if size.isdigit() else f"dims[{size!r}]" for size in argument.shape]
    return f"({', '.join(sizes)},)"


def _scalar(imported: Imported, argument: ImportedArgument) -> str:
    return f"dims[{argument.name!r}]" if argument.name in imported.dims else repr(argument.value)


def _sizes(texts: list[str]) -> str:
    return ", ".join(map(_size, texts))


def _size(text: str) -> str:
    """Code that computes an expression of the launch."""
    return f"value_of({text!r}, names)"


def _sentence(text: str) -> str:
    """A sentence on its own; it is part of comments and docstrings."""
    return f"{text[0].upper()}{text[1:]}."


def _comment(text: str) -> str:
    """A text for a comment or docstring: one line, without what would end it."""
    return re.sub(r"[^\w. -]", "_", text)


def _toml(text: str) -> str:
    """A TOML string: JSON's strings are TOML's basic strings."""
    return json.dumps(text)
