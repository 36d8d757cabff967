"""Uses of bit-fields to which NVRTC and g++ give different types.

A bit-field of 3 bits is an `int` in an expression. As an operand of `?:`, g++ gives it its declared
type, as NVRTC does behind a comma and in the value of `x.a++`. `(c ? x.a : 0) - 2 < 0` is then true
for one of them and false for the other. Neither follows the standard in all cases ([conv.prom],
[expr.cond], [expr.comma]), so that such a use is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from greenfast.search.targets.emulator.class_bodies import Body
from greenfast.search.targets.emulator.source_tokens import Token, opening, text_at

_KEYS = ("struct", "class", "union", "enum", "case", "default", "final")
_ACCESS = ("public", "private", "protected")
_MEMBER = (".", "->")
_ENDS = (";", "{", "}")
_OPENS, _CLOSES = ("(", "[", "{"), (")", "]", "}")
_STEPS = ("+", "-")  # each twice: a token is one character


def differing_uses(tokens: Sequence[Token], bodies: Sequence[Body]) -> Iterator[int]:
    """The indices of bit-fields whose type compilers disagree about."""
    fields = {tokens[at].text for body in bodies for at in _declared(tokens, body)}
    if not fields:
        return
    for index, token in enumerate(tokens):
        if token.text not in fields or text_at(tokens, index + 1) == "(":
            continue
        before, behind = text_at(tokens, _start(tokens, index) - 1), text_at(tokens, index + 1)
        if behind in _STEPS and text_at(tokens, index + 2) == behind:
            is_statement = before in (*_ENDS, ")", "else", "do")
            differs = not is_statement or text_at(tokens, index + 3) not in (";", ")", ",")
        elif before == "?":
            differs = behind == ":" and _type_matters(tokens, index)
        elif before == ":":
            differs = _is_conditional(tokens, _start(tokens, index) - 1) and (
                behind == ")" or behind == "," or _type_matters(tokens, index)
            )
        else:
            differs = before == "," and behind == ")" and _is_grouped(tokens, index + 1)
        if differs:
            yield index


def _declared(tokens: Sequence[Token], body: Body) -> Iterator[int]:
    depth = 0
    for index in range(body.first + 1, body.last):
        text = tokens[index].text
        depth += (text in _OPENS) - (text in _CLOSES)
        before = tokens[index - 1]
        is_declared = before.kind == "name" or before.text == ","
        if (
            depth == 0
            and tokens[index].kind == "name"
            and text not in (*_KEYS, *_ACCESS)
            and tokens[index + 1].text == ":"
            and is_declared
            and before.text not in _KEYS
        ):
            yield index


def _start(tokens: Sequence[Token], index: int) -> int:
    """The index of the first token of `x[1].y->a`, whose last is at `index`."""
    while text_at(tokens, index - 1) in _MEMBER:
        index -= 2
        while text_at(tokens, index) in (")", "]"):
            index = max(opening(tokens, index - 1), 1) - 1
        if tokens[index].kind != "name" or text_at(tokens, index) == "return":
            return index + 1
    return index


def _is_conditional(tokens: Sequence[Token], colon: int) -> bool:
    """Whether the colon belongs to a `?`, and is not a label's or a base class's."""
    at = colon - 1
    while at >= 0 and tokens[at].text not in (*_ENDS, *_OPENS):
        if tokens[at].text == "?":
            return True
        at = (opening(tokens, at - 1) if tokens[at].text in (")", "]") else at) - 1
    return False


def _type_matters(tokens: Sequence[Token], index: int) -> bool:
    """Whether more than an assignment to a variable of a given type uses the value of `?:`."""
    end = index + 1
    while end < len(tokens) and tokens[end].text not in (*_ENDS, ")", ",", "]"):
        end += 1
    if text_at(tokens, end) != ";":
        return True
    start = index
    while start > 0 and tokens[start - 1].text not in _ENDS:
        start -= 1
    return any(token.text == "auto" for token in tokens[start:index])


def _is_grouped(tokens: Sequence[Token], closing: int) -> bool:
    """Whether the bracket that ends here groups an expression, and holds no arguments."""
    first = opening(tokens, closing - 1)
    before = tokens[first - 1] if first > 0 else None
    return before is not None and (
        before.text in ("return", "sizeof", "decltype")
        or (before.kind == "punctuator" and before.text not in (")", "]", ">"))
    )
