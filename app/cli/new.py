"""`greenfast new`: a kernel or a template to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.new_files import (
    SCAFFOLD,
    add_files,
    checked_kernel_name,
    checked_new_name,
    own_kernel_folder,
    path_advice,
    shown,
    target_root,
    write_kernel,
)
from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.search.errors import UsageError
from greenfast.search.kernels.forms import schema_line
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.kernels.spec import KernelSpec

FIRST_TEMPLATE = "block"
ELEMENT = {
    "float32": "float",
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
}

Folder = Annotated[
    Path | None,
    typer.Option(
        "--in",
        metavar="FOLDER",
        help="The folder of your kernels. [default: the first on GREENFAST_TEMPLATE_PATH, else "
        "./kernels]",
    ),
]


def new(
    kind: Annotated[
        str, typer.Argument(metavar="kernel|template", help="Write a kernel, or a template of one.")
    ],
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[KERNEL] NAME",
            help="The new name. For a template, first the kernel that it belongs to.",
        ),
    ],
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Write a kernel or a template to start from: `new kernel NAME`, `new template KERNEL NAME`.

    A new kernel adds two matrices and sums the rows. It passes all checks at once. Change it step
    by step, and run `greenfast lint NAME` after each step. A new template has the kernel's
    arguments and an empty body.

    Exit codes: 0 written, 2 the name is taken or not possible.
    """
    if kind == "kernel" and len(names) == 1:
        written, commands = _new_kernel(names[0], folder)
    elif kind == "template" and len(names) == 2:
        written, commands = _new_template(names[0], names[1], folder)
    else:
        raise UsageError(
            "this is not complete",
            code="bad_command_line",
            mend="write `greenfast new kernel NAME` or `greenfast new template KERNEL NAME`",
        )
    if as_json:
        print_json({"files": [str(path) for path in written], "next": commands})
        return 0
    for path in written:
        print(shown(path))
    print("\nNext:")
    for command in commands:
        print(f"  {command}")
    return 0


def _new_kernel(name: str, given: Path | None) -> tuple[list[Path], list[str]]:
    root = target_root(given)
    checked_kernel_name(name)
    folder = write_kernel(root, name, kernel_files_of(name))
    advice = path_advice(root)
    commands = [
        *([advice] if advice else []),
        f"greenfast lint {name}",
        f"greenfast trial {name} --template {FIRST_TEMPLATE}",
        f"greenfast search {name} --trials 10",
    ]
    return sorted(path for path in folder.iterdir() if path.is_file()), commands


def kernel_files_of(name: str) -> dict[str, str]:
    """The files of a new kernel, by their names."""
    words = {"name": name, "template": FIRST_TEMPLATE, "schema": schema_line("template")}
    of_kernel = {**words, "schema": schema_line("kernel")}
    return {
        "kernel.toml": _replaced((SCAFFOLD / "kernel.toml").read_text("utf-8"), of_kernel),
        "reference.py": _replaced((SCAFFOLD / "reference.py.txt").read_text("utf-8"), words),
        f"{FIRST_TEMPLATE}.toml": _replaced((SCAFFOLD / "template.toml").read_text("utf-8"), words)
        .replace("{{", "{")
        .replace("}}", "}"),
        f"{FIRST_TEMPLATE}.cu.j2": (SCAFFOLD / "template.cu.j2")
        .read_text("utf-8")
        .replace("@ENTRY@", f"{name}_{FIRST_TEMPLATE}"),
    }


def _new_template(kernel_name: str, name: str, root: Path | None) -> tuple[list[Path], list[str]]:
    checked_new_name(name, "template")
    folder = own_kernel_folder(checked_new_name(kernel_name, "kernel"), root)
    is_first = not any(path.name != "kernel.toml" for path in folder.glob("*.toml"))
    files = template_files_of(load_kernel(folder, without_templates=is_first), name)
    add_files(folder, files)
    commands = [
        f"greenfast lint {kernel_name}",
        f"greenfast trial {kernel_name} --template {name}",
    ]
    return [folder / file for file in files], commands


def template_files_of(kernel: KernelSpec, name: str) -> dict[str, str]:
    """The files of a new template of `kernel`, with its arguments and an empty body."""
    run_dims = [dim.name for dim in kernel.dims if dim.time == "run"]
    grid = f"ceil_div({run_dims[0]}, threads)" if run_dims else "1"
    based, _, preset = kernel.baseline.partition(":")
    toml = f'''{schema_line("template")}
# `greenfast docs template-toml` describes every key.
name = "{name}"
kernel = "{kernel.name}"
idea = "Say in one sentence what is different about this template."

[parameters.threads]
type = "int"
values = [64, 128, 256]
default = 128
doc = "threads of a block"

[tiles]
{_first_tile(kernel)} = "threads"

[[launches]]
entry = "{kernel.name}_{name}"
grid = ["{grid}", "1", "1"]
block = ["threads", "1", "1"]
smem_dynamic_bytes = 0

[presets.{preset if based == name and preset else "plain"}]
doc = "the defaults"
parameters = {{}}
'''
    text = (SCAFFOLD / "empty_template.cu.j2").read_text("utf-8")
    for word, value in (
        ("@IDEA@", f"A template of {kernel.name}: {' '.join(kernel.title.split())}."),
        ("@ENTRY@", f"{kernel.name}_{name}"),
        ("@TYPES@", _element_type(kernel)),
        ("@PARAMETERS@", _parameter_list(kernel, len(f"{kernel.name}_{name}("))),
    ):
        text = text.replace(word, value)
    return {f"{name}.toml": toml, f"{name}.cu.j2": text}


def _first_tile(kernel: KernelSpec) -> str:
    """A tile that the kernel's checks use, so that they meet this template's edges."""
    used = {name for check in kernel.checks for each in check.expressions for name in each.names}
    known = {tile for template in kernel.templates for tile, _ in template.tiles}
    return min(used & known, default="tile")


def _element_type(kernel: KernelSpec) -> str:
    """`using Element = ...;` for arguments whose type is an option."""
    if not any(argument.dtype == "dtype" for argument in kernel.arguments):
        return ""
    option = next(option for option in kernel.options if option.name == "dtype")
    choices = ", ".join(f'"{value}": "{ELEMENT[value]}"' for value in option.values)
    return f"using Element = {{{{ {{{choices}}}[dtype] }}}};\n"


def _parameter_list(kernel: KernelSpec, indent: int) -> str:
    declarations = []
    for argument in kernel.arguments:
        element = "Element" if argument.dtype == "dtype" else ELEMENT[argument.dtype]
        if argument.kind == "scalar":
            declarations.append(f"{element} {argument.name}")
        else:
            constant = "const " if argument.kind == "input" else ""
            declarations.append(f"{constant}{element}* __restrict__ {argument.name}")
    return (",\n" + " " * indent).join(declarations)


def _replaced(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace("{" + word + "}", value)
    return text
