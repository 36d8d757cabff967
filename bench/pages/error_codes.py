"""The page of error codes: every code in the installed packages, with the sentences beside it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from greenfast.app.views.problems import CONFLICT, HTTP_CODES, NOT_FOUND
from greenfast.search.text import one_line

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("search", "db", "app", "greenfast")
MOST_SENTENCES = 2  # of a code
GAP = "..."
FAULT = "Fault"  # the class; all others are mistakes
GROUPS = ("mistake", "fault", "refusal")
Sentences = dict[str, list[str]]
ABOUT = """An error has a `code` for programs and a sentence for people, often with a remedy
(`mend`). Codes do not change; sentences may. `...` stands for a name or a number, and a code has up
to two of its sentences here. `unknown_KIND` refuses an unknown name of that kind; the remedy lists
the known ones."""
MISTAKES = """A mistake in a request or in a kernel's files. Exit code 2. Over REST:

- 404 for an unknown thing that the path names, and for {not_found};
- 409 for {conflict};
- 422 for all others."""
FAULTS = """A failure of greenfast or of its machine. Exit code 3, or 2 where you can correct the
cause. Over REST 503."""
REFUSALS = "The service refuses a request before it does anything: {http}, and these."


def blocks() -> tuple[str, ...]:
    """The blocks of the page."""
    mistakes, faults, refusals = _groups()
    http = ", ".join(f"`{code}` ({status})" for status, code in HTTP_CODES.items())
    return (
        ABOUT,
        "## Mistakes",
        MISTAKES.format(not_found=_listed(NOT_FOUND), conflict=_listed(CONFLICT)),
        _table(mistakes),
        "## Faults",
        FAULTS,
        _table(faults),
        "## Refusals of the service",
        REFUSALS.format(http=http),
        _table(refusals),
    )


def _listed(codes: Sequence[str]) -> str:
    return ", ".join(f"`{code}`" for code in sorted(codes))


def _groups() -> tuple[Sentences, Sentences, Sentences]:
    """Mistakes, faults, and refusals of the service."""
    groups: dict[str, Sentences] = {name: defaultdict(list) for name in GROUPS}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for group, code, sentence in _codes(ast.parse(path.read_text())):
            known = groups[group][code]
            if sentence and sentence not in known:
                known.append(sentence)
    mistakes, faults, refusals = groups.values()
    return mistakes, faults, refusals


def _codes(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(one of GROUPS, code, sentence) of each error that a file makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            is_refusal = name in ("problem_response", "Refused", "Refusal")
            if is_refusal and len(node.args) > 2 and (code := _text(node.args[1])):
                yield "refusal", code, _text(node.args[2]) or ""
            for keyword in node.keywords:
                if keyword.arg == "code" and (code := _text(keyword.value)):
                    sentence = _text(node.args[0]) if node.args else None
                    yield "fault" if name == FAULT else "mistake", code, sentence or ""
        elif isinstance(node, ast.ClassDef) and node.name != "GreenfastError":
            is_fault = FAULT in (node.name, *map(ast.unparse, node.bases))
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code":
                    doc = (ast.get_docstring(node) or "").partition("\n\n")[0]
                    yield "fault" if is_fault else "mistake", _text(line.value) or "", doc


def _text(node: ast.expr) -> str | None:
    """A text as it is written, with gaps for its values; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (_text(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
        return "".join(part or "" for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_text(node.left) or GAP}{_text(node.right) or GAP}"
    return None


def _table(sentences: Sentences) -> str:
    rows = (
        f"| `{code}` | {'<br>'.join(map(_cell, _shown(known)))} |"
        for code, known in sorted(sentences.items())
        if GAP not in code
    )
    return "\n".join(("| code | sentence |", "|---|---|", *rows))


def _shown(known: Sequence[str]) -> list[str]:
    """A few of the sentences; those that begin with a word come first."""
    return sorted(known, key=lambda sentence: (sentence.startswith(GAP), sentence))[:MOST_SENTENCES]


def _cell(sentence: str) -> str:
    sentence = re.sub(r"\.{4,}", GAP, one_line(sentence))
    return sentence.replace("|", "\\|").replace("<", "\\<")
