"""Finds the parts of an `asm` statement in a text's tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from greenfast.search.targets.emulator.ptx_statement import AsmOperand, AsmStatement
from greenfast.search.targets.emulator.ptx_text import NotPtx
from greenfast.search.targets.emulator.source_tokens import Token

ASM_WORDS = ("asm", "__asm", "__asm__")
_QUALIFIERS = ("volatile", "__volatile__", "__volatile", "inline", "__inline__", "__inline")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]+|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": " ", "b": " "}
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


@dataclass(frozen=True)
class FoundAssembly:
    statement: AsmStatement
    last: int  # the index of the closing bracket's token
    expressions: tuple[range, ...]  # the tokens of the operands


def assembly_at(tokens: Sequence[Token], start: int) -> FoundAssembly:
    """The statement that begins with the word at `start`; NotPtx for anything else."""
    index = start + 1
    while _text(tokens, index) in _QUALIFIERS:
        index += 1
    if _text(tokens, index) != "(":
        raise NotPtx("`asm` has no template in brackets")
    template, index = _strings(tokens, index + 1)
    sections: list[list[AsmOperand]] = []
    expressions: list[range] = []
    while _text(tokens, index) in (":", "::"):
        sections += [[] for _ in _text(tokens, index)]
        index += 1
        if len(sections) > 2:
            break
        while _kind(tokens, index) == "string":
            operand, tokens_of, index = _operand(tokens, index)
            sections[-1].append(operand)
            expressions.append(tokens_of)
            if _text(tokens, index) == ",":
                index += 1
    while _kind(tokens, index) == "string" or _text(tokens, index) == ",":
        index += 1  # the clobbers
    if _text(tokens, index) != ")":
        raise NotPtx("the operands of `asm` cannot be read")
    sections += [[], []]
    statement = AsmStatement(template, tuple(sections[0]), tuple(sections[1]))
    return FoundAssembly(statement, index, tuple(expressions))


def _operand(tokens: Sequence[Token], index: int) -> tuple[AsmOperand, range, int]:
    constraint, index = _strings(tokens, index)
    if _text(tokens, index) != "(":
        raise NotPtx(f'the operand "{constraint}" has no expression in brackets')
    depth, first = 0, index + 1
    while True:
        text = _text(tokens, index) if _kind(tokens, index) == "punctuator" else ""
        if index >= len(tokens):
            raise NotPtx("an operand of `asm` has no end")
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth == 0:
            break
        index += 1
    inside = range(first, index)
    words = [tokens[at] for at in inside]
    if any(token.kind == "pragma" or token.text in ASM_WORDS for token in words):
        raise NotPtx("an operand of `asm` is not an expression")
    expression = _joined([token for token in words if token.kind != "marker"])
    return AsmOperand(constraint, expression), inside, index + 1


def _joined(words: Sequence[Token]) -> str:
    """Tokens that touch in the text stay together: `>>` and `==` are two tokens each."""
    text, end = "", -1
    for token in words:
        text += token.text if token.start == end else " " + token.text
        end = token.end
    return text.strip()


def _strings(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Adjacent string literals, joined, and the index behind them."""
    parts = []
    while _kind(tokens, index) in ("string", "marker"):
        if tokens[index].kind == "string":
            parts.append(_content(tokens[index].text))
        index += 1
    if not parts:
        raise NotPtx("a string is needed here")
    return "".join(parts), index


def _content(literal: str) -> str:
    if raw := re.fullmatch(r'R"([^()\\\s]{0,16})\((.*)\)\1"', literal, re.DOTALL):
        return raw[2]
    if literal[0] != '"' or literal[-1] != '"':
        raise NotPtx("the template of `asm` is a plain string")

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "01234567":
            return chr(int(code, 8))
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16) & 0xFF)
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, literal[1:-1])


def _text(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def _kind(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].kind if 0 <= index < len(tokens) else ""
