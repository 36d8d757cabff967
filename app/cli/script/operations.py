"""Operations on the values of a script: arithmetic, comparisons, and what counts as true."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from greenfast.app.cli.script.values import (
    LONGEST_LIST,
    LONGEST_TEXT,
    Array,
    FileText,
    Named,
    Scalar,
    Symbol,
    Unknown,
    bounded,
    is_plain,
    items,
    number,
)

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
LARGEST_POWER = 62


# A script that tunes for several languages is read as for CUDA.
_LANGUAGES = {"cuda": True, "cupy": True, "hip": False, "opencl": False}


def arithmetic(op: type[ast.operator], left: Any, right: Any) -> Any:
    """An operation on two plain numbers."""
    try:
        if op is ast.Pow:
            small = abs(left) < 2**32 and abs(right) <= LARGEST_POWER
            return bounded(left**right) if small else Unknown()
        if op is ast.LShift:
            return bounded(left << right) if 0 <= right <= LARGEST_POWER else Unknown()
        value = _ARITHMETIC[op](left, right)
    except (ArithmeticError, TypeError, ValueError, KeyError):
        return Unknown()
    return Unknown() if isinstance(value, complex) else bounded(value)


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None where it is not known."""
    if isinstance(value, (Unknown, Named, Symbol, FileText)):
        return None
    if isinstance(value, Scalar):
        return bool(value.value)
    if isinstance(value, Array):
        return None
    return bool(value) if is_plain(value) or isinstance(value, (list, tuple, dict, range)) else True


def compared(left: Any, op: ast.cmpop, right: Any) -> Any:
    left = left.value if isinstance(left, Scalar) else left
    right = right.value if isinstance(right, Scalar) else right
    if isinstance(op, (ast.In, ast.NotIn)):
        parts = right if isinstance(right, str) and isinstance(left, str) else items(right)
        if parts is None or not is_plain(left) or not all(map(is_plain, parts)):
            return Unknown()
        return (left in parts) is isinstance(op, ast.In)
    if isinstance(left, Unknown) and isinstance(right, str) and isinstance(op, ast.Eq):
        return _LANGUAGES.get(right.lower(), Unknown())
    if right is None and isinstance(op, (ast.Is, ast.IsNot)) and not isinstance(left, Unknown):
        return (left is None) is isinstance(op, ast.Is)
    if isinstance(left, (tuple, list)) and type(left) is type(right):
        is_known = all(map(is_plain, (*left, *right)))
        return bool(_COMPARED[type(op)](left, right)) if is_known else Unknown()
    if not is_plain(left) or not is_plain(right):
        return Unknown()
    try:
        return bool(_COMPARED[type(op)](left, right))
    except TypeError:
        return Unknown()


def strung(left: Any, op: ast.operator, right: Any) -> Any:
    """Texts or lists one after the other, or one of them repeated."""
    if isinstance(op, ast.Mult):
        whole, times = (right, left) if isinstance(right, (str, list, tuple)) else (left, right)
        times = number(times)
        if not isinstance(times, int) or not isinstance(whole, (str, list, tuple)):
            return Unknown()
        longest = LONGEST_TEXT if isinstance(whole, str) else LONGEST_LIST
        return whole * times if len(whole) * max(times, 0) <= longest else Unknown()
    if isinstance(left, str) and isinstance(right, str):
        return bounded(left + right)
    first, second = items(left), items(right)
    if first is None or second is None or len(first) + len(second) > LONGEST_LIST:
        return Unknown()
    both = [*first, *second]
    return tuple(both) if isinstance(left, tuple) else both
