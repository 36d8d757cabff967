"""Reads the template of an `asm` statement: PTX instructions with operands.

Source: PTX ISA, "Syntax" and "Instruction Set"; CUDA's "Inline PTX Assembly".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?)
      | (?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+U?)
      | (?P<word>\.?[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+|(?<=[\w$])%[0-9]+[\w$]*)*)
      | (?P<argument>%[0-9]+)
      | (?P<mark>[{}\[\](),;:|!@+\-<>])
    )""",
    re.VERBOSE,
)


class NotPtx(Exception):
    """The template has something that this reader does not know, named in the text."""


@dataclass(frozen=True)
class Name:
    """A register, a special register or a label; `%3` is the statement's operand 3."""

    text: str
    negated: bool = False  # of a predicate: `!p`


@dataclass(frozen=True)
class Number:
    text: str  # as PTX writes it, with its sign
    is_float: bool = False


@dataclass(frozen=True)
class Vector:
    """`{a, b}`"""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, or a tensor map with coordinates: `[base, {x, y}]`."""

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Pair:
    """`d|p`: a result and a predicate."""

    first: Operand
    second: Operand


Operand = Name | Number | Vector | Address | Pair


@dataclass(frozen=True)
class Instruction:
    opcode: str  # without its modifiers
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Name | None = None

    def __str__(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Registers:
    """`.reg .b32 a, b;`"""

    type: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Brace:
    """The begin or the end of a scope."""

    opens: bool


Statement = Instruction | Label | Registers | Brace


def statements(template: str) -> tuple[Statement, ...]:
    """The statements of a template; NotPtx if it cannot be read."""
    reader = _Reader(list(_tokens(_COMMENT.sub(" ", template))))
    return tuple(reader.statements())


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotPtx(f"`{text[position:].strip().split()[0]}` is not PTX")
        kind = match.lastgroup or ""
        yield _Token(kind, match[kind])
        position = match.end()


class _Reader:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def statements(self) -> Iterator[Statement]:
        while self._at < len(self._tokens):
            token = self._take()
            if token.text in "{}":
                yield Brace(token.text == "{")
            elif token.text == ";":
                continue
            elif token.text == ".reg":
                yield self._registers()
            elif token.kind == "word" and self._peek() == ":":
                self._take()
                yield Label(token.text)
            else:
                yield self._instruction(token)

    def _instruction(self, token: _Token) -> Instruction:
        guard = None
        if token.text == "@":
            guard = self._predicate()
            token = self._take()
        if token.kind != "word" or token.text[0] in ".%":
            raise NotPtx(f"`{token.text}` is not an instruction")
        opcode, *modifiers = token.text.split(".")
        operands = []
        while self._peek() not in (";", ""):
            operands.append(self._operand())
            if self._peek() == ",":
                self._take()
            elif self._peek() not in (";", ""):
                raise NotPtx(f"`{self._peek()}` behind an operand of `{token.text}`")
        if self._peek() == ";":
            self._take()
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard)

    def _registers(self) -> Registers:
        kind = self._take()
        names: list[str] = []
        while self._peek() != ";":
            name = self._take()
            if name.kind != "word":
                raise NotPtx(f"`{name.text}` is not a register")
            if self._peek() == "<":
                self._take()
                count = self._take()
                self._expect(">")
                if not count.text.isdigit() or int(count.text) > 1024:
                    raise NotPtx(f"`{name.text}<{count.text}>` is not a range of registers")
                names += [f"{name.text}{number}" for number in range(int(count.text))]
            else:
                names.append(name.text)
            if self._peek() == ",":
                self._take()
        return Registers(kind.text.lstrip("."), tuple(names))

    def _predicate(self) -> Name:
        negated = self._peek() == "!"
        if negated:
            self._take()
        return Name(self._take().text, negated)

    def _operand(self) -> Operand:
        first = self._simple_operand()
        if self._peek() == "|":
            self._take()
            return Pair(first, self._simple_operand())
        return first

    def _simple_operand(self) -> Operand:
        if self._peek() == "{":
            return Vector(tuple(self._listed("{", "}")))
        if self._peek() == "[":
            return self._address()
        if self._peek() == "!":
            return self._predicate()
        sign = ""
        if self._peek() in ("-", "+"):
            sign = self._take().text
        token = self._take()
        if token.kind in ("number", "float"):
            return Number(("-" if sign == "-" else "") + token.text, token.kind == "float")
        if sign or token.kind not in ("word", "argument"):
            raise NotPtx(f"`{sign}{token.text}` is not an operand")
        return Name(token.text)

    def _listed(self, opening: str, closing: str) -> Iterator[Operand]:
        self._expect(opening)
        while self._peek() != closing:
            yield self._simple_operand()
            if self._peek() == ",":
                self._take()
        self._expect(closing)

    def _address(self) -> Address:
        self._expect("[")
        base, offset = self._simple_operand(), 0
        coordinates: tuple[Operand, ...] = ()
        if self._peek() in ("+", "-"):
            sign = -1 if self._take().text == "-" else 1
            offset = sign * integer(self._take().text)
        elif self._peek() == ",":
            self._take()
            coordinates = tuple(self._listed("{", "}"))
        self._expect("]")
        return Address(base, offset, coordinates)

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _take(self) -> _Token:
        if self._at == len(self._tokens):
            raise NotPtx("the template ends within an instruction")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.text != text:
            raise NotPtx(f"`{token.text}` where `{text}` belongs")


def integer(text: str) -> int:
    """The value of an integer literal; NotPtx for another token."""
    try:
        return int(text.rstrip("U"), 0)
    except ValueError:
        raise NotPtx(f"`{text}` is not a whole number") from None
