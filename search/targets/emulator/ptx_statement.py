"""Writes an `asm` statement of inline PTX as C++ that calls the emulator.

The instructions that `ptx_arithmetic`, `ptx_conversion`, `ptx_memory` and `ptx_warp` list are
known. A statement with any other is refused, with the instruction's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from greenfast.search.targets.emulator import (
    ptx_arithmetic,
    ptx_conversion,
    ptx_memory,
    ptx_warp,
)
from greenfast.search.targets.emulator.ptx_text import (
    Brace,
    Instruction,
    Label,
    Name,
    NotPtx,
    Registers,
    statements,
)
from greenfast.search.targets.emulator.ptx_values import REGISTERS, Unsupported, Values

HANDLERS = {
    **ptx_arithmetic.HANDLERS,
    **ptx_conversion.HANDLERS,
    **ptx_memory.HANDLERS,
    **ptx_warp.HANDLERS,
}
HEADERS = ("gf_emulator/ptx_memory.h", "gf_emulator/ptx_warp.h")
_CONSTRAINTS = {
    "h": "unsigned short",
    "r": "unsigned",
    "l": "unsigned long long",
    "f": "float",
    "d": "double",
    "n": "long long",
}


@dataclass(frozen=True)
class AsmOperand:
    constraint: str  # as written: "=r", "+f", "l"
    expression: str  # C++, without its parentheses

    @property
    def letter(self) -> str:
        return self.constraint.lstrip("=+&")


@dataclass(frozen=True)
class AsmStatement:
    template: str  # what the string literals hold
    outputs: tuple[AsmOperand, ...]
    inputs: tuple[AsmOperand, ...]


@dataclass
class _Scope:
    """Registers and labels of a template, with the names that they have in C++."""

    number: int
    variables: dict[str, str] = field(default_factory=dict)
    declarations: list[str] = field(default_factory=list)

    def declare(self, registers: Registers) -> None:
        kind = REGISTERS.get(registers.type)
        if kind is None:
            raise Unsupported(f"`.reg .{registers.type}`")
        for name in registers.names:
            variable = f"gf_emulator_r{len(self.declarations)}"
            self.declarations.append(f"{kind} {variable};")
            self.variables[name] = variable


def translated(statement: AsmStatement, number: int) -> str:
    """The statement as C++ without a semicolon; NotPtx or Unsupported if it cannot be.

    `number` keeps the labels of a text's statements apart.
    """
    scope = _Scope(number)
    operands = (*statement.outputs, *statement.inputs)
    for index in range(len(operands)):
        scope.variables[f"%{index}"] = f"gf_emulator_{index}"
    outputs = range(len(statement.outputs))
    lvalues = {f"%{index}": f"gf_emulator_o{index}" for index in outputs}
    body, in_place = _body(_decoded(statement.template, number), scope, lvalues)
    begin, end = [], []
    for index, operand in enumerate(operands):
        if index not in outputs:
            begin.append(_input(operand, index))
            continue
        if operand.constraint[0] not in "=+":
            raise NotPtx(f"`{operand.constraint}` is not an output")
        begin.append(f"auto& gf_emulator_o{index} = ({operand.expression});")
        # The emulator watches a place that it writes later: it is not read here.
        if f"%{index}" not in in_place:
            begin.append(_output(operand, index))
            end.append(f"gf_emulator::ptx::store(gf_emulator_o{index}, gf_emulator_{index});")
    return "do { " + " ".join((*begin, *scope.declarations, *body, *end)) + " } while (0)"


def _output(operand: AsmOperand, index: int) -> str:
    kind = _register(operand)
    value = f"gf_emulator::ptx::poison<{kind}>()"
    if operand.constraint[0] == "+":
        value = f"gf_emulator::ptx::operand<{kind}>(gf_emulator_o{index})"
    return f"{kind} gf_emulator_{index} = {value};"


def _input(operand: AsmOperand, index: int) -> str:
    kind = _register(operand)
    if operand.letter == "n":
        return f"constexpr {kind} gf_emulator_{index} = ({operand.expression});"
    value = f"gf_emulator::ptx::operand<{kind}>({operand.expression})"
    return f"const {kind} gf_emulator_{index} = {value};"


def _register(operand: AsmOperand) -> str:
    kind = _CONSTRAINTS.get(operand.letter)
    if kind is None:
        raise Unsupported(f"the constraint `{operand.constraint}`")
    return kind


def _decoded(template: str, number: int) -> str:
    """The template as PTX.

    `%%` is a percent sign of PTX, which names its special registers by one. `%=` is a number that
    no other statement has: it keeps labels apart.
    """
    return re.sub(r"%(?!\d)[%=]?", lambda m: str(number) if m[0] == "%=" else "%", template)


def _body(
    template: str, scope: _Scope, lvalues: dict[str, str]
) -> tuple[list[str], frozenset[str]]:
    """The lines, and the outputs that the emulator writes in their own place."""
    lines: list[str] = []
    outer: list[dict[str, str]] = []
    in_place: set[str] = set()
    for part in statements(template):
        if isinstance(part, Brace):
            if part.opens:
                outer.append(dict(scope.variables))
            elif outer:
                scope.variables = outer.pop()
            else:
                raise NotPtx("a brace closes nothing")
        elif isinstance(part, Registers):
            scope.declare(part)
        elif isinstance(part, Label):
            lines.append(f"{_label(part.name, scope)}:;")
        else:
            values = Values(scope.variables, lvalues)
            lines.append(_instruction(part, values, scope))
            if part.opcode == "wgmma" and part.operands and part.modifiers[0] == "mma_async":
                in_place |= set(lvalues)
    if outer:
        raise NotPtx("a brace has no end")
    return lines, frozenset(in_place)


def _instruction(instruction: Instruction, values: Values, scope: _Scope) -> str:
    if instruction.opcode == "bra":
        if len(instruction.operands) != 1 or not isinstance(instruction.operands[0], Name):
            raise NotPtx("`bra` names a label")
        text = f"goto {_label(instruction.operands[0].text, scope)};"
    else:
        handler = HANDLERS.get(instruction.opcode)
        if handler is None:
            raise Unsupported(f"`{instruction}`")
        try:
            text = handler(instruction, values)
        except Unsupported as why:
            raise Unsupported(f"`{instruction}` {why}") from None
        except (ValueError, IndexError, KeyError):
            raise Unsupported(f"`{instruction}` in this form") from None
    if instruction.guard is None:
        return text
    return f"if ({values.read('pred', instruction.guard)}) {{ {text} }}"


def _label(name: str, scope: _Scope) -> str:
    return f"gf_emulator_label{scope.number}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
