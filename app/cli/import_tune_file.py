"""A tuning script in Kernel Tuner's style, read by `greenfast import --tune-file`.

The script is parsed and never run. Understood are constants with a name, literals, range(), lists
added up, list comprehensions, restrictions as texts or as a lambda, and from the call of
`tune_kernel` or from assignments the problem's size, `grid_div_x` and the names of a block's sizes.
Anything else is refused with its line.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenfast.app.cli.import_script import parsed_script, tuning_calls
from greenfast.app.cli.import_source import (
    MOST_VALUES,
    ProblemSize,
    Tuning,
    checked_restrictions,
    checked_values,
)
from greenfast.search.errors import GreenfastError, SpecError, UsageError
from greenfast.search.kernels.expressions import Value, expression
from greenfast.search.text import visible

_ASSIGNED = {
    "restrictions": "restrictions",
    "restrict": "restrictions",
    "problem_size": "problem_size",
    "grid_div_x": "grid_div_x",
    "grid_div_y": "grid_div_y",
    "grid_div_z": "grid_div_z",
    "block_size_names": "block_size_names",
}
_NUMPY_INTEGER = re.compile(r"u?int(8|16|32|64)")
_PROBLEM_SIZE_PLACE, _TUNE_PARAMS_PLACE = 2, 4  # among the arguments of tune_kernel


def read_tune_file(path: Path, *, has_grid: bool = False) -> Tuning:
    """Parameters, restrictions and the launch of a Python file, which is not run.

    With `has_grid` the caller knows the grid, and the script's is not read.
    """
    file = visible(path)
    tree = parsed_script(path)
    script = _Script(file, _tuned_names(tree))
    kinds = (ast.Assign, ast.AnnAssign, ast.Call)
    nodes = [node for node in _before_the_first_tuning(tree) if isinstance(node, kinds)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Assign):
            script.assigned(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                script.assigned(node.target, node.value)
        elif _called(node) == "tune_kernel":
            script.tuned(node)
    return script.tuning(has_grid)


def _before_the_first_tuning(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes except another kernel's tuning: in its function, or after the first call."""
    calls = tuning_calls(tree)
    if not calls:
        return ast.walk(tree)
    first, home, left_out = calls[0], set(ast.walk(tree)), set[ast.AST]()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        inner = set(ast.walk(function))
        if first in inner:
            home = inner
        elif not inner.isdisjoint(calls):
            left_out |= inner
    end = first.end_lineno or first.lineno
    left_out |= {node for node in home if getattr(node, "lineno", 0) > end}
    return (node for node in ast.walk(tree) if node not in left_out)


def _tuned_names(tree: ast.Module) -> frozenset[str]:
    """Names of the parameters' dictionary: as in the call of tune_kernel, or the usual ones."""
    names = {"tune_params"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "tune_kernel":
            given = [word.value for word in node.keywords if word.arg == "tune_params"]
            given += node.args[_TUNE_PARAMS_PLACE : _TUNE_PARAMS_PLACE + 1]
            names |= {each.id for each in given if isinstance(each, ast.Name)}
    return frozenset(names)


def _called(call: ast.Call) -> str:
    function = call.func
    return str(getattr(function, "id", getattr(function, "attr", "")))


class _Script:
    """The statements of a script, one after the other."""

    def __init__(self, file: str, tuned: frozenset[str]) -> None:
        self._file, self._tuned = file, tuned
        self._constants: dict[str, Value | tuple[Value, ...]] = {}
        self._parameters: dict[str, tuple[Value, ...]] = {}
        self._lists: dict[str, ast.expr] = {}
        self._given: dict[str, ast.expr] = {}

    def assigned(self, target: ast.expr, value: ast.expr) -> None:
        where = self._where(value)
        match target:
            case ast.Name(id=name) if name in self._tuned:
                self._parameters = {
                    name: checked_values(name, values, where)
                    for name, values in _dictionary(value, self._constants, where).items()
                }
            case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(name))) if (
                table in self._tuned
            ):
                values = _list(value, self._constants, where)
                self._parameters[name] = checked_values(name, values, where)
            case ast.Name(id=name) if name in _ASSIGNED:
                self._given[_ASSIGNED[name]] = value
            case ast.Name(id=name):
                self._lists[name] = value
                self._remember(name, value)
            case ast.Tuple(elts=names) if isinstance(value, ast.Tuple):
                for each, part in zip(names, value.elts, strict=False):
                    if isinstance(each, ast.Name):
                        self._remember(each.id, part)

    def _remember(self, name: str, value: ast.expr) -> None:
        """A name for a number or text, which later lines may use."""
        self._constants.pop(name, None)
        if isinstance(value, (ast.Tuple, ast.List)):
            with contextlib.suppress(UsageError):
                self._constants[name] = tuple(_list(value, self._constants, self._where(value)))
            return
        try:
            self._constants[name] = _constant(value, self._constants, self._where(value))
        except UsageError:
            return  # not a constant: refused only where it is used

    def tuned(self, call: ast.Call) -> None:
        for word in call.keywords:
            if word.arg in _ASSIGNED:
                self._given[_ASSIGNED[word.arg]] = self._resolved(word.value)
        if len(call.args) > _PROBLEM_SIZE_PLACE:
            size = call.args[_PROBLEM_SIZE_PLACE]
            is_list = isinstance(self._resolved(size), (ast.Tuple, ast.List))
            # A name stays a name, since an argument may have it.
            is_usual = isinstance(size, ast.Name) and size.id in _ASSIGNED
            self._given["problem_size"] = self._resolved(size) if is_list or is_usual else size

    def _resolved(self, value: ast.expr) -> ast.expr:
        """The list that a name is assigned."""
        if not isinstance(value, ast.Name):
            return value
        if value.id in _ASSIGNED and _ASSIGNED[value.id] in self._given:
            return self._given[_ASSIGNED[value.id]]
        return self._lists.get(value.id, value)

    def tuning(self, has_grid: bool) -> Tuning:
        if not self._parameters:
            raise UsageError(
                f"{self._file} assigns no tune_params",
                code="bad_tune_file",
                mend='write tune_params = {"block_size_x": [32, 64, 128]}',
            )
        names = tuple(self._parameters)
        restrictions = self._texts("restrictions", names)
        tuning = Tuning(self._parameters, restrictions)
        if not has_grid:
            tuning = replace(
                tuning, problem_size=self._problem_size(), grid_divisors=self._divisors(names)
            )
        if not self._is_given("block_size_names"):
            return tuning
        return replace(tuning, block_names=self._texts("block_size_names", names))

    def _divisors(self, names: Sequence[str]) -> tuple[tuple[str, ...] | None, ...]:
        return tuple(
            self._texts(f"grid_div_{axis}", names) if self._is_given(f"grid_div_{axis}") else None
            for axis in "xyz"
        )

    def _is_given(self, what: str) -> bool:
        value = self._given.get(what)
        return value is not None and not (isinstance(value, ast.Constant) and value.value is None)

    def _texts(self, what: str, names: Sequence[str]) -> tuple[str, ...]:
        if not self._is_given(what):
            return ()
        value = self._resolved(self._given[what])
        where = self._where(value)
        return checked_restrictions(tuple(_expressions(value, names, what, where)), names, where)

    def _problem_size(self) -> tuple[ProblemSize, ...]:
        """Along x, y and z; a name stays a name, since an argument may have it."""
        if not self._is_given("problem_size"):
            return ()
        value = self._given["problem_size"]
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        return tuple(self._size(part) for part in parts[:3])

    def _size(self, node: ast.expr) -> ProblemSize:
        if isinstance(node, ast.Name):
            known = self._constants.get(node.id)
            return ProblemSize(node.id, known if type(known) is int else None)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return ProblemSize(node.value)  # Kernel Tuner's way to name a parameter
        try:
            size = _constant(node, self._constants, self._where(node))
        except UsageError:
            size = None
        if type(size) is not int:
            raise UsageError(
                f"{self._where(node)}: the problem's size {ast.unparse(node)[:60]!r} cannot be "
                "read, because the file is not run",
                code="bad_tune_file",
                mend='give the grid, for example --grid "ceil_div(n, block_size_x)"',
            )
        return ProblemSize(value=size)

    def _where(self, node: ast.expr) -> str:
        return f"{self._file}:{node.lineno}"


def _dictionary(node: ast.expr, known: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    match node:
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_text(key, where): _list(value, known, where) for key, value in pairs}
        case ast.Call(func=ast.Name(id="dict" | "OrderedDict"), args=[], keywords=words):
            return {str(word.arg): _list(word.value, known, where) for word in words}
        case ast.Call(func=ast.Name(id="dict" | "OrderedDict"), args=[inner], keywords=[]):
            return _dictionary(inner, known, where)
        case ast.List(elts=pairs) if all(isinstance(pair, ast.Tuple) for pair in pairs):
            return {
                _text(pair.elts[0], where): _list(pair.elts[1], known, where)
                for pair in pairs
                if isinstance(pair, ast.Tuple) and len(pair.elts) == 2
            }
    raise _not_understood("tune_params", where)


def _list(node: ast.expr, known: Mapping[str, Any], where: str) -> list[Any]:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_constant(item, known, where) for item in items]
        case ast.Call(func=ast.Name(id="list" | "sorted"), args=[inner], keywords=[]):
            return _list(inner, known, where)
        case ast.Call(func=ast.Name(id="range"), args=bounds, keywords=[]) if 1 <= len(bounds) <= 3:
            return _range(bounds, known, where)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_list(left, known, where), *_list(right, known, where)]
        case ast.ListComp(
            elt=item,
            generators=[ast.comprehension(target=ast.Name(id=name), iter=values, ifs=conditions)],
        ):
            each = [{**known, name: value} for value in _list(values, known, where)]
            return [
                _constant(item, names, where)
                for names in each
                if all(_constant(condition, names, where) for condition in conditions)
            ]
    raise _not_understood("the values", where)


def _range(bounds: Sequence[ast.expr], known: Mapping[str, Any], where: str) -> list[int]:
    numbers = [_constant(bound, known, where) for bound in bounds]
    if not all(type(number) is int for number in numbers) or (len(numbers) == 3 and not numbers[2]):
        raise _not_understood("the range", where)
    values = range(*numbers)
    if len(values) > MOST_VALUES:
        raise UsageError(f"{where}: more than {MOST_VALUES} values", code="bad_tune")
    return list(values)


def _constant(node: ast.expr, values: Mapping[str, Any], where: str) -> Any:
    """A literal, or arithmetic over names that have values."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, bool, str):
        return node.value
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[ast.Constant(value=float(number))]) if (
            math.isfinite(number)
        ):
            return int(number)
        case ast.Call(func=ast.Attribute(attr=kind), args=[inner], keywords=[]) if (
            _NUMPY_INTEGER.fullmatch(kind)
        ):
            return _constant(inner, values, where)
    try:
        # With the number in the name's place, `2**i` is a power with a constant exponent.
        return expression(ast.unparse(_Filled(values).visit(copy.deepcopy(node))), where)({})
    except GreenfastError as error:
        raise _not_understood(f"{ast.unparse(node)[:60]!r}", where) from error


class _Filled(ast.NodeTransformer):
    """Replaces names by their values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._values.get(node.id)
        return node if value is None or isinstance(value, tuple) else ast.Constant(value)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """An item of a literal tuple or list that has a name."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
                values = self._values.get(name)
                if isinstance(values, tuple) and place < len(values):
                    return ast.Constant(values[place])
        return self.generic_visit(node)


def _expressions(node: ast.expr, names: Sequence[str], what: str, where: str) -> Iterator[str]:
    """Texts, and lambdas over the parameters: of one dictionary, or of parameters by name."""
    if isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield from _expressions(item, names, what, where)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Lambda):
        yield _lambda_text(node, where)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield str(node.value)
    else:
        raise _not_understood(what, where)


def _lambda_text(node: ast.Lambda, where: str) -> str:
    """`lambda p: p["a"] * p["b"] <= 9` as `a * b <= 9`."""
    arguments = [argument.arg for argument in node.args.args]
    body = copy.deepcopy(node.body)
    if len(arguments) == 1:
        body = _Named(arguments[0]).visit(body)
    text = ast.unparse(body)
    try:
        expression(text, where)
    except SpecError as error:
        raise UsageError(
            f"{where}: a function is understood only where it is an expression over the parameters",
            code="bad_tune_file",
            mend='write a text, such as "block_size_x * block_size_y <= 1024"',
        ) from error
    return text


class _Named(ast.NodeTransformer):
    """Replaces `p["a"]` by `a`."""

    def __init__(self, dictionary: str) -> None:
        self._dictionary = dictionary

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(
                value=ast.Name(id=dictionary), slice=ast.Constant(value=str(name))
            ) if dictionary == self._dictionary and name.isidentifier():
                return ast.Name(name, ast.Load())
        self.generic_visit(node)
        return node


def _text(node: ast.expr | None, where: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    what = "a function" if isinstance(node, ast.Lambda) else "this"
    raise UsageError(
        f"{where}: {what} is not understood, because the file is not run",
        code="bad_tune_file",
        mend='write a text, such as "block_size_x * block_size_y <= 1024"',
    )


def _not_understood(what: str, where: str) -> UsageError:
    return UsageError(
        f"{where}: {what} cannot be read, because the file is not run",
        code="bad_tune_file",
        mend="write a literal list of values, range(...), or a list comprehension over a range",
    )
