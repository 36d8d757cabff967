"""A tensor's size as C++ writes it: ceil_div(n, 64) of `--arg x:float32[ceil_div(n, 64)]:inout`."""

from __future__ import annotations

import ast

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
}


def size_in_c(text: str) -> str:
    """The size as an expression of type long long; ValueError for what C++ writes otherwise."""
    return _in_c(ast.parse(text, mode="eval").body)


def _in_c(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return f"(long long){name}"
        case ast.Constant(value=int(value)):
            return f"{value}LL"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{_in_c(operand)})"
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power > 0:
            return f"({' * '.join([_in_c(left)] * power)})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return f"({_in_c(left)} {_OPERATORS[type(operator)]} {_in_c(right)})"
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call_in_c(name, [_in_c(each) for each in arguments])
    raise ValueError(ast.unparse(node))


def _call_in_c(name: str, arguments: list[str]) -> str:
    """An expression's functions by operators, since the kernel's text may use these names."""
    match name, arguments:
        case "ceil_div", [a, b]:
            return f"(({a} + {b} - 1) / {b})"
        case "round_up", [a, b]:
            return f"(({a} + {b} - 1) / {b} * {b})"
        case "abs", [a]:
            return f"({a} < 0 ? -{a} : {a})"
        case (("min" | "max"), [first, second, *others]):
            sign = "<" if name == "min" else ">"
            chosen = f"({first} {sign} {second} ? {first} : {second})"
            return _call_in_c(name, [chosen, *others]) if others else chosen
    raise ValueError(f"{name} with {len(arguments)} values")
