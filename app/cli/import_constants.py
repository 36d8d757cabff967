"""Tunable values that a CUDA file declares as constants, as #defines.

`static const int tile = 32;` becomes `#define tile 32`, in the same line, so that a parameter can
take its place and the file's own value is the default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from greenfast.app.cli.import_file_scope import blank
from greenfast.app.cli.import_source import CudaText, without_comments
from greenfast.search.errors import UsageError

_KINDS = r"(?:(?:static|inline|__device__|const|constexpr)[ \t]+)"
_TYPE = r"(?:(?:unsigned|signed|short|long|int|bool|char|auto|(?:std::)?\w+_t|uint)[ \t]+)+"
_LITERAL = r"(?P<value>[+-]?\d+|true|false)[uUlLzZ]*"
_PIECE = re.compile(r"[^{};]+|[{};]")
# Its parameters may have default values, but are no constants of the file.
_TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>]|<[^<>]*>)*>")
_CONST = re.compile(r"\b(?:const|constexpr)\b")


def constants_as_defines(source: CudaText, names: Collection[str]) -> CudaText:
    """The text with `#define NAME VALUE` for the constants of these names.

    UsageError for one that is declared in a way that a parameter cannot replace.
    """
    text = source.text
    for name in names:
        text = _as_define(text, name)
    bare = _TEMPLATE.sub(blank, without_comments(text))
    for begin, piece, is_enum in _declarations(bare):
        for name in names:
            if _declares(piece, name, is_enum):
                raise _refused(name, is_enum, source.places[bare.count("\n", 0, begin)])
    return replace(source, text=text)


def _declarations(bare: str) -> Iterator[tuple[int, str, bool]]:
    """Where constants and enumerators may be declared: place, text, and whether it is an enum's."""
    head, is_body = "", False
    for piece in _PIECE.finditer(bare):
        if piece[0] in "{};":
            is_body = piece[0] == "{" and "enum" in head and "(" not in head
            continue
        head = piece[0]
        begin = piece.start() + len(head) - len(head.lstrip())
        if is_body or _CONST.search(head):
            yield begin, head, is_body


def _declares(piece: str, name: str, is_enum: bool) -> bool:
    if is_enum:
        return any(re.match(rf"\s*{re.escape(name)}\b", each) for each in piece.split(","))
    declaration = re.search(rf"(?:,|\b[A-Za-z]\w*[ \t])\s*{re.escape(name)}\s*=(?!=)", piece)
    const = _CONST.search(piece)
    return bool(
        declaration and const and not re.search("[(<]", piece[const.start() : declaration.start()])
    )


def _as_define(text: str, name: str) -> str:
    """The text with the constant's declaration, alone in a line, as a #define."""
    of_type = rf"(?m)^(?P<indent>[ \t]*)(?=[^\n]*\bconst(?:expr)?\b){_KINDS}*{_TYPE}{_KINDS}*"
    value = rf"[ \t]*(?:=[ \t]*|\{{[ \t]*){_LITERAL}[ \t]*\}}?[ \t]*;"
    declaration = rf"{of_type}{re.escape(name)}{value}(?=[ \t]*(?://|/\*|\r?$))"
    return re.sub(declaration, rf"\g<indent>#define {name} \g<value>", text)


def _refused(name: str, is_enum: bool, place: str) -> UsageError:
    shape = "an enumerator" if is_enum else "a constant"
    return UsageError(
        f"{place}: {name} is {shape} here, whose value a parameter cannot replace",
        code="bad_tune",
        mend=f"write it as a number in a line of its own: #define {name} 32",
    )
