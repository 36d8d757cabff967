"""A template's text: its file with its parts inserted, and the origin of each line.

A *part* is a file in the folder that has the template's name. A line of mma.cu.j2 that consists of
`{% include "mma/softmax.cu.j2" %}` is replaced by the lines of mma/softmax.cu.j2 before Jinja reads
the text. Names that a part sets are therefore known after it, as they would be in one file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import read_author_file

_INCLUDE = re.compile(r'\s*\{% include "([^"]*)" %\}\s*\Z')
_INCLUDE_TAG = re.compile(r"\{%[-+]?\s*include\b")
_PART_NAME = r"[a-z][a-z0-9_]{0,47}\.cu\.j2"


@dataclass(frozen=True)
class Line:
    """The origin of a line of text: a file, as its author knows it, and the line number there."""

    file: str
    number: int


@dataclass(frozen=True)
class TemplateText:
    """A text and the origin of each of its lines, as `text.split("\n")` counts them."""

    text: str
    lines: tuple[Line, ...]


def read_template_text(folder: Path, name: str) -> TemplateText:
    """The text of template `name` in a kernel's folder.

    Raises SpecError for a missing file or an invalid include.
    """
    lines: list[tuple[str, Line]] = []
    for text, line in _lines(folder, f"{name}.cu.j2"):
        part = _included(text, line, name)
        lines += [(text, line)] if part is None else _part(folder, name, part, line)
    return TemplateText("\n".join(text for text, _ in lines), tuple(line for _, line in lines))


def read_text(path: Path, shown_as: str) -> str:
    """The text of an author's file; SpecError when it cannot be read."""
    return read_author_file(path, shown_as)


def _lines(folder: Path, file: str) -> list[tuple[str, Line]]:
    shown = f"{folder.name}/{file}"
    return [
        (text, Line(shown, number))
        for number, text in enumerate(read_text(folder / file, shown).split("\n"), 1)
    ]


def _included(text: str, line: Line, name: str) -> str | None:
    """The part that a line includes; None when it includes nothing."""
    if not _INCLUDE_TAG.search(text):
        return None
    alone = _INCLUDE.match(text)
    if not alone:
        raise SpecError(
            f"{line.file}: line {line.number}: an include must be alone on its line",
            code="bad_include",
            mend=f'write {{% include "{name}/NAME.cu.j2" %}}',
        )
    if not re.fullmatch(f"{name}/{_PART_NAME}", alone.group(1)):
        raise SpecError(
            f"{line.file}: line {line.number}: {alone.group(1)!r} is no part of template {name}",
            code="bad_include",
            mend=f"parts are {name}/NAME.cu.j2, in small letters, digits and _",
        )
    return alone.group(1)


def _part(folder: Path, name: str, part: str, place: Line) -> list[tuple[str, Line]]:
    """The lines of a part that is included at `place`.

    Parts do not nest, so that the template's own file shows all of them.
    """
    if not (folder / part).is_file():
        known = sorted(path.name for path in (folder / name).glob("*.cu.j2"))
        raise SpecError(
            f"{place.file}: line {place.number}: the part {part!r} does not exist",
            code="unknown_part",
            mend="known: " + (", ".join(f"{name}/{file}" for file in known) or "none"),
        )
    lines = _lines(folder, part)
    for text, line in lines:
        if _INCLUDE_TAG.search(text):
            raise SpecError(
                f"{line.file}: line {line.number}: a part includes no other part",
                code="bad_include",
                mend=f"include it in {place.file}",
            )
    # The include's own newline takes the place of the part's last one.
    return lines if lines[-1][0] else lines[:-1]
