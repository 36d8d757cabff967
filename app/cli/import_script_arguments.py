"""The arguments that a Kernel Tuner script passes, as --arg texts for `greenfast import`.

The script is parsed and never run. It reads arrays and numbers that NumPy makes of constants:
zeros, ones, random numbers, `astype`, `reshape`, `np.int32(n)`. Whatever else it passes stays to be
given by --arg.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenfast.app.cli.import_script import given_argument, tuning_call
from greenfast.app.cli.import_source import C_TYPES, SPELLINGS, Declared, Entry

_SCALARS = ("int32", "int64", "uint32", "uint64", "float32", "float64")
_EMPTY = ("zeros", "empty", "zeros_like", "empty_like")
_BY_SHAPE = ("zeros", "ones", "empty", "random", "random_sample", "standard_normal")
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like")
_SAME = ("copy", "flatten", "ravel")
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
LARGEST_POWER = 62
_NESTED = 100  # names that stand for names, at most


class _Unknown(Exception):
    """A value that only running the script would tell."""


@dataclass(frozen=True)
class _Array:
    shape: tuple[int, ...]
    dtype: str = "float64"
    is_empty: bool = False  # its content does not matter, or is zero


@dataclass(frozen=True)
class _Scalar:
    dtype: str
    value: int | float


def script_arguments(tree: ast.Module, entry: Entry, text: str) -> dict[str, str]:
    """--arg texts by the entry's parameters, as far as the script has them."""
    call = tuning_call(tree)
    if call is None:
        return {}
    values = _Values(tree)
    passed = values.items(given_argument(call, "arguments"))
    if len(passed) != len(entry.parameters):
        return {}
    answers = values.items(given_argument(call, "answer"))
    scalars = [value for value in passed if isinstance(value, _Scalar)]
    names = {
        value.value: parameter.name
        for parameter, value in zip(entry.parameters, passed, strict=True)
        if isinstance(value, _Scalar) and scalars.count(value) == 1
    }
    texts: dict[str, str] = {}
    for number, (parameter, value) in enumerate(zip(entry.parameters, passed, strict=True)):
        if isinstance(value, _Scalar) and not parameter.is_pointer:
            texts[parameter.name] = f"{parameter.name}:{value.dtype}={value.value}"
        elif isinstance(value, _Array) and parameter.is_pointer:
            sizes = ",".join(names.get(size, str(size)) for size in value.shape)
            known = len(answers) == len(passed)
            role = _role(parameter, value, text, (answers[number] is not None) if known else None)
            texts[parameter.name] = f"{parameter.name}:{value.dtype}[{sizes}]:{role}"
    return texts


def _role(parameter: Declared, array: _Array, text: str, is_answer: bool | None) -> str:
    """Whether the kernel reads or writes a tensor; `is_answer`: the script compares it."""
    if parameter.is_const or is_answer is False:
        return "input"
    name = re.escape(parameter.name)
    is_added = re.search(
        rf"\b{name}\s*\[[^;=]*\]\s*[-+*/|&^]=|\batomic\w+\s*\(\s*&?\s*{name}\b", text
    )
    is_set = re.search(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)|\*\s*{name}\s*=(?!=)", text)
    if is_added or (is_set and not array.is_empty):
        return "inout"
    return "output" if is_set or is_answer or array.is_empty else "input"


class _Values:
    """The values of the names in a script; a name that is assigned twice has its last value."""

    def __init__(self, tree: ast.Module) -> None:
        self._assigned: dict[str, ast.expr] = {}
        assignments = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
        for node in sorted(assignments, key=lambda node: node.lineno):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._assigned[target.id] = node.value
        self._depth = 0

    def items(self, node: ast.expr | None) -> list[Any]:
        """The values of a list; one that is not known is an Ellipsis."""
        if isinstance(node, ast.Name):
            node = self._assigned.get(node.id)
        if not isinstance(node, (ast.List, ast.Tuple)):
            return []
        return [self._or_unknown(item) for item in node.elts]

    def _or_unknown(self, node: ast.expr) -> Any:
        try:
            return self.of(node)
        except (_Unknown, ArithmeticError, TypeError, ValueError, IndexError):
            return ...

    def of(self, node: ast.expr) -> Any:
        """A number, a tuple, an _Array or a _Scalar."""
        self._depth += 1
        try:
            if self._depth > _NESTED:
                raise _Unknown
            return self._of(node)
        finally:
            self._depth -= 1

    def _of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() | None as value):
                return value
            case ast.Name(id=name) if name in self._assigned:
                return self.of(self._assigned[name])
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.of(item) for item in items)
            case ast.Subscript(value=whole, slice=index):
                return self.of(whole)[self.of(index)]
            case ast.Attribute(value=whole, attr="size" | "shape" as attribute):
                array = self._array(whole)
                return array.shape if attribute == "shape" else math.prod(array.shape)
            case ast.UnaryOp(op=ast.USub(), operand=number):
                return -_number(self.of(number))
            case ast.BinOp(left=left, op=op, right=right):
                return self._combined(self.of(left), op, self.of(right))
            case ast.Call(func=ast.Name(id="int"), args=[value]):
                return int(_number(self.of(value)))
            case ast.Call(func=ast.Attribute(value=whole, attr=method)):
                return self._called(node, whole, method)
        raise _Unknown

    def _combined(self, left: Any, op: ast.operator, right: Any) -> Any:
        for each in (left, right):
            if isinstance(each, _Array):
                return replace(each, is_empty=False)
        left, right = _number(left), _number(right)
        if isinstance(op, ast.Pow) and 0 <= right <= LARGEST_POWER and abs(left) < 2**63:
            return left**right
        if type(op) not in _ARITHMETIC:
            raise _Unknown
        return _ARITHMETIC[type(op)](left, right)

    def _called(self, call: ast.Call, whole: ast.expr, name: str) -> Any:
        """The result of a function of NumPy, or of a method of an array."""
        words = {word.arg: word.value for word in call.keywords if word.arg}
        if name == "astype" and call.args:
            return replace(self._array(whole), dtype=self._dtype(call.args[0]))
        if name == "reshape":
            return self._reshaped(self._array(whole), self._shape(call.args))
        if name in _SAME and not call.args:
            array = self._array(whole)
            return array if name == "copy" else replace(array, shape=(math.prod(array.shape),))
        if name in _SCALARS and len(call.args) == 1:
            return _Scalar(name, _number(self.of(call.args[0])))
        if name == "prod" and len(call.args) == 1:
            return math.prod(self.of(call.args[0]))
        return self._made(name, call.args, words)

    def _made(self, name: str, given: Sequence[ast.expr], words: Mapping[str, ast.expr]) -> _Array:
        """The array that NumPy makes by this function."""
        if name in _LIKE and given:
            array = self._array(given[0])
        elif name in ("rand", "randn"):
            array = _Array(self._shape(given))
        elif name in ("randint", "integers", "uniform", "normal", "standard_normal") and (
            "size" in words
        ):
            dtype = "int64" if name in ("randint", "integers") else "float64"
            array = _Array(self._shape([words["size"]]), dtype)
        elif name in _BY_SHAPE and (given or "shape" in words or "size" in words):
            shape = given[0] if given else words.get("shape", words.get("size"))
            array = _Array(self._shape([shape] if shape is not None else []))
            if len(given) == 2:
                array = replace(array, dtype=self._dtype(given[1]))
        else:
            raise _Unknown
        if "dtype" in words:
            array = replace(array, dtype=self._dtype(words["dtype"]))
        return replace(array, is_empty=name in _EMPTY)

    def _reshaped(self, array: _Array, shape: tuple[int, ...]) -> _Array:
        rest = math.prod(array.shape) // math.prod(size for size in shape if size != -1)
        return replace(array, shape=tuple(rest if size == -1 else size for size in shape))

    def _array(self, node: ast.expr) -> _Array:
        value = self.of(node)
        if not isinstance(value, _Array):
            raise _Unknown
        return value

    def _shape(self, nodes: Sequence[ast.expr]) -> tuple[int, ...]:
        """Sizes one by one, as a tuple, or as a starred tuple."""
        sizes: list[int] = []
        for node in nodes:
            value = self.of(node.value if isinstance(node, ast.Starred) else node)
            for size in value if isinstance(value, tuple) else (value,):
                number = _number(size)
                if number != int(number) or (not sizes and number < -1):
                    raise _Unknown
                sizes.append(int(number))
        if not sizes:
            raise _Unknown
        return tuple(sizes)

    def _dtype(self, node: ast.expr) -> str:
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                if name in SPELLINGS or name in C_TYPES.values():
                    return name
        raise _Unknown


def _number(value: Any) -> int | float:
    if isinstance(value, _Scalar):
        return value.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Unknown
    return value
