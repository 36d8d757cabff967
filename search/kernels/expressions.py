"""The expressions in kernel.toml and template files: arithmetic over names, and nothing else.

They are parsed under an allow-list of syntax: no attributes, calls of a few listed functions only,
and powers to small constants only. Then they are compiled, since a space evaluates some of them a
hundred thousand times.

No expression takes long or much memory. Its text is short, it has no power of a power, text and
lists take no part in arithmetic, and each number that enters or leaves it is bounded. Between the
two, a number has at most a few million bits.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import CodeType
from typing import Any

from greenfast.search.errors import SpecError

Value = int | float | bool | str
SM_COUNT = "sm_count"  # the target device's multiprocessors, for a template's expressions
LARGEST_POWER = 64
LARGEST_CONSTANT = 2**63
LONGEST_EXPRESSION = 1000
DEEPEST_EXPRESSION = 50
TEXTS_KEPT = 4096  # a set of kernels repeats its conditions thousands of times
LARGEST_VALUE = 2**64  # of a name's value and of a result, without their sign

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "ceil_div": lambda a, b: -(-a // b),
    "round_up": lambda a, multiple: -(-a // multiple) * multiple,
}
_GLOBALS = {"__builtins__": {}, **_FUNCTIONS}  # no expression can assign, so all share it
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
    ast.BitAnd,
    ast.BitOr,
    ast.RShift,
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


_SIGNS = {
    "BitXor": "^", "Invert": "~", "LShift": "<<",
    "Subscript": "[...]", "Attribute": "a dot in a name", "MatMult": "@", "NamedExpr": ":=",
}  # fmt: skip
_OF_C = (
    (r"&&", "&&", "and"),
    (r"\|\|", "||", "or"),
    (r"!(?!=)", "!", "not"),
    (r"\?", "c ? a : b", "a if c else b"),
    (r"(?<![=!<>:])=(?!=)", "=", "== in a comparison"),
    (r"\^", "^", "** for a power"),
    (r"<<", "1 << n", "2**n, with a number for n"),
    (r"\b(?:ceil|floor)\s*\(", "ceil(a / b) or floor(a / b)", "ceil_div(a, b) or a // b"),
)


@dataclass(frozen=True)
class Expression:
    """A checked expression; `names` are its free names, `where` its file and key."""

    text: str
    names: frozenset[str]
    where: str = ""

    def __call__(self, values: Mapping[str, Value]) -> Any:
        """The value; SpecError for a division by zero, a missing name or unsuitable values."""
        return self._computed(values) if self.names else self._constant

    @cached_property
    def _constant(self) -> Any:
        """The value of an expression without names: most sizes of blocks and boxes."""
        return self._computed({})

    def _computed(self, values: Mapping[str, Value]) -> Any:
        compiled = _compiled(self.text)
        try:
            for name in self.names:
                value = values[name]
                if type(value) is int:
                    if not -LARGEST_VALUE <= value <= LARGEST_VALUE:
                        raise OverflowError(f"{name} is beyond 2**64")
                elif type(value) is str and name in compiled.numbers:
                    raise TypeError(f"{name} is text, and arithmetic needs a number")
            result = eval(compiled.code, _GLOBALS, values)
        except (NameError, KeyError) as error:
            missing = error if isinstance(error, NameError) else f"name {error} is not defined"
            raise SpecError(
                f"{self.where}: {self.text!r}: {missing}", code="unknown_name"
            ) from error
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self._not_computed(str(error)) from error
        if isinstance(result, complex) or (
            isinstance(result, int) and not -LARGEST_VALUE <= result <= LARGEST_VALUE
        ):
            raise self._not_computed("the result is beyond 2**64 or no real number")
        return result

    def whole(self, values: Mapping[str, Value]) -> int:
        """The value as a whole number, a fraction cut off; SpecError for text and infinities."""
        value = self(values)
        if isinstance(value, str) or not math.isfinite(value):
            raise self._not_computed(f"{value!r} is no size")
        return int(value)

    def amount(self, values: Mapping[str, Value]) -> int | float:
        """The value, which must be a number that is 0 or more: an operation's work."""
        value: Value = self(values)
        if isinstance(value, str) or not 0 <= value < math.inf:
            raise self._not_computed(f"{value!r} is not a number of 0 or more")
        return value

    def _not_computed(self, reason: str) -> SpecError:
        return SpecError(
            f"{self.where}: {self.text!r} cannot be computed: {reason}", code="bad_expression"
        )


def expression(text: str | int | float | bool, where: str) -> Expression:
    """Parse and check `text`, from the file and key `where`; SpecError when it is invalid."""
    if not isinstance(text, (str, int, float)):
        raise SpecError(f"{where}: an expression is needed here", code="bad_expression")
    if isinstance(text, int) and abs(text) > LARGEST_CONSTANT:
        raise SpecError(f"{where}: a constant is too large", code="bad_expression")
    text = str(text)
    if len(text) > LONGEST_EXPRESSION:
        raise SpecError(
            f"{where}: an expression of {len(text)} characters; {LONGEST_EXPRESSION} are allowed",
            code="bad_expression",
        )
    try:
        checked = _checked(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(
            f"{where}: {text!r} is not an expression",
            code="bad_expression",
            mend=_in_python(text) or f"it may hold {_ALLOWED}",
        ) from error
    if checked.refusal:
        message = f"{where}: {checked.refusal} in {text!r}"
        mend = _in_python(text) or f"it may hold {_ALLOWED}"
        raise SpecError(message, code="bad_expression", mend=mend)
    parsed = Expression(text, checked.names, where)
    if not parsed.names:
        parsed({})  # nothing can give 1 / 0 a value
    return parsed


def _in_python(text: str) -> str:
    """How Python writes what the text has in C's way; empty where it has nothing of that."""
    return "; ".join(
        f"{wrong.strip()} is written {right}"
        for pattern, wrong, right in _OF_C
        if re.search(pattern, text)
    )


@dataclass(frozen=True)
class _Checked:
    """A text's free names, and the reason why it must not be evaluated; empty when it may."""

    names: frozenset[str]
    refusal: str


@lru_cache(TEXTS_KEPT)
def _checked(text: str) -> _Checked:
    nodes = _nodes_of(ast.parse(text, mode="eval"))
    if nodes is None:
        return _Checked(frozenset(), f"more than {DEEPEST_EXPRESSION} nested operations")
    refusals = [*map(_refusal, nodes)]
    if any(isinstance(node, ast.Tuple) for node in nodes):
        refusals += map(_list_refusal, nodes)
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - set(_FUNCTIONS)
    return _Checked(frozenset(names), next(filter(None, refusals), ""))


def require_names(checked: Expression, known: Set[str]) -> None:
    """SpecError when the expression uses a name that is not among `known`."""
    missing = sorted(checked.names - known)
    if missing:
        raise SpecError(
            f"{checked.where}: {checked.text!r} uses the unknown name {missing[0]!r}",
            code="unknown_name",
            mend="known: " + (", ".join(sorted(known)) or "none"),
        )


def computed_size(
    name: str, default: Expression | None, values: object, conditions: Iterable[Expression]
) -> tuple[Expression, str] | None:
    """The condition that a dim has its default, and the sentence where it does not; None: free.

    A default that is computed from other dims says what the size follows from: a kernel that gets
    another size reads past its tensors. A default that is one other dim, as in S_kv = "S_q", only
    says what is usual. `values` and conditions that name the dim say themselves what it may be.
    """
    if default is None or not default.names or values:
        return None
    if default.text.strip(" ()") in default.names or any(name in each.names for each in conditions):
        return None
    condition = expression(f"{name} == ({default.text})", default.where)
    return condition, f"{name}={{{name}}} must be {default.text}; a workload may leave {name} out"


def _refusal(node: ast.AST) -> str:
    """The reason why an expression must not contain this node; empty when it may."""
    if not isinstance(node, _NODES):
        name = type(node).__name__
        return f"{_SIGNS.get(name, name)} is not allowed"
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
            isinstance(operand, ast.Constant) and isinstance(operand.value, str)
            for operand in _operands(node)
        ):
            return "arithmetic on text is not allowed"
        if isinstance(node.op, ast.Pow):
            return _power_refusal(node)
    return ""


def _list_refusal(node: ast.AST) -> str:
    """The reason why a list is misplaced; it may only follow `in` and `not in`."""
    if isinstance(node, ast.Compare):
        children: Iterable[ast.AST] = (
            node.left,
            *(
                side
                for operation, side in zip(node.ops, node.comparators, strict=True)
                if not isinstance(operation, (ast.In, ast.NotIn))
            ),
        )
    else:
        children = ast.iter_child_nodes(node)
    if any(isinstance(child, ast.Tuple) for child in children):
        return "a list is allowed only after 'in'"
    return ""


def _nodes_of(tree: ast.Expression) -> list[ast.AST] | None:
    """All nodes of the expression; None when it is nested too deeply."""
    nodes: list[ast.AST] = [tree]
    level = nodes
    for _ in range(DEEPEST_EXPRESSION):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return nodes
        nodes = nodes + level
    return None


def _operands(node: ast.BinOp) -> Iterator[ast.AST]:
    """Names and constants whose own value may take part in the operation."""
    waiting: list[ast.AST] = [node.left, node.right]
    while waiting:
        operand = waiting.pop()
        match operand:
            case ast.Name() | ast.Constant():
                yield operand
            case ast.IfExp(body=body, orelse=otherwise):
                waiting += (body, otherwise)
            case ast.BoolOp(values=values) | ast.Call(args=values):
                waiting += values


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


@dataclass(frozen=True)
class _Compiled:
    code: CodeType
    numbers: frozenset[str]  # names that take part in arithmetic


@cache
def _compiled(text: str) -> _Compiled:
    tree = ast.parse(text, mode="eval")
    numbers = {
        operand.id
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        for operand in _operands(node)
        if isinstance(operand, ast.Name)
    }
    return _Compiled(compile(tree, "<expression>", "eval"), frozenset(numbers))
