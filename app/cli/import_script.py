"""The CUDA text and the entry that a Kernel Tuner script names in its call of `tune_kernel`.

The script is parsed and never run. Its source is a text in the script, or a file beside it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from greenfast.app.cli.import_source import CudaText, read_cuda, read_cuda_text
from greenfast.search.errors import UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.text import file_line, shortened, visible

# Among the arguments of tune_kernel; it takes the answer by name only.
_PLACES = {"kernel_name": 0, "kernel_source": 1, "arguments": 3}
_ENDINGS = (".cu", ".cuh", ".cpp", ".cc", ".c", ".h")


@dataclass(frozen=True)
class ScriptKernel:
    """The kernel that a script tunes."""

    entry: str | None
    source: CudaText
    file: str  # the script's, or that of the kernel that it names


def script_kernel(path: Path) -> ScriptKernel:
    """The kernel of a script; UsageError when it names none that can be read."""
    file, tree = visible(path), parsed_script(path)
    call, texts = tuning_call(tree), _texts(tree)
    source = None if call is None else _argument(call, "kernel_source", texts)
    if call is not None and (files := _files(given_argument(call, "kernel_source"))):
        raise UsageError(
            f"{file} tunes a host program, {visible(files[0])}; greenfast launches kernels itself",
            code="bad_tune_file",
            mend=f"greenfast import {visible(files[-1])} --tune-file {file}",
        )
    given = None if call is None else given_argument(call, "kernel_source")
    if given is not None and source is None:
        raise UsageError(
            f"{file}:{given.lineno}: the kernel's source is neither a text nor a file's name, and "
            "the script is not run",
            code="bad_tune_file",
            mend=f"save the text as FILE.cu, and greenfast import FILE.cu --tune-file {file}",
        )
    if call is None or source is None:
        raise UsageError(
            f"{file} has no call of tune_kernel with a CUDA text or the name of a file",
            code="bad_tune_file",
            mend=f"greenfast import FILE.cu --tune-file {file}",
        )
    entry = _argument(call, "kernel_name", texts)
    if source.endswith(_ENDINGS) and "\n" not in source:
        return ScriptKernel(entry, read_cuda(path.parent / source), visible(path.parent / source))
    return ScriptKernel(entry, read_cuda_text(source, path), file)


def script_entry(path: Path) -> str | None:
    """The name of the kernel that a script tunes, if the script has it."""
    tree = parsed_script(path)
    call = tuning_call(tree)
    return None if call is None else _argument(call, "kernel_name", _texts(tree))


def parsed_script(path: Path) -> ast.Module:
    """The script's statements; UsageError when it is no Python."""
    file = visible(path)
    try:
        return ast.parse(read_author_file(path, file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place, why = file, ""
        if isinstance(error, SyntaxError) and error.lineno:
            place, why = file_line(file, error.lineno), f": {shortened(visible(error.msg))}"
        raise UsageError(f"{place} is not valid Python{why}", code="bad_tune_file") from error


def tuning_call(tree: ast.Module) -> ast.Call | None:
    """The first call of tune_kernel."""
    return next(iter(tuning_calls(tree)), None)


def tuning_calls(tree: ast.AST) -> list[ast.Call]:
    """The calls of tune_kernel in the order of their lines."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "tune_kernel"
    ]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _files(source: ast.expr | None) -> list[str]:
    """The files of a list; empty for anything else."""
    items = source.elts if isinstance(source, (ast.List, ast.Tuple)) else []
    return [
        item.value
        for item in items
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]


def _texts(tree: ast.Module) -> dict[str, str]:
    """Names that stand for a text, or for what is read from a file: then the file's name."""
    opened = {
        item.optional_vars.id: name
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
        and (name := _opened(item.context_expr)) is not None
    }
    texts: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (text := _text_of(node.value, opened)) is not None:
            texts |= {target.id: text for target in node.targets if isinstance(target, ast.Name)}
    return texts


def _text_of(node: ast.expr, opened: dict[str, str]) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(func=ast.Attribute(value=ast.Name(id=handle), attr="read"), args=[]):
            return opened.get(handle)
        case ast.Call(func=ast.Attribute(value=call, attr="read" | "read_text"), args=[]):
            return _opened(call)
    return None


def _opened(node: ast.expr) -> str | None:
    """The file of `open("FILE", ...)` or `Path("FILE")`."""
    match node:
        case ast.Call(func=ast.Name(id="open" | "Path"), args=[ast.Constant(value=str(name)), *_]):
            return name
    return None


def given_argument(call: ast.Call, name: str) -> ast.expr | None:
    """An argument of tune_kernel, by name or by its place."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    place = _PLACES.get(name)
    return None if place is None or len(call.args) <= place else call.args[place]


def _argument(call: ast.Call, name: str, texts: dict[str, str]) -> str | None:
    given = given_argument(call, name)
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return given.value
    return texts.get(given.id) if isinstance(given, ast.Name) else None
