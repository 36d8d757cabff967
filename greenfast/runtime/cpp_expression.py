"""Expressions of a bundle as C++, with the known values of a kernel in place of their names."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, Value, expression

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
    ast.BitAnd: "&", ast.BitOr: "|", ast.RShift: ">>",
}  # fmt: skip
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_CALLS = {
    "min": "smaller",
    "max": "larger",
    "abs": "magnitude",
    "ceil_div": "ceil_div",
    "round_up": "round_up",
}


def cpp(form: Expression, known: Mapping[str, Value]) -> str:
    """C++ for `form`; names that are not in `known` are variables. SpecError if C++ has none."""
    return _text(ast.parse(form.text, mode="eval").body, known)


def literal(value: Value) -> str:
    """A number as C++ writes it; SpecError for text."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"{value}LL"
    if isinstance(value, float):
        return repr(value)
    raise SpecError(f"the text {value!r} is not a number", code="bad_expression")


def quoted(text: str) -> str:
    """A string of C++, whatever the text holds."""
    return json.dumps(text)


def commented(form: Expression) -> str:
    """An expression for the end of a line: a bundle's may hold newlines, and comments of Python."""
    if form.text.isprintable() and "#" not in form.text:
        return form.text
    return ast.unparse(ast.parse(form.text.strip(), mode="eval"))


def _text(node: ast.expr, known: Mapping[str, Value]) -> str:
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)} - set(_CALLS)
    if names <= known.keys():
        return literal(expression(ast.unparse(node), "the bundle")(known))
    match node:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=operator, right=right):
            return _binary(_text(left, known), operator, _text(right, known))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"(!{_text(operand, known)})"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{_text(operand, known)})"
        case ast.UnaryOp(operand=operand):
            return _text(operand, known)
        case ast.BoolOp(op=operator, values=values):
            joint = " && " if isinstance(operator, ast.And) else " || "
            return "(" + joint.join(_text(value, known) for value in values) + ")"
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            return _conditional(test, body, otherwise, known)
        case ast.Compare(left=left, ops=operators, comparators=sides):
            return _comparison([left, *sides], operators, known)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _nested(_CALLS[name], [_text(argument, known) for argument in arguments])
    raise SpecError(f"{ast.unparse(node)!r} has no form in C++", code="bad_expression")


def _binary(left: str, operator: ast.operator, right: str) -> str:
    if type(operator) in _BINARY:
        return f"({left} {_BINARY[type(operator)]} {right})"
    if isinstance(operator, ast.FloorDiv):
        return f"floor_div({left}, {right})"
    if isinstance(operator, ast.Mod):
        return f"modulo({left}, {right})"
    if isinstance(operator, ast.Div):
        return f"(double({left}) / double({right}))"
    return f"std::pow(double({left}), double({right}))"


def _conditional(
    test: ast.expr, body: ast.expr, otherwise: ast.expr, known: Mapping[str, Value]
) -> str:
    """A test that is known leaves its branch alone."""
    condition = _text(test, known)
    if condition in ("0", "1"):
        return _text(body if condition == "1" else otherwise, known)
    return f"({condition} ? {_text(body, known)} : {_text(otherwise, known)})"


def _comparison(
    sides: list[ast.expr], operators: list[ast.cmpop], known: Mapping[str, Value]
) -> str:
    parts = []
    for left, operator, right in zip(sides, operators, sides[1:], strict=False):
        if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Tuple):
            inside = " || ".join(_compared(left, ast.Eq(), item, known) for item in right.elts)
            parts.append(f"({inside})" if isinstance(operator, ast.In) else f"!({inside})")
        else:
            parts.append(_compared(left, operator, right, known))
    return "(" + " && ".join(parts) + ")"


def _compared(
    left: ast.expr, operator: ast.cmpop, right: ast.expr, known: Mapping[str, Value]
) -> str:
    """Two sides; options that are not known are variables of std::string_view."""
    first, second = (
        quoted(side.value)
        if isinstance(side, ast.Constant) and isinstance(side.value, str)
        else _text(side, known)
        for side in (left, right)
    )
    return f"{first} {_COMPARE[type(operator)]} {second}"


def _nested(name: str, arguments: list[str]) -> str:
    """Functions of two arguments, nested for more."""
    if len(arguments) <= 2:
        return f"{name}({', '.join(arguments)})"
    return f"{name}({arguments[0]}, {_nested(name, arguments[1:])})"
