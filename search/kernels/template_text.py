"""A template's text: its file with its parts inserted, and the origin of each line.

A *part* is a file in the folder that has the template's name. A line of mma.cu.j2 that consists of
`{% include "mma/softmax.cu.j2" %}` is replaced by the lines of mma/softmax.cu.j2 before Jinja reads
the text. Names that a part sets are therefore known after it, as they would be in one file.

A part of another kernel's template is included with that kernel's name before it, as in
`{% include "gemm/wgmma/epilogue.cu.j2" %}`. It is looked up in the template root of the including
kernel first, then among the shipped kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.shipped import KERNEL_TEMPLATES

_INCLUDE = re.compile(r'\s*\{% include "([^"]*)" %\}\s*\Z')
_INCLUDE_TAG = re.compile(r"\{%[-+]?\s*include\b")
# What a foreign text must not hold that a template gives as it is, between raw and endraw. Jinja
# ends that text in each of these spellings, and an include is a part's.
ENDS_RAW_TEXT = re.compile(r"\{%[-+]?\s*(?:endraw|include)\b")
_NAME = r"[a-z][a-z0-9_]{0,47}"
_PART_NAME = rf"{_NAME}\.cu\.j2"


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
    file = f"{name}.cu.j2"
    for text, line in _lines(folder / file, f"{folder.name}/{file}"):
        part = _included(folder, text, line, name)
        lines += [(text, line)] if part is None else _part(folder, part, line)
    return TemplateText("\n".join(text for text, _ in lines), tuple(line for _, line in lines))


def _lines(path: Path, shown: str) -> list[tuple[str, Line]]:
    return [
        (text, Line(shown, number))
        for number, text in enumerate(read_author_file(path, shown).split("\n"), 1)
    ]


def _included(folder: Path, text: str, line: Line, name: str) -> str | None:
    """The part that a line includes; None when it includes nothing."""
    if not _INCLUDE_TAG.search(text):
        return None
    alone = _INCLUDE.match(text)
    if not alone:
        raise SpecError(
            f"{line.file}:{line.number}: an include must be alone on its line",
            code="bad_include",
            mend=f'write {{% include "{name}/NAME.cu.j2" %}}',
        )
    part = alone.group(1)
    if not (re.fullmatch(f"{name}/{_PART_NAME}", part) or _is_foreign(folder, part)):
        raise SpecError(
            f"{line.file}:{line.number}: {part!r} is not part of template {name}",
            code="bad_include",
            mend=f"parts are {name}/NAME.cu.j2, in small letters, digits and _, and "
            "KERNEL/TEMPLATE/NAME.cu.j2 of another kernel",
        )
    return part


def _is_foreign(folder: Path, part: str) -> bool:
    """Whether `part` has the form of another kernel's part, and there is a folder for it."""
    return bool(re.fullmatch(f"{_NAME}/{_NAME}/{_PART_NAME}", part)) and any(
        place.parent.is_dir() for place in places_of(folder, part)
    )


def places_of(folder: Path, shown: str) -> tuple[Path, ...]:
    """Where the file may be that messages about the kernel in `folder` call `shown`, in this order.

    A kernel's own files are in its folder alone.
    """
    roots = (folder.parent, KERNEL_TEMPLATES)
    return tuple(root / shown for root in roots[: 1 if _is_own(folder, shown) else 2])


def _is_own(folder: Path, shown: str) -> bool:
    return shown.startswith(f"{folder.name}/")


def file_of(folder: Path, shown: str) -> Path:
    """The file that messages about the kernel in `folder` call `shown`; it may not exist."""
    places = places_of(folder, shown)
    return next((place for place in places if place.is_file()), places[0])


def _part(folder: Path, part: str, place: Line) -> list[tuple[str, Line]]:
    """The lines of a part that is included at `place`.

    Parts do not nest, so that the template's own file shows all of them.
    """
    shown = f"{folder.name}/{part}" if part.count("/") == 1 else part
    path = file_of(folder, shown)
    if not path.is_file():
        name = part.rpartition("/")[0]
        places = {place.parent for place in places_of(folder, shown)}
        known = sorted({each.name for place in places for each in place.glob("*.cu.j2")})
        raise SpecError(
            f"{place.file}:{place.number}: the part {part!r} does not exist",
            code="unknown_part",
            mend="known: " + (", ".join(f"{name}/{file}" for file in known) or "none"),
        )
    lines = _lines(path, shown)
    for text, line in lines:
        if _INCLUDE_TAG.search(text):
            raise SpecError(
                f"{line.file}:{line.number}: a part cannot include another part",
                code="bad_include",
                mend=f"include it in {place.file}",
            )
    # The include's own newline takes the place of the part's last one.
    return lines if lines[-1][0] else lines[:-1]
