"""The expressions that kernel.toml and template files may hold: arithmetic over names, nothing else.

They are parsed once under an allow-list of syntax and evaluated by walking the tree: no `eval`, no attributes, no
calls but the few listed, and powers and products are kept to numbers a kernel can mean.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from search.errors import SpecError

Value = int | float | bool | str
LARGEST_MAGNITUDE = 2**80     # beyond any byte or flop count; stops 9**9**9 before it runs
LONGEST_EXPRESSION = 1000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "abs": abs,
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, multiple: -(-a // multiple) * multiple,
}
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Load,
          ast.Constant, ast.Tuple, ast.And, ast.Or, ast.Not, ast.USub, ast.UAdd, *_BINARY, *_COMPARE)


@dataclass(frozen=True)
class Expression:
    """A checked expression; `names` are the free names it needs."""

    text: str
    names: frozenset[str]
    where: str = ""

    def __call__(self, values: Mapping[str, Value]) -> Any:
        try:
            return _evaluate(_parse(self.text, self.where).body, values)
        except SpecError:
            raise
        except (ArithmeticError, TypeError, ValueError) as error:
            raise SpecError(f"{self.where}: {self.text!r} cannot be computed: {error}",
                            code="bad_expression") from error


_PARSED: dict[str, ast.Expression] = {}      # a memo: parsing is pure, and a space asks for it 100,000 times


def expression(text: str | int | float | bool, where: str) -> Expression:
    """Parse and check `text`; `where` names the file and key for the author. SpecError when it is not allowed."""
    text = str(text)
    tree = _parse(text, where)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)
    return Expression(text, frozenset(names), where)


def require_names(found: Expression, known: set[str] | frozenset[str]) -> None:
    """Refuse, at load, an expression over names that will not be there."""
    missing = sorted(found.names - known)
    if missing:
        raise SpecError(f"{found.where}: {found.text!r} uses the unknown name {missing[0]!r}",
                        code="unknown_name", mend="known: " + ", ".join(sorted(known)))


def _parse(text: str, where: str) -> ast.Expression:
    known = _PARSED.get(text)
    if known is not None:
        return known
    if len(text) > LONGEST_EXPRESSION:
        raise SpecError(f"{where}: an expression of {len(text)} characters; {LONGEST_EXPRESSION} are allowed",
                        code="bad_expression")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"{where}: {text!r} is not an expression", code="bad_expression") from error
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise SpecError(f"{where}: {type(node).__name__} is not allowed in {text!r}", code="bad_expression",
                            mend="arithmetic, comparisons, and/or/not, 'a if b else c', "
                                 "and the functions " + ", ".join(sorted(_FUNCTIONS)))
        if isinstance(node, ast.Call) and (not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS
                                           or node.keywords):
            raise SpecError(f"{where}: an unknown function in {text!r}", code="bad_expression",
                            mend="known: " + ", ".join(sorted(_FUNCTIONS)))
        if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, bool, str)):
            raise SpecError(f"{where}: the constant {node.value!r} is not allowed", code="bad_expression")
    _PARSED[text] = tree
    return tree


def _evaluate(node: ast.expr, values: Mapping[str, Value]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id not in values:
                raise SpecError(f"the name {node.id!r} has no value here", code="unknown_name",
                                mend="known: " + ", ".join(sorted(values)))
            return values[node.id]
        case ast.Tuple():
            return tuple(_evaluate(one, values) for one in node.elts)
        case ast.IfExp():
            return _evaluate(node.body if _evaluate(node.test, values) else node.orelse, values)
        case ast.BoolOp():
            stop_at = isinstance(node.op, ast.Or)
            result: Any = None
            for one in node.values:
                result = _evaluate(one, values)
                if bool(result) == stop_at:
                    break
            return result
        case ast.UnaryOp():
            operand = _evaluate(node.operand, values)
            if isinstance(node.op, ast.Not):
                return not operand
            return -operand if isinstance(node.op, ast.USub) else +operand
        case ast.Compare():
            left = _evaluate(node.left, values)
            for op, right_node in zip(node.ops, node.comparators):
                right = _evaluate(right_node, values)
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
        case ast.BinOp():
            return _bounded_binary(type(node.op), _evaluate(node.left, values), _evaluate(node.right, values))
        case ast.Call():
            return _FUNCTIONS[node.func.id](*(_evaluate(one, values) for one in node.args))  # type: ignore[attr-defined]
    raise SpecError(f"{type(node).__name__} is not allowed in an expression", code="bad_expression")


def _bounded_binary(op: type[ast.operator], left: Any, right: Any) -> Any:
    for side in (left, right):
        if not isinstance(side, (int, float)) or abs(side) > LARGEST_MAGNITUDE:
            raise SpecError(f"{side!r} is not a number that an expression may use", code="bad_expression")
    if op is ast.Pow and abs(right) > 64:
        raise SpecError(f"the power {right} is out of range", code="bad_expression")
    return _BINARY[op](left, right)
