"""The values of a script's expressions, whose syntax and functions are listed. Nothing of it runs.

An expression without a value that is known gives Unknown with its line and text.
"""

from __future__ import annotations

import ast
import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from greenfast.app.cli.script import arrays, objects, symbols, texts
from greenfast.app.cli.script.functions import builtin, method
from greenfast.app.cli.script.operations import arithmetic, compared, strung, truth
from greenfast.app.cli.script.values import (
    LONGEST_LIST,
    Array,
    Class,
    Constraint,
    FilePath,
    FileText,
    Function,
    Named,
    Object,
    Parameters,
    Partial,
    Scalar,
    Scope,
    Symbol,
    Unknown,
    bounded,
    is_key,
    is_plain,
    items,
    number,
    turns,
)

# What Python raises for values that do not go together: the script would fail there, too.
_NOT_COMPUTED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Statements(Protocol):
    """What expressions need of the interpreter of statements."""

    read: Callable[[str], Any]  # a file's text, or Unknown

    def step(self, count: int = 1) -> bool: ...

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None: ...

    def apply(self, function: Any, given: Sequence[Any]) -> Any: ...

    def call(
        self, function: Function | Class, given: Sequence[Any], words: Mapping[str, Any]
    ) -> Any: ...

    def tuned(
        self, node: ast.Call, given: Any, words: Mapping[str, Any], is_partial: bool
    ) -> None: ...


class Expressions:
    """Evaluates expressions in scopes; the interpreter calls functions of the script."""

    def __init__(self, interpreter: Statements) -> None:
        self._interpreter = interpreter

    def of(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression; Unknown with its place where it is not known."""
        if not self._interpreter.step():
            return Unknown(node.lineno)
        try:
            value = self._of(node, scope)
        except _NOT_COMPUTED:
            value = Unknown()
        if isinstance(value, Unknown) and not value.line:
            return Unknown(node.lineno, node, value.error)
        if isinstance(value, (str, list, tuple, dict)):
            self._interpreter.step(len(value) // 256)
        return value

    def _of(self, node: ast.expr, scope: Scope) -> Any:
        known = getattr(self, f"_{type(node).__name__.lower()}", None)
        return Unknown() if known is None else known(node, scope)

    def _constant(self, node: ast.Constant, scope: Scope) -> Any:
        return bounded(node.value) if is_plain(node.value) else Unknown()

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        value = scope.find(node.id)
        return Named(node.id) if value is ... else value

    def _tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return self._row(node.elts, scope, tuple)

    def _list(self, node: ast.List, scope: Scope) -> Any:
        return self._row(node.elts, scope, list)

    def _set(self, node: ast.Set, scope: Scope) -> Any:
        return self._row(node.elts, scope, list)

    def _row(self, nodes: Sequence[ast.expr], scope: Scope, kind: type) -> Any:
        values: list[Any] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                values.append(self.of(node, scope))
                continue
            parts = items(self.of(node.value, scope))
            if parts is None or len(values) + len(parts) > LONGEST_LIST:
                return Unknown()
            values += parts
        return kind(values)

    def _dict(self, node: ast.Dict, scope: Scope) -> Any:
        table: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = self.of(key, scope) if key is not None else None
            content = self.of(value, scope)
            if key is None and isinstance(content, dict):
                table.update(content)
            elif key is not None and is_key(name):
                table[name] = content
            else:
                return Unknown(node.lineno)
        return table

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Any:
        parts: list[str] = []
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                spec = self.of(each.format_spec, scope) if each.format_spec else ""
                value = self.plain_text(self.of(each.value, scope))
                shown = texts.formatted(value, spec) if isinstance(spec, str) else Unknown()
            else:
                shown = self.of(each, scope)
            if not isinstance(shown, str):
                return Unknown()
            parts.append(shown)
        return texts.joined(parts)

    def plain_text(self, value: Any) -> Any:
        """What a file holds in the place of the file; Unknown where it may not be read."""
        return self._interpreter.read(value.path) if isinstance(value, FileText) else value

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        value = self.of(node.value, scope)
        scope.names[node.target.id] = value
        return value

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return self.function(node, scope)

    def function(self, node: ast.Lambda | ast.FunctionDef, scope: Scope) -> Function:
        """A function, with the values that its arguments have by default."""
        given = node.args
        names = [each.arg for each in (*given.posonlyargs, *given.args)]
        defaults = dict(zip(names[::-1], given.defaults[::-1], strict=False))
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if default is not None:
                defaults[each.arg] = default
        values = {name: self.of(default, scope) for name, default in defaults.items()}
        is_generator = isinstance(node, ast.FunctionDef) and _yields(node.body)
        return Function(node, scope, defaults=values, is_generator=is_generator)

    def _yield(self, node: ast.Yield, scope: Scope) -> Any:
        self._yielded(scope, [None if node.value is None else self.of(node.value, scope)])

    def _yieldfrom(self, node: ast.YieldFrom, scope: Scope) -> Any:
        parts = items(self.of(node.value, scope))
        self._yielded(scope, [Unknown(node.lineno)] if parts is None else parts)

    def _yielded(self, scope: Scope, values: Sequence[Any]) -> None:
        whole = scope.yielded
        if whole is not None and len(whole) + len(values) <= LONGEST_LIST:
            whole.extend(values)
        elif whole is not None:
            whole[:] = [Unknown()]

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        test = self.of(node.test, scope)
        if isinstance(test, Symbol):
            return symbols.chosen(test, self.of(node.body, scope), self.of(node.orelse, scope))
        is_true = truth(test)
        if is_true is not None:
            return self.of(node.body if is_true else node.orelse, scope)
        values = [self.of(each, scope) for each in (node.body, node.orelse)]
        given = [
            each for each in values if not (isinstance(each, Unknown) and each.is_from_outside)
        ]
        return given[0] if len(given) == 1 else Unknown()  # the command line counts as not given

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        decides = isinstance(node.op, ast.Or)
        left: list[Symbol] = []
        for each in node.values:
            value = self.of(each, scope)
            if isinstance(value, Symbol):
                left.append(value)
                continue
            is_true = truth(value)
            if is_true is None:
                return Unknown()
            if is_true is decides or (each is node.values[-1] and not left):
                return is_true if left else value
        return symbols.joined(node.op, left)

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.of(node.operand, scope)
        if isinstance(value, Symbol):
            is_not = isinstance(node.op, ast.Not)
            is_sign = isinstance(node.op, (ast.USub, ast.UAdd))
            whole = symbols.made(ast.UnaryOp(node.op, value.node), (value,))
            return whole if is_not or is_sign else Unknown()
        if isinstance(node.op, ast.Not):
            is_true = truth(value)
            return Unknown() if is_true is None else not is_true
        if isinstance(value, Array):
            return value
        plain = number(value)
        if plain is None or not isinstance(node.op, (ast.USub, ast.UAdd)):
            return Unknown()
        return -plain if isinstance(node.op, ast.USub) else plain

    def _binop(self, node: ast.BinOp, scope: Scope) -> Any:
        return self.combined(self.of(node.left, scope), node.op, self.of(node.right, scope))

    def combined(self, left: Any, op: ast.operator, right: Any) -> Any:
        """`left op right`."""
        left, right = self.plain_text(left), self.plain_text(right)
        for each in (left, right):
            if isinstance(each, Unknown) and each.error is not None:
                return each
        if isinstance(left, Symbol) or isinstance(right, Symbol):
            return symbols.combined(left, op, right)
        if isinstance(left, str) and isinstance(op, ast.Mod):
            return texts.from_percent(left, right)
        if isinstance(left, FilePath) and isinstance(op, ast.Div):
            other = right.text if isinstance(right, FilePath) else right
            return FilePath(os.path.join(left.text, other)) if isinstance(other, str) else Unknown()
        is_array = isinstance(left, Array) or isinstance(right, Array)
        if is_array and isinstance(op, ast.Add) and _is_list(left) and _is_list(right):
            return arrays.strung(left, right)
        if is_array:
            kind = type(op)
            is_linear = kind in (ast.Add, ast.Sub, ast.Mult) or (
                kind is ast.Div and isinstance(left, Array)
            )
            return arrays.combined(left, lambda a, b: arithmetic(kind, a, b), right, is_linear)
        if isinstance(left, dict) and isinstance(right, dict) and isinstance(op, ast.BitOr):
            return {**left, **right}
        if isinstance(op, (ast.Add, ast.Mult)) and (
            isinstance(left, (str, list, tuple, range)) or isinstance(right, (str, list, tuple))
        ):
            return strung(left, op, right)
        first, second = number(left), number(right)
        if first is None or second is None:
            return Unknown()
        value = arithmetic(type(op), first, second)
        kinds = [each.dtype for each in (left, right) if isinstance(each, Scalar)]
        is_kept = len(set(kinds)) == 1 and isinstance(value, int) == isinstance(first, int)
        return Scalar(kinds[0], value) if is_kept and not isinstance(value, Unknown) else value

    def _compare(self, node: ast.Compare, scope: Scope) -> Any:
        parts = [self.of(each, scope) for each in (node.left, *node.comparators)]
        if any(isinstance(each, Symbol) for each in parts):
            return symbols.compared(parts, node.ops)
        result: Any = True
        for left, op, right in zip(parts, node.ops, parts[1:], strict=False):
            result = compared(left, op, right)
            if result is not True:
                return result
        return result

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        value, name = self.of(node.value, scope), node.attr
        match value:
            case Named(path=path):
                return value.last if name == "__name__" else Named(f"{path}.{name}")
            case Array():
                return arrays.attribute(value, name)
            case FilePath(text=text) if name == "parent":
                return FilePath(os.path.dirname(text) or ("." if text != "." else ".."))
            case FilePath(text=text) if name in ("name", "stem"):
                last = os.path.basename(text)
                return last if name == "name" else os.path.splitext(last)[0]
            case Object() | Class():
                found = objects.attribute(value, name)
                is_property = isinstance(found, Function) and found.decorators & objects.PROPERTIES
                return self._interpreter.call(found, [], {}) if is_property else found
        return Unknown()

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        whole = self.of(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(whole, node.slice, scope)
        index = self.of(node.slice, scope)
        index = index.value if isinstance(index, Scalar) else index
        if isinstance(whole, Parameters):
            return whole.item(index)
        if isinstance(whole, dict):
            return whole.get(index, Unknown()) if is_key(index) else Unknown()
        if isinstance(whole, Array):
            whole = whole.values
        if isinstance(whole, (list, tuple, range, str)) and isinstance(index, int):
            with suppress(IndexError):
                return whole[index]
        return Unknown()

    def _sliced(self, whole: Any, given: ast.Slice, scope: Scope) -> Any:
        ends = [
            None if each is None else self.of(each, scope)
            for each in (given.lower, given.upper, given.step)
        ]
        parts = whole if isinstance(whole, str) else items(whole)
        if parts is None or not all(each is None or type(each) is int for each in ends):
            return Unknown()
        with suppress(ValueError):
            return parts[slice(*ends)]
        return Unknown()

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Any:
        values: list[Any] = []
        for inner in self._each(node.generators, Scope(parent=scope)):
            if inner is None or len(values) >= LONGEST_LIST:
                return Unknown()
            values.append(self.of(node.elt, inner))
        return values

    _setcomp = _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Any:
        table: dict[Any, Any] = {}
        for inner in self._each(node.generators, Scope(parent=scope)):
            key = None if inner is None else self.of(node.key, inner)
            if inner is None or not is_key(key) or len(table) >= LONGEST_LIST:
                return Unknown()
            table[key] = self.of(node.value, inner)
        return table

    def _each(
        self, generators: Sequence[ast.comprehension], scope: Scope
    ) -> Iterator[Scope | None]:
        """The scope with each value of a comprehension's names; None where they are not known."""
        if not generators:
            yield scope
            return
        first = generators[0]
        parts = turns(self.of(first.iter, scope))
        if parts is None or len(parts) > LONGEST_LIST:
            yield None
            return
        for part in parts:
            self._interpreter.assign(first.target, part, scope)
            wanted = [truth(self.of(condition, scope)) for condition in first.ifs]
            if None in wanted:
                yield None
                return
            if all(wanted):
                yield from self._each(generators[1:], scope)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        words: dict[str, Any] = {}
        is_partial = False
        given = self._row(node.args, scope, list)
        for word in node.keywords:
            value = self.of(word.value, scope)
            if word.arg is not None:
                words[word.arg] = value
            elif isinstance(value, Parameters):
                words |= value.table()
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                words |= value
            else:
                is_partial = True
        owner = None
        if isinstance(node.func, ast.Attribute):
            owner = self.of(node.func.value, scope)
        function = self.of(node.func, scope)
        if isinstance(function, Partial):
            function, more, words = objects.unwrapped(function, [], words)
            given = [*more, *given] if isinstance(given, list) else given
        if isinstance(function, Named) and function.last == "tune_kernel":
            self._interpreter.tuned(node, given, words, is_partial)
            return Unknown()
        if isinstance(function, Named) and function.path == "super":
            return objects.parent_of(scope)
        if isinstance(function, Named) and function.last.endswith("Constraint"):
            parts = tuple(given) if isinstance(given, list) else ()
            return Constraint(function.last, (*parts, *words.values()), node.lineno)
        if not isinstance(given, list) or is_partial:
            return Unknown()
        if isinstance(function, (Function, Class)):
            return self._interpreter.call(function, given, words)
        given = [self.plain_text(each) for each in given] if _reads(function) else given
        if isinstance(function, Named):
            return self.applied(function, given, words)
        if isinstance(node.func, ast.Attribute):
            return method(self.plain_text(owner), node.func.attr, given, words)
        return Unknown()

    def applied(self, function: Named, given: list[Any], words: dict[str, Any]) -> Any:
        """A function that is built in or imported; map and filter call one of the script."""
        parts = items(given[1]) if len(given) == 2 else None
        if function.path in ("map", "filter") and parts is not None:
            results = [self._interpreter.apply(given[0], [part]) for part in parts[:LONGEST_LIST]]
            if function.path == "map":
                return results
            wanted = [truth(each) for each in results]
            if None in wanted:
                return Unknown()
            return [part for part, is_wanted in zip(parts, wanted, strict=False) if is_wanted]
        if function.last == "partial" and given:
            return Partial(given[0], tuple(given[1:]), words)
        if function.last in ("field", "Field"):  # of a dataclass
            factory = words.get("default_factory")
            return words.get("default", self._interpreter.apply(factory, []))
        return builtin(function, given, words)


def _yields(nodes: Sequence[ast.AST]) -> bool:
    """Whether a function's own statements have a `yield`, and not only functions inside of it."""
    own = [node for node in nodes if not isinstance(node, (ast.FunctionDef, ast.Lambda))]
    return any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) or _yields(list(ast.iter_child_nodes(node)))
        for node in own
    )


def _is_list(value: Any) -> bool:
    """Whether a value is a list of which some numbers are not known, or may be added to one."""
    return value.is_list if isinstance(value, Array) else isinstance(value, (list, tuple))


def _reads(function: Any) -> bool:
    return not isinstance(function, Named) or function.last == "str"
