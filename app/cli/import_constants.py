"""Tunable values that a CUDA file declares as constants, as #defines.

`static const int tile = 32;` becomes `#define tile 32`, in the same line, so that a parameter can
take its place and the file's own value is the default.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from greenfast.app.cli.import_source import CudaText, without_comments
from greenfast.search.errors import UsageError

_KINDS = r"(?:(?:static|inline|__device__|const|constexpr)[ \t]+)"
_TYPE = r"(?:(?:unsigned|signed|short|long|int|bool|char|auto|(?:std::)?\w+_t|uint)[ \t]+)+"
_LITERAL = r"(?P<value>[+-]?\d+|true|false)[uUlLzZ]*"
_ENUM = re.compile(r"\benum\b[^{};()]*\{[^{}]*\}")
_STARTS = r"(?:[{,]\s*|\b[A-Za-z]\w*[ \t]+)"  # an enumerator, or a type before a name
_CONSTANT = re.compile(r"\b(?:const|constexpr)\b[^;{}()<>]*=[^;{}]*;")


def constants_as_defines(source: CudaText, names: Collection[str]) -> CudaText:
    """The text with `#define NAME VALUE` for the constants of these names.

    UsageError for one that is declared in a way that a parameter cannot replace.
    """
    text = source.text
    for name in names:
        text = _as_define(text, name)
    bare = without_comments(text)
    for declaration in (*_ENUM.finditer(bare), *_CONSTANT.finditer(bare)):
        for name in names:
            ends = "[=,}]" if declaration[0].startswith("enum") else "=(?!=)"
            if re.search(rf"{_STARTS}{re.escape(name)}\s*{ends}", declaration[0]):
                raise _refused(name, declaration, source, bare)
    return replace(source, text=text)


def _as_define(text: str, name: str) -> str:
    """The text with the constant's declaration, alone in a line, as a #define."""
    of_type = rf"(?m)^(?P<indent>[ \t]*)(?=[^\n]*\bconst(?:expr)?\b){_KINDS}*{_TYPE}{_KINDS}*"
    value = rf"[ \t]*(?:=[ \t]*|\{{[ \t]*){_LITERAL}[ \t]*\}}?[ \t]*;"
    declaration = rf"{of_type}{re.escape(name)}{value}(?=[ \t]*(?://|/\*|\r?$))"
    return re.sub(declaration, rf"\g<indent>#define {name} \g<value>", text)


def _refused(name: str, declaration: re.Match[str], source: CudaText, bare: str) -> UsageError:
    place = source.places[bare.count("\n", 0, declaration.start())]
    shape = "an enumerator" if declaration[0].startswith("enum") else "a constant"
    return UsageError(
        f"{place}: {name} is {shape} here, whose value a parameter cannot replace",
        code="bad_tune",
        mend=f"write it as a number in a line of its own: #define {name} 32",
    )
