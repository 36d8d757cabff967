"""CUDA C++ as tokens to colour, in time that grows with the length of the text alone.

Pygments' own lexer for C++ takes exponential time for some texts of a kilobyte, and a regular
expression holds Python's lock meanwhile. A source may be anybody's, so here no quantifier of a
token gives anything back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers import CudaLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Whitespace

from greenfast.search.targets.emulator.word_set import word_set

_TOKEN = re.compile(
    r"""(?P<space>\s++)
    | (?P<comment>//(?:[^\\\n]|\\[^\n]|\\\n)*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)?+)
    | (?P<directive>\#(?:[^\\\n/]|\\[^\n]|\\\n|/(?![/*]))*+)
    | (?P<string>(?:u8|[uUL])?+R"(?P<mark>[^()\\\s"]{0,16}+)\(
            (?:[^)]|\)(?!(?P=mark)"))*+(?:\)(?P=mark)")?+
        | (?:u8|[uUL])?+"(?:[^"\\\n]|\\[^\n]|\\\n)*+"?+
        | (?:u8|[uUL])?+'(?:[^'\\\n]|\\[^\n]|\\\n)*+'?+)
    | (?P<name>[^\W\d]\w*+)
    | (?P<number>\.?+\d(?:[eEpP][+-]|'(?=\w)|[\w.])*+)
    | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = word_set("""
    alignas alignof and asm auto break case catch class const consteval constexpr constinit
    const_cast continue decltype default delete do dynamic_cast else enum explicit extern false for
    friend goto if inline mutable namespace new noexcept not nullptr operator or private protected
    public register reinterpret_cast return sizeof static static_assert static_cast struct switch
    template this throw true try typedef typeid typename union using virtual volatile while xor
""")
_TYPES = word_set("bool char double float int long short signed unsigned void")
_KINDS = {
    "space": Whitespace,
    "comment": Comment.Multiline,
    "directive": Comment.Preproc,
    "string": String,
    "number": Number.Integer,
    "sign": Operator,
}
_NAMES: dict[str, Any] = {
    **dict.fromkeys(_KEYWORDS, Keyword),
    **dict.fromkeys(_TYPES | CudaLexer.vector_types | CudaLexer.variable_qualifiers, Keyword.Type),
    **dict.fromkeys(CudaLexer.function_qualifiers, Keyword.Reserved),
    **dict.fromkeys(CudaLexer.variables, Name.Builtin),
    **dict.fromkeys(CudaLexer.functions, Name.Function),
}


class LinearCudaLexer(Lexer):  # type: ignore[misc]
    """Comments, directives, literals, keywords and CUDA's names; all else is plain."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for match in _TOKEN.finditer(text):
            kind, value = str(match.lastgroup), match[0]
            yield match.start(), _NAMES.get(value, Name) if kind == "name" else _KINDS[kind], value
