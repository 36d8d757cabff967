"""Expressions over tuned parameters, as functions of a script compute them."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from greenfast.app.cli.script.values import (
    LARGEST_SYMBOL,
    Scalar,
    Symbol,
    Unknown,
    items,
    number,
)


def symbol_text(value: Symbol) -> str:
    """The expression as text."""
    return ast.unparse(value.node)


def node_of(value: Any) -> ast.expr | None:
    """The value as a part of an expression; None where it cannot be one."""
    if isinstance(value, Symbol):
        return value.node
    if isinstance(value, Scalar):
        value = value.value
    if isinstance(value, (int, float, str)):
        return ast.Constant(value)
    parts = items(value)
    if parts is None or len(parts) > LARGEST_SYMBOL:
        return None
    nodes = [node_of(each) for each in parts]
    if any(each is None for each in nodes):
        return None
    return ast.Tuple([each for each in nodes if each is not None], ast.Load())


def made(node: ast.expr, parts: Sequence[Any]) -> Any:
    """An expression of these parts, or Unknown where it would be too long to write."""
    size = 1 + sum(each.size if isinstance(each, Symbol) else 1 for each in parts)
    return Symbol(node, size) if size <= LARGEST_SYMBOL else Unknown()


def combined(left: Any, op: ast.operator, right: Any) -> Any:
    """An operation on values of which one is a Symbol at least."""
    first, second = node_of(left), node_of(right)
    if first is None or second is None:
        return Unknown()
    return made(ast.BinOp(first, op, second), (left, right))


def compared(parts: Sequence[Any], ops: Sequence[ast.cmpop]) -> Any:
    """A chain of comparisons."""
    nodes = [node_of(each) for each in parts]
    if any(each is None for each in nodes):
        return Unknown()
    whole = [each for each in nodes if each is not None]
    return made(ast.Compare(whole[0], list(ops), whole[1:]), parts)


def accumulated(shape: str, parts: Sequence[Any]) -> Any:
    """The sum or the product (`prod`) of values of which one is a Symbol at least."""
    op = ast.Add() if shape == "sum" else ast.Mult()
    known = [each for each in parts if not isinstance(each, Symbol)]
    numbers = [number(each) for each in known]
    if any(each is None for each in numbers):
        return Unknown()
    whole = [each for each in numbers if each is not None]
    first = sum(whole) if shape == "sum" else math.prod(whole)
    terms = [each for each in parts if isinstance(each, Symbol)]
    result: Any = terms[0]
    for term in terms[1:]:
        result = combined(result, op, term)
    return result if not known or isinstance(result, Unknown) else combined(result, op, first)


def negated(value: Symbol) -> Any:
    return made(ast.UnaryOp(ast.Not(), value.node), (value,))


def joined(op: ast.boolop, parts: Sequence[Any]) -> Any:
    """`and` or `or` over values; known ones decide or drop out."""
    decides = isinstance(op, ast.Or)
    left: list[Symbol] = []
    for each in parts:
        if isinstance(each, Symbol):
            left.append(each)
            continue
        value = number(each)
        if value is None and each is not None:
            return Unknown()
        if bool(value) is decides:
            return decides
    if len(left) <= 1:
        return left[0] if left else not decides
    return made(ast.BoolOp(op, [each.node for each in left]), left)


def chosen(condition: Symbol, first: Any, second: Any) -> Any:
    """`first if condition else second`, in fewer words where one of them is true or false."""
    first, second = (False if each is None else each for each in (first, second))
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        return Unknown()
    if first is second or (isinstance(first, bool) and first == second):
        return first
    opposite = negated(condition)
    if first is True:
        return condition if second is False else joined(ast.Or(), (condition, second))
    if first is False:
        return opposite if second is True else joined(ast.And(), (opposite, second))
    if second is True:
        return joined(ast.Or(), (opposite, first))
    if second is False:
        return joined(ast.And(), (condition, first))
    nodes = node_of(first), node_of(second)
    if nodes[0] is None or nodes[1] is None:
        return Unknown()
    return made(ast.IfExp(condition.node, nodes[0], nodes[1]), (condition, first, second))


def whole(value: Symbol) -> Any:
    """`int(value)`: of positive numbers, the whole part."""
    node = value.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return Symbol(ast.BinOp(node.left, ast.FloorDiv(), node.right), value.size)
    is_exact = not any(isinstance(each, ast.Div) for each in ast.walk(node))
    return value if is_exact else Unknown()


def rounded_up(value: Symbol) -> Any:
    """`math.ceil(value)`."""
    node = value.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        call = ast.Call(ast.Name("ceil_div", ast.Load()), [node.left, node.right], [])
        return Symbol(call, value.size)
    return whole(value)


def called(name: str, parts: Sequence[Any]) -> Any:
    """A function of expressions: min, max or abs."""
    nodes = [node_of(each) for each in parts]
    if any(each is None for each in nodes):
        return Unknown()
    whole_nodes = [each for each in nodes if each is not None]
    return made(ast.Call(ast.Name(name, ast.Load()), whole_nodes, []), parts)
