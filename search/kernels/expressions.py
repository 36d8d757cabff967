"""The expressions in kernel.toml and template files: arithmetic over names, and nothing else.

They are parsed under an allow-list of syntax: no attributes, calls of a few listed functions only,
and powers to small constants only. Then they are compiled, since a space evaluates some of them a
hundred thousand times.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from greenfast.search.errors import SpecError

Value = int | float | bool | str
SM_COUNT = "sm_count"  # the target device's multiprocessors, for a template's expressions
LARGEST_POWER = 64
LARGEST_CONSTANT = 2**63
LONGEST_EXPRESSION = 1000

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, multiple: -(-a // multiple) * multiple,
}
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Tuple,
    ast.And,
    ast.Or,
    ast.Not,
    ast.USub,
    ast.UAdd,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
)
_ALLOWED = "arithmetic, comparisons, and/or/not, 'a if b else c', and the functions " + ", ".join(
    sorted(_FUNCTIONS)
)


@dataclass(frozen=True)
class Expression:
    """A checked expression; `names` are its free names, `where` its file and key."""

    text: str
    names: frozenset[str]
    where: str = ""

    def __call__(self, values: Mapping[str, Value]) -> Any:
        """The value; SpecError for a division by zero, a missing name or unsuitable types."""
        try:
            return eval(_compiled(self.text), {"__builtins__": {}, **_FUNCTIONS}, values)
        except NameError as error:
            raise SpecError(f"{self.where}: {self.text!r}: {error}", code="unknown_name") from error
        except (ArithmeticError, TypeError, ValueError) as error:
            raise SpecError(
                f"{self.where}: {self.text!r} cannot be computed: {error}", code="bad_expression"
            ) from error


def expression(text: str | int | float | bool, where: str) -> Expression:
    """Parse and check `text`, from the file and key `where`; SpecError when it is invalid."""
    text = str(text)
    if len(text) > LONGEST_EXPRESSION:
        raise SpecError(
            f"{where}: an expression of {len(text)} characters; {LONGEST_EXPRESSION} are allowed",
            code="bad_expression",
        )
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"{where}: {text!r} is not an expression", code="bad_expression") from error
    for node in ast.walk(tree):
        refusal = _refusal(node)
        if refusal:
            raise SpecError(f"{where}: {refusal} in {text!r}", code="bad_expression", mend=_ALLOWED)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)
    return Expression(text, frozenset(names), where)


def require_names(checked: Expression, known: Set[str]) -> None:
    """SpecError when the expression uses a name that is not among `known`."""
    missing = sorted(checked.names - known)
    if missing:
        raise SpecError(
            f"{checked.where}: {checked.text!r} uses the unknown name {missing[0]!r}",
            code="unknown_name",
            mend="known: " + ", ".join(sorted(known)),
        )


def _refusal(node: ast.AST) -> str:
    """The reason why an expression must not contain this node; empty when it may."""
    if not isinstance(node, _NODES):
        return f"{type(node).__name__} is not allowed"
    if isinstance(node, ast.Call) and (
        not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords
    ):
        return "an unknown function is called"
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float, bool, str)):
            return f"the constant {node.value!r} is not allowed"
        if isinstance(node.value, (int, float)) and not abs(node.value) <= LARGEST_CONSTANT:
            return "a constant is too large"
    if isinstance(node, ast.BinOp):
        if any(
            isinstance(side, ast.Constant) and isinstance(side.value, str)
            for side in (node.left, node.right)
        ):
            return "arithmetic on text is not allowed"
        if isinstance(node.op, ast.Pow):
            return _power_refusal(node)
    return ""


def _power_refusal(node: ast.BinOp) -> str:
    """The reason why a power may become too large; empty when it cannot."""
    exponent = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
    if (
        not isinstance(exponent, ast.Constant)
        or not isinstance(exponent.value, (int, float))
        or exponent.value > LARGEST_POWER
    ):
        return f"a power needs a constant exponent of at most {LARGEST_POWER}"
    if any(
        isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Pow)
        for inner in ast.walk(node.left)
    ):
        return "a power of a power is not allowed"
    return ""


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<expression>", "eval")
