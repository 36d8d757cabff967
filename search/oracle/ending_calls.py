"""Calls in a reference.py that would end or double greenfast's own process, without a word.

A reference is trusted code, so this looks for an author's mistake (a script's way out that was left
in), by name. Exceptions, SystemExit among them, are reported where they are raised.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from greenfast.search.errors import SpecError

ENDING = {
    "os": frozenset({"_exit", "abort", "kill", "killpg", "execv", "execl", "execve", "execvp"})
}

DISTURBING = {"os": frozenset({"fork", "forkpty", "close", "closerange", "dup2", "chdir"})}


def refuse_ending_calls(tree: ast.Module, file: str) -> None:
    """SpecError, with the line, when the text names a function that ends or changes the process."""
    modules = {"os": "os"}  # by the name that the text gives it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name: each.name for each in node.names}
    for node in ast.walk(tree):
        if name := _named(node, modules, DISTURBING):
            raise SpecError(
                f"{file}:{getattr(node, 'lineno', 0)}: {name} would change greenfast's own process",
                code="reference_failed",
                mend="compute with NumPy alone",
            )
        if name := _named(node, modules, ENDING):
            raise SpecError(
                f"{file}:{getattr(node, 'lineno', 0)}: {name} would end greenfast itself",
                code="reference_failed",
                mend="raise ValueError with what is wrong",
            )


def _named(
    node: ast.AST, modules: Mapping[str, str], functions: Mapping[str, frozenset[str]]
) -> str:
    """The name of the function of `functions` that the node refers to, or ""."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = modules.get(node.value.id, "")
        return f"{module}.{node.attr}" if node.attr in functions.get(module, ()) else ""
    if isinstance(node, ast.ImportFrom):
        names = [
            each.name for each in node.names if each.name in functions.get(node.module or "", ())
        ]
        return f"{node.module}.{names[0]}" if names else ""
    return ""
