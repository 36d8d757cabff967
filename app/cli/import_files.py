"""The texts of an imported kernel's files, from the options of the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from greenfast.app.cli.import_cluster import with_cluster_sizes
from greenfast.app.cli.import_in_out import (
    COPY_THREADS,
    copied,
    copy_entry,
    copy_grid,
    with_copies,
)
from greenfast.app.cli.import_reference import reference_text
from greenfast.app.cli.import_scratch import scratch_bytes, with_scratch_last
from greenfast.app.cli.import_source import ImportedArgument
from greenfast.app.cli.imported import Imported
from greenfast.search.diagnose.plain_reference import behind_includes, own_defines_off
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.forms import schema_line
from greenfast.search.oracle.storage import DTYPES

TEMPLATE = "plain"
MOST_ELEMENTS = 2**17  # of a check's tensors, so that it takes the emulator a second or less


def imported_files(imported: Imported) -> dict[str, str]:
    """The files of the kernel's folder, by name."""
    return {
        "kernel.toml": _kernel_toml(imported),
        "reference.py": reference_text(imported, _plain_text(imported)),
        f"{TEMPLATE}.toml": _template_toml(imported),
        f"{TEMPLATE}.cu.j2": _template_text(imported),
    }


def _kernel_toml(imported: Imported) -> str:
    blocks = [
        schema_line("kernel"),
        f"# Written by `greenfast import {_comment(imported.source)}`.",
        f"# {_sentence(imported.truth)}",
        f"name = {_toml(imported.name)}",
        f"title = {_toml(f'{imported.entry.name}, imported from {imported.source}')}",
        f"baseline = {_toml(f'{TEMPLATE}:defaults')}",
        "",
        "[dims]",
    ]
    for name, size in imported.dims.items():
        rest = f', values = [{size}], default = "{size}"' if _is_fixed(name) else ""
        time = "compile" if name in imported.compiled_dims else "run"
        blocks.append(f'{name} = {{ time = "{time}", doc = ""{rest} }}')
    for name, text in imported.computed_dims.items():
        blocks.append(f'{name} = {{ time = "run", doc = "", default = {_toml(text)} }}')
    if imported.constants:
        blocks += ["", "# The values of the import, unless a call gives others.", "[constants]"]
        blocks += [f"{name} = {_toml(repr(value))}" for name, value in imported.constants.items()]
    if re.search(r"\bwmma\b", imported.text):
        blocks += ["", "# As wmma::load_matrix_sync needs it.", "[alignment]", "pointer_bytes = 32"]
    for argument in imported.arguments:
        blocks += _argument_toml(imported, argument)
    blocks += _work_toml(imported)
    return "\n".join([*blocks, *_cases_toml(imported)]) + "\n"


def _is_fixed(name: str) -> bool:
    """Whether a dim names a number of a shape."""
    return name.startswith("size_") and name[5:].isdigit()


def _argument_toml(imported: Imported, argument: ImportedArgument) -> list[str]:
    lines = ["", "[[arguments]]", f"name = {_toml(argument.name)}"]
    if argument.role == "scalar":
        lines += ['kind = "scalar"', f"dtype = {_toml(argument.dtype)}"]
        is_named = argument.name in (*imported.dims, *imported.constants)
        return [*lines, f"value = {_toml(argument.name if is_named else repr(argument.value))}"]
    lines += [f"kind = {_toml(argument.role)}", f"dtype = {_toml(argument.storage)}"]
    return [*lines, f"shape = {json.dumps(argument.dims)}", "contiguous = true"]


def _work_toml(imported: Imported) -> list[str]:
    tensors = [argument for argument in imported.arguments if argument.shape]
    elements = [_product(argument) for argument in tensors]
    sizes = [f"{_bytes(argument)} * {_product(argument)}" for argument in tensors]
    return [
        "",
        "# A guess: an operation for each element. Correct it, so that times can be judged.",
        "[work]",
        f"flop = {_toml(' + '.join(elements))}",
        f"bytes = {_toml(' + '.join(sizes))}",
    ]


def _cases_toml(imported: Imported) -> list[str]:
    """The workload with the sizes of the import, and checks at sizes around them, or smaller."""
    dims = _check_dims(imported)
    is_smaller = dims != _run_dims(imported)
    lines = [
        "",
        "[workloads.imported]",
        f"title = {_toml('the sizes of the import')}",
        f"dims = {{ {_given(imported.dims)} }}",
        "",
        *(["# Smaller than the import, which would take the emulator minutes."] * is_smaller),
        "[[checks]]",
        f'name = "{"smaller" if is_smaller else "imported"}"',
        f"dims = {{ {_given(dims)} }}",
        'inputs = "normal"',
        "seeds = 2",
    ]
    free = _free_dims(imported)
    may_grow = not _has_large_number(imported)
    for check, change in (("one_less", -1), ("one_more", 1))[: 1 + may_grow]:
        if free:
            changed = {
                name: max(size + change * step, step)
                for name, size in dims.items()
                if name in free and (step := imported.multiples.get(name, 1))
            }
            lines += ["", "[[checks]]", f'name = "{check}"']
            lines += [f"dims = {{ {_given({**dims, **changed})} }}"]
            lines += ['inputs = "normal"', "seeds = 1"]
    if _tiles(imported):
        beyond = {name: f'"{_beyond_a_tile(imported, name)}"' for name in free}
        lines += ["", "[[checks]]", 'name = "beyond_a_tile"']
        lines += [f"dims = {{ {_given({**dims, **beyond})} }}", 'inputs = "normal"', "seeds = 1"]
    if any(each.role == "input" and not each.fill for each in imported.arguments):
        lines += ["", "# The ends of each row hold its smallest and its largest number."]
        lines += ["[[checks]]", 'name = "ends"', f"dims = {{ {_given(dims)} }}"]
        lines += ['inputs = "ends"', "seeds = 1"]
    return [*lines, *_other_constants_toml(imported, dims)]


def _beyond_a_tile(imported: Imported, name: str) -> str:
    size = f"2 * tile_of_{name} + 1"
    step = imported.multiples.get(name, 1)
    return size if step == 1 else f"round_up({size}, {step})"


def _free_dims(imported: Imported) -> list[str]:
    """The sizes that a check may change."""
    sizes = [size for argument in imported.arguments for size in argument.shape]
    # Of n // 2 elements, n is hardly ever odd.
    divided = {match[1] for size in sizes if (match := re.match(r"(\w+)\s*//\s*\d+\Z", size))}
    fixed = {*divided, *imported.repeated}
    return [
        name for name in _run_dims(imported) if not name.startswith("size_") and name not in fixed
    ]


def _has_large_number(imported: Imported) -> bool:
    """Whether a tensor's size is a number that may be large enough for these sizes only."""
    largest = max((imported.dims[name] for name in _free_dims(imported)), default=0)
    counts = [
        math.prod(int(size) for size in each.shape if size.isdigit())
        for each in imported.arguments
        if each.shape and all(size.isdigit() for size in each.shape)
    ]
    return any(count > largest for count in counts)


def _tiles(imported: Imported) -> dict[str, str]:
    """The tiles, if each size that a check may change has one. Others may depend on these."""
    is_each = set(_free_dims(imported)) == imported.tiles.keys()
    return imported.tiles if is_each and not _has_large_number(imported) else {}


def _other_constants_toml(imported: Imported, dims: Mapping[str, int]) -> list[str]:
    """A check by which a candidate is wrong that ignores a scale. Zero often leaves a term out.

    Values below 1, such as shares and probabilities, stay below 1.
    """
    others = {
        name: float(f"{(0.75 if 2 / 3 <= abs(value) < 1 else 1.5) * value:.6g}")
        for name, value in imported.constants.items()
        if isinstance(value, float) and value != 0 and math.isfinite(value)
    }
    if not others:
        return []
    values = ", ".join(f"{name} = {_toml(repr(value))}" for name, value in others.items())
    return [
        "",
        "# Delete it if the kernel works with the values of the import only.",
        "[[checks]]",
        'name = "other_constants"',
        f"dims = {{ {_given(dims)} }}",
        f"constants = {{ {values} }}",
        'inputs = "normal"',
        "seeds = 1",
    ]


def _given(dims: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in dims.items())


def check_elements(imported: Imported) -> int:
    """The number of elements of a check's tensors."""
    return _elements(imported, _check_dims(imported))


def _run_dims(imported: Imported) -> dict[str, int]:
    """The dims that a check has a size for."""
    compiled = imported.compiled_dims
    return {name: size for name, size in imported.dims.items() if name not in compiled}


def _check_dims(imported: Imported) -> dict[str, int]:
    """Sizes with at most MOST_ELEMENTS elements, if that is possible, else those of the import.

    A smaller size leaves the same rest by powers of two, since a kernel may need such multiples.
    """
    run_dims = _run_dims(imported)
    if _elements(imported, run_dims) <= MOST_ELEMENTS:
        return run_dims
    for unit in (2**power for power in range(15, 4, -1)):
        dims = {
            name: size
            if _is_fixed(name) or size < 2 * unit
            else _at_least(size % unit + unit, step)
            for name, size in run_dims.items()
            if (step := imported.multiples.get(name, 1))
        }
        if _elements(imported, dims) <= MOST_ELEMENTS:
            return dims
    return run_dims


def _at_least(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _elements(imported: Imported, dims: Mapping[str, int]) -> int:
    """The number of elements of all tensors together."""
    scalars = {each.name: int(each.value) for each in imported.arguments if each.is_size}
    known = {**scalars, **dims}
    return sum(
        math.prod(int(expression(size, "--arg")(known)) for size in argument.shape)
        for argument in imported.arguments
        if argument.shape
    )


def _product(argument: ImportedArgument) -> str:
    return " * ".join(argument.dims)


def _bytes(argument: ImportedArgument) -> int:
    return int(DTYPES[argument.storage].itemsize)


def _template_toml(imported: Imported) -> str:
    lines = [
        schema_line("template"),
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
    if tiles := _tiles(imported):
        lines += ["", "# Elements that a block takes, for checks at the edges.", "[tiles]"]
        lines += [f"tile_of_{dim} = {_toml(tile)}" for dim, tile in tiles.items()]
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
        *([f"cluster = {json.dumps(imported.cluster)}"] if imported.cluster else []),
        f"smem_dynamic_bytes = {_toml(imported.smem)}",
    ]
    for argument in imported.scratch:
        lines += ["", "[[workspaces]]", f"name = {_toml(argument.name)}"]
        lines.append(f"bytes = {_toml(scratch_bytes(argument))}")
        lines += ["zero_fill = true"] * bool(argument.fill)
    lines += [
        "",
        "[presets.defaults]",
        'doc = "the values of the plain file"',
        "parameters = {}",
    ]
    return "\n".join(lines) + "\n"


def _with_extern_c(imported: Imported) -> str:
    """The text with the entry's name as it is, and without its own values of parameters."""
    text = own_defines_off(imported.text, set(imported.defines.values()))
    text = with_scratch_last(text, imported.entry, imported.scratch)
    text = with_copies(text, imported.entry, imported.arguments)
    if imported.entry.is_extern_c:
        return text
    pattern = rf"__global__(?=[^;{{}}]*\b{imported.entry.name}\s*\()"
    return re.sub(pattern, 'extern "C" __global__', text, count=1)


def _plain_text(imported: Imported) -> str:
    values = {define: str(imported.defaults[name]) for name, define in imported.defines.items()}
    return with_cluster_sizes(_with_extern_c(imported), imported.entry.name, values)


def _template_text(imported: Imported) -> str:
    defines = []
    for name, values in imported.tuning.parameters.items():
        value = f"{{{{ {name} }}}}"
        if isinstance(values[0], bool):
            value = f"{{{{ 1 if {name} else 0 }}}}"
        defines.append(f"#define {imported.defines[name]} {value}")
    places = {
        define: f"{{% endraw %}}{{{{ {name} }}}}{{% raw %}}"
        for name, define in imported.defines.items()
    }
    text = with_cluster_sizes(_with_extern_c(imported), imported.entry.name, places)
    text = text.strip("\n") + "\n"
    after = behind_includes(text)
    return (
        f"// {_comment(imported.source)}, with its tunable values as parameters.\n"
        + _raw(text[:after])
        + "\n".join(defines)
        + "\n"
        + _raw(text[after:])
    )


def _raw(text: str) -> str:
    """CUDA text that Jinja leaves as it is."""
    return f"{{% raw %}}\n{text}{{% endraw %}}\n" if text else ""


def _sentence(text: str) -> str:
    """A sentence on its own; it is part of comments and docstrings."""
    return f"{text[0].upper()}{text[1:]}."


def _comment(text: str) -> str:
    """A text for a comment or docstring: one line, without what would end it."""
    return re.sub(r"[^\w. -]", "_", text)


def _toml(text: str) -> str:
    """A TOML string: JSON's strings are TOML's basic strings."""
    return json.dumps(text)
