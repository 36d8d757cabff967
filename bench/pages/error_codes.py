"""The page of error codes: every code in the packages, with its sentences and remedies."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from greenfast.app.views.problems import CONFLICT, HTTP_CODES, NOT_FOUND
from greenfast.search.text import one_line

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("search", "db", "app", "greenfast")
MOST_SENTENCES = 2  # of a code
GAP = "..."
FAULT = "Fault"  # the class; all others are mistakes
GROUPS = ("mistake", "fault", "refusal")
# Codes whose sentences are computed, so that the source has no text of them.
COMPUTED = {
    "bad_value": "a field has a value that it cannot take",
    "file_error": "a file of greenfast cannot be read or written",
    "impossible_preset": "a preset breaks a constraint, for the reason that follows",
    "no_source": "the parent has no source",
    "other_kernel": "the call has a size or an option that this kernel was not compiled for",
}
ABOUT = """An error has a `code` for programs, a sentence for people, and often a remedy (the field
`mend` in JSON). Codes do not change; sentences may. `...` stands for a name or a number. A code has
up to two of its sentences here, with their remedies. `unknown_KIND` refuses an unknown name of that
kind, and its remedy lists the known names."""
MISTAKES = """A mistake in a request or in a kernel's files. Exit code 2. Over REST:

- 404 for an unknown thing that the path names, and for {not_found};
- 409 for {conflict};
- 422 for all others."""
FAULTS = """A failure of greenfast or of its machine. Exit code 3, or 2 if you can correct the
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


class Told(NamedTuple):
    """What an error tells; the remedy is empty if there is none, or if it is computed."""

    sentence: str
    remedy: str = ""


Codes = Mapping[str, list[Told]]


def _groups() -> tuple[Codes, Codes, Codes]:
    """Mistakes, faults, and refusals of the service."""
    groups: dict[str, dict[str, list[Told]]] = {name: defaultdict(list) for name in GROUPS}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for group, code, told in _codes(ast.parse(path.read_text())):
            known = groups[group][code]
            if told.sentence and told.sentence not in {each.sentence for each in known}:
                known.append(told)
    mistakes, faults, refusals = groups.values()
    return mistakes, faults, refusals


def _codes(tree: ast.Module) -> Iterator[tuple[str, str, Told]]:
    """(one of GROUPS, code, sentence and remedy) of each error that a file makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _call(node)
        elif isinstance(node, ast.ClassDef) and node.name != "GreenfastError":
            is_fault = FAULT in (node.name, *map(ast.unparse, node.bases))
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code":
                    doc = (ast.get_docstring(node) or "").partition("\n\n")[0]
                    yield "fault" if is_fault else "mistake", _text(line.value) or "", Told(doc)


def _call(node: ast.Call) -> Iterator[tuple[str, str, Told]]:
    name = getattr(node.func, "id", "")
    texts = [_text(each) for each in node.args]
    named = {each.arg: _text(each.value) for each in node.keywords}
    if name in ("problem_response", "Refused", "Refusal") and len(texts) > 2 and texts[1]:
        remedy = texts[3] if len(texts) > 3 else named.get("mend")
        yield "refusal", texts[1], Told(texts[2] or "", remedy or "")
    if code := named.get("code"):
        told = Told((texts[0] if texts else None) or "", named.get("mend") or "")
        yield "fault" if name == FAULT else "mistake", code, told


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


def _table(codes: Codes) -> str:
    rows = [
        f"| `{code}` | {_cells(told.sentence for told in shown)} "
        f"| {_cells(dict.fromkeys(told.remedy for told in shown))} |"
        for code, known in sorted(codes.items())
        if GAP not in code
        for shown in [_shown(known) or [Told(COMPUTED[code])]]
    ]
    return "\n".join(("| code | sentence | what to do |", "|---|---|---|", *rows))


def _shown(known: Sequence[Told]) -> list[Told]:
    """A few of the sentences; those that begin with a word come first."""
    return sorted(known, key=lambda told: (told.sentence.startswith(GAP), told))[:MOST_SENTENCES]


def _cells(texts: Iterable[str]) -> str:
    return "<br>".join(_cell(text) for text in texts if text.replace(GAP, "").strip())


def _cell(sentence: str) -> str:
    sentence = re.sub(r"\.{4,}", GAP, one_line(sentence))
    return sentence.replace("|", "\\|").replace("<", "\\<")
