"""A template's text: its file with its parts put in, each line knowing where it stands.

A *part* is a file in the folder that has the template's name. Where `{% include "mma/softmax.cu.j2" %}` stands alone on
a line of mma.cu.j2, the lines of mma/softmax.cu.j2 take that line's place before Jinja sees the text: what a part sets is
known to what follows, as it would be in one file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import SpecError

_INCLUDE = re.compile(r'\s*\{% include "([^"]*)" %\}\s*\Z')
_INCLUDE_TAG = re.compile(r"\{%[-+]?\s*include\b")
_PART_NAME = r"[a-z][a-z0-9_]{0,47}\.cu\.j2"


@dataclass(frozen=True)
class Line:
    """Where a line of text came from: a file as its author knows it, and its line there."""

    file: str
    number: int


@dataclass(frozen=True)
class TemplateText:
    text: str
    lines: tuple[
        Line, ...
    ]  # of text.split("\n"), so that there is one behind the last newline, too


def read_template_text(folder: Path, name: str) -> TemplateText:
    """The text of template `name` in a kernel's folder; SpecError for a file or an include that is not as it should be."""
    found: list[tuple[str, Line]] = []
    for text, line in _lines(folder, f"{name}.cu.j2"):
        part = _included(text, line, name)
        found += [(text, line)] if part is None else _part(folder, name, part, line)
    return TemplateText("\n".join(text for text, _ in found), tuple(line for _, line in found))


def read_text(path: Path, shown_as: str) -> str:
    """An author's file; SpecError when it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{shown_as}: the file is missing or unreadable", code="missing_file"
        ) from error


def _lines(folder: Path, file: str) -> list[tuple[str, Line]]:
    shown = f"{folder.name}/{file}"
    return [
        (text, Line(shown, number))
        for number, text in enumerate(read_text(folder / file, shown).split("\n"), 1)
    ]


def _included(text: str, line: Line, name: str) -> str | None:
    """The part that a line includes, if it is an include."""
    if not _INCLUDE_TAG.search(text):
        return None
    alone = _INCLUDE.match(text)
    if not alone:
        raise SpecError(
            f"{line.file}: line {line.number}: an include stands alone on its line",
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
    """The lines of a part that is included at `place`. Parts do not nest: the template's own file shows all of them."""
    if not (folder / part).is_file():
        known = sorted(path.name for path in (folder / name).glob("*.cu.j2"))
        raise SpecError(
            f"{place.file}: line {place.number}: the part {part!r} does not exist",
            code="unknown_part",
            mend="known: " + (", ".join(f"{name}/{one}" for one in known) or "none"),
        )
    found = _lines(folder, part)
    for text, line in found:
        if _INCLUDE_TAG.search(text):
            raise SpecError(
                f"{line.file}: line {line.number}: a part includes no other part",
                code="bad_include",
                mend=f"include it in {place.file}",
            )
    # What follows the part's last newline is no line of it: the include's own newline stays.
    return found if found[-1][0] else found[:-1]
