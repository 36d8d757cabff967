"""The CUDA text and the entry that a Kernel Tuner script names in its call of `tune_kernel`.

The script is parsed and never run. Its source is a text in the script, or a file beside it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from greenfast.app.cli.import_source import read_cuda, read_cuda_text
from greenfast.search.errors import UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.text import visible

_PLACES = {"kernel_name": 0, "kernel_source": 1}  # among the arguments of tune_kernel
_ENDINGS = (".cu", ".cuh", ".cpp", ".cc", ".c", ".h")


@dataclass(frozen=True)
class ScriptKernel:
    """What a script tunes."""

    entry: str | None
    text: str


def script_kernel(path: Path) -> ScriptKernel:
    """The kernel of a script; UsageError when it names none that can be read."""
    file = visible(path)
    try:
        tree = ast.parse(read_author_file(path, file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{file} is not valid Python", code="bad_tune_file") from error
    call = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) == "tune_kernel"
        ),
        None,
    )
    texts = _texts(tree)
    source = None if call is None else _argument(call, "kernel_source", texts)
    if call is None or source is None:
        raise UsageError(
            f"{file} has no call of tune_kernel with a CUDA text or the name of a file",
            code="bad_tune_file",
            mend=f"greenfast import FILE.cu --tune-file {file}",
        )
    entry = _argument(call, "kernel_name", texts)
    if source.endswith(_ENDINGS) and "\n" not in source:
        return ScriptKernel(entry, read_cuda(path.parent / source))
    return ScriptKernel(entry, read_cuda_text(source, path))


def _texts(tree: ast.Module) -> dict[str, str]:
    """Names that stand for a text."""
    return {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _argument(call: ast.Call, name: str, texts: dict[str, str]) -> str | None:
    place = _PLACES[name]
    given: ast.expr | None = next((word.value for word in call.keywords if word.arg == name), None)
    if given is None and len(call.args) > place:
        given = call.args[place]
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return given.value
    return texts.get(given.id) if isinstance(given, ast.Name) else None
