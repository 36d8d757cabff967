"""Reading PTX: the entries of a module with their instructions. Source: PTX ISA, "Syntax"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from greenfast.search.errors import Fault

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEXT = re.compile(rf'{_COMMENT.pattern}|"[^"\n]*"', re.DOTALL)
_TARGET = re.compile(r"\.target\s+sm_(\d+)")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)[^{]*\{")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)")
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(?:loc|file)\b[^\n]*")
_STATEMENT = re.compile(r"[^;]*;")
_GUARD = re.compile(r"@(!?)(%?[\w$]+)\s+")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,]+")


@dataclass(frozen=True)
class Instruction:
    """`@guard opcode operands`.

    Operands are written without spaces: `%r1`, `[%rd4+16]`, `{%f1,%f2}`, `12`.
    """

    opcode: str  # with its dots: setp.lt.s32
    operands: tuple[str, ...]
    guard: str = ""  # a predicate register; "": always
    negated: bool = False

    @property
    def name(self) -> str:
        """The opcode up to its first dot."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True)
class Entry:
    """A kernel for compute capability `sm` / 10. `labels` name positions in `instructions`."""

    name: str
    parameters: tuple[tuple[str, str], ...]  # (name, type), in order
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    sm: int


def without_texts(ptx: str) -> str:
    """PTX without comments and strings, into which a source's `asm` may write what it likes."""
    return _TEXT.sub(" ", ptx)


def read_entries(text: str) -> dict[str, Entry]:
    """The module's entries by name; Fault when a function's text cannot be read."""
    text = _COMMENT.sub(" ", text)
    target = _TARGET.search(text)
    sm = int(target[1]) if target else 0
    entries = {}
    for match in _ENTRY.finditer(text):
        parameters = tuple((name, kind) for kind, name in _PARAMETER.findall(match[2]))
        entries[match[1]] = Entry(match[1], parameters, *_body(text, match.end()), sm)
    return entries


def _body(text: str, position: int) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    """Instructions and labels from `position`, after an opening brace, to the closing one.

    Nested scopes are flattened.
    """
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    depth = 1
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position >= len(text):
            raise Fault("the compiler's PTX ends inside a function", code="ptx_unreadable")
        if text[position] in "{}":
            depth += 1 if text[position] == "{" else -1
            position += 1
            if depth == 0:
                return tuple(instructions), labels
        elif match := _LINE_DIRECTIVE.match(text, position):
            position = match.end()
        elif match := _LABEL.match(text, position):
            labels[match[1]] = len(instructions)
            position = match.end()
        elif match := _STATEMENT.match(text, position):
            position = match.end()
            statement = match[0][:-1].strip()
            if statement and not statement.startswith("."):
                instructions.append(instruction(statement))
        else:
            raise Fault("the compiler's PTX holds an unfinished statement", code="ptx_unreadable")


def instruction(statement: str) -> Instruction:
    """The instruction of a statement without its semicolon."""
    guard = _GUARD.match(statement)
    rest = statement[guard.end() :] if guard else statement
    opcode, _, operands = (
        rest.strip().partition(" ") if " " in rest.strip() else (rest.strip(), "", "")
    )
    opcode, _, tail = opcode.partition("\t")
    texts = _OPERAND.findall(re.sub(r"\s+", "", tail + operands))
    return Instruction(opcode, tuple(texts), guard[2] if guard else "", bool(guard and guard[1]))
