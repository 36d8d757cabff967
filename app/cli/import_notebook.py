"""A notebook's code cells as one script, and the files that its cells write.

Each line keeps its number in the notebook's file, where a line of a cell is a line of JSON.
"""

from __future__ import annotations

import ast
import json
import os.path
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.text import visible

SUFFIX = ".ipynb"
_WRITES = re.compile(r"%%(?:writefile|file)\s+(?P<append>-a\s+)?(?P<name>\S+)\s*\Z")
_AROUND_PYTHON = re.compile(r"%%(?:capture|time|timeit|prun)\b")
_NOT_PYTHON = re.compile(r"(?m)^([ \t]*)(?=[%!?]|[^\n#]*\?[ \t]*$)")


@dataclass(frozen=True)
class ScriptText:
    """A script, and the files beside it that exist in its notebook only."""

    text: str
    files: Mapping[str, str]


def script_text(path: Path) -> ScriptText:
    """The text of a Python script or of a notebook; UsageError for a file that is neither."""
    written = read_author_file(path, visible(path))
    return _notebook(path, written) if path.suffix == SUFFIX else ScriptText(written, {})


def _notebook(path: Path, written: str) -> ScriptText:
    rows = [row.strip().removesuffix(",") for row in written.split("\n")]
    script: list[str] = []
    files: dict[str, str] = {}
    for lines in _code_cells(path, written):
        head = lines[0] if lines else ""
        if writes := _WRITES.match(head.strip()):
            name = os.path.normpath(writes["name"].strip("'\""))
            before = files.get(name, "") if writes["append"] else ""
            files[name] = before + "\n".join(lines[1:])
        elif not head.startswith("%%") or _AROUND_PYTHON.match(head):
            python = _python("\n".join(lines)).split("\n")
            for line, own in zip(lines, python, strict=True):
                script += [""] * (_row(rows, line, len(script)) - len(script))
                script.append(own)
    return ScriptText("\n".join(script), files)


def _code_cells(path: Path, written: str) -> list[list[str]]:
    """The lines of each cell."""
    try:
        cells = json.loads(written)["cells"]
        return [
            "".join(cell["source"]).split("\n") for cell in cells if cell["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{visible(path)} is not a notebook of Jupyter",
            code="bad_tune_file",
            mend="save it in Jupyter, or as a script: jupyter nbconvert --to script",
        ) from error


def _python(cell: str) -> str:
    """The cell without lines for IPython alone, which may be lines of a text as well."""
    if _is_python(cell):
        return cell
    return _NOT_PYTHON.sub(r"\1pass  # ", cell)


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _row(rows: list[str], line: str, first: int) -> int:
    """The row of the notebook's file that has this line of a cell; `first` if none has."""
    texts = {
        json.dumps(line + end, ensure_ascii=is_ascii)
        for end in ("", "\n")
        for is_ascii in (False, True)
    }
    return next((at for at in range(first, len(rows)) if rows[at] in texts), first)
