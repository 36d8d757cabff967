"""An interpreter of a subset of Python for Kernel Tuner scripts, which are never run.

It follows a script's statements over its own values and stops at the calls of `tune_kernel`, whose
arguments it keeps. It imports nothing, opens no file but through `read`, and is bounded: after
MOST_STEPS each loop's body is read once and no further function.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenfast.app.cli.script.expressions import Expressions
from greenfast.app.cli.script.objects import DEFINED_IN, attribute, fill_fields, unwrapped
from greenfast.app.cli.script.operations import compared, truth
from greenfast.app.cli.script.symbols import chosen
from greenfast.app.cli.script.values import (
    Array,
    Class,
    Function,
    Named,
    Object,
    Scalar,
    Scope,
    Symbol,
    Unknown,
    copied,
    is_key,
    is_plain,
    items,
    turns,
)

MOST_STEPS = 200_000
MOST_TURNS = 4096  # of one loop
DEEPEST_CALL = 20
POSITIONS = (
    "kernel_name", "kernel_source", "problem_size", "arguments", "tune_params", "grid_div_x",
    "grid_div_y", "grid_div_z", "restrictions", "answer",
)  # fmt: skip


@dataclass(frozen=True)
class TuningCall:
    """A call of `tune_kernel`: its arguments by their names there."""

    node: ast.Call
    given: Mapping[str, Any]
    is_partial: bool  # it passes a dictionary with `**` that is not known


@dataclass(frozen=True, eq=False)
class _Returned:
    value: Any


_RAISED, _BROKEN, _CONTINUED = (_Returned(Unknown()) for _ in range(3))
_SIGNALS = (_RAISED, _BROKEN, _CONTINUED)
_Result = _Returned | None
_Pending = ast.stmt | tuple[ast.expr, Any]  # a statement, or a value for a target


class Interpreter:
    """One script's reading: `calls` in their order, and what names were assigned last."""

    def __init__(self, tree: ast.Module, file: str, read: Callable[[str], Any]) -> None:
        self.read = read
        self.calls: list[TuningCall] = []
        self.assigned: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.nodes: dict[str, ast.expr] = {}  # what was assigned, as it is written
        self._tree = tree
        self._steps = 0
        self._depth = 0
        self._called: set[ast.AST] = set()
        self._classes: dict[ast.AST, Class] = {}  # by their methods
        self._module = Scope({"__file__": file, "__name__": "__main__"})
        self._expressions = Expressions(self)

    def run(self) -> None:
        """Read the module, and functions that nothing calls but that tune a kernel."""
        self._block(self._tree.body, self._module)
        functions = [node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)]
        functions.sort(key=lambda node: node.lineno)
        tuning = [node for node in functions if any(map(_is_tuning, ast.walk(node)))]
        for node in tuning if self.calls or tuning else functions:
            if node not in self._called:
                of = self._classes.get(node)
                owner = None if of is None else self.call(of, [], {})
                function = self._expressions.function(node, of.scope if of else self._module)
                self.call(replace(function, owner=owner), [], {})

    def step(self, count: int = 1) -> bool:
        """Count steps; False once there are too many."""
        self._steps += count
        return not self.is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether the script has more steps than are followed."""
        return self._steps > MOST_STEPS

    def begin(self) -> None:
        """Forget the steps before, which were those of another question."""
        self._steps = 0

    def _copied(self, value: Any) -> Any:
        seen: dict[int, Any] = {}
        copy = copied(value, seen)
        self.step(sum(map(len, seen.values())) // 4)
        return copy

    def tuned(self, node: ast.Call, given: Any, words: Mapping[str, Any], is_partial: bool) -> None:
        """Keep a call of tune_kernel, as its arguments are now."""
        places = given if isinstance(given, list) else []
        whole = {**dict(zip(POSITIONS, places, strict=False)), **words}
        if "tune_params" in self.assigned:  # of a call that a person has shortened
            whole.setdefault("tune_params", self.assigned["tune_params"])
        kept = self._copied(whole)
        if len(self.calls) < MOST_TURNS:
            self.calls.append(TuningCall(node, kept, is_partial or not isinstance(given, list)))

    def apply(self, function: Any, given: Sequence[Any]) -> Any:
        """The result of a function on values."""
        function, places, words = unwrapped(function, given, {})
        if isinstance(function, (Function, Class)):
            return self.call(function, places, words)
        if not isinstance(function, Named):
            return Unknown()
        return self._expressions.applied(function, places, words)

    def call(
        self, function: Function | Class, given: Sequence[Any], words: Mapping[str, Any]
    ) -> Any:
        """The result of a function of the script, or an object of a class."""
        if self._depth >= DEEPEST_CALL or not self.step():
            return Unknown()
        if isinstance(function, Class):
            made = Object(Scope(), function)
            begin = attribute(made, "__init__")
            if isinstance(begin, Function):
                self.call(begin, given, words)
            else:
                fill_fields(made, function, given, words)
            return made
        self._called.add(function.node)
        scope = Scope(parent=function.scope)
        self._bind(function, given, words, scope)
        if function.is_generator:
            scope.yielded = []
        self._depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self._expressions.of(function.node.body, scope)
            result = self._block(function.node.body, scope)
        finally:
            self._depth -= 1
        if scope.is_returned_perhaps or result in _SIGNALS:
            return Unknown()
        if scope.yielded is not None:
            return scope.yielded
        return None if result is None else result.value

    def _bind(
        self, function: Function, given: Sequence[Any], words: Mapping[str, Any], scope: Scope
    ) -> None:
        """The parameters of a function with their values; Unknown where there is none.

        What only the command line tells has its default.
        """
        arguments = function.node.args
        parameters = [*arguments.posonlyargs, *arguments.args]
        places = [*([function.owner] if function.owner is not None else []), *given]
        for place, each in enumerate([*parameters, *arguments.kwonlyargs]):
            name = each.arg
            value = function.defaults.get(name, Unknown(function.node.lineno, name))
            if place < min(len(places), len(parameters)):
                value = _unless_outside(places[place], value)
            elif name in words:
                value = _unless_outside(words[name], value)
            scope.names[name] = value
        if (of := self._classes.get(function.node)) is not None:
            scope.names[DEFINED_IN] = of
        if arguments.vararg is not None:
            scope.names[arguments.vararg.arg] = tuple(places[len(parameters) :])
        if arguments.kwarg is not None:
            known = {each.arg for each in [*parameters, *arguments.kwonlyargs]}
            scope.names[arguments.kwarg.arg] = {
                name: value for name, value in words.items() if name not in known
            }

    def _block(self, statements: Sequence[_Pending], scope: Scope) -> _Result:
        """Statements one after the other; the branches and loops that are decided are unfolded."""
        pending = deque(statements)
        while pending:
            statement = pending.popleft()
            if isinstance(statement, tuple):
                self.assign(*statement, scope)
                continue
            is_true = None
            if isinstance(statement, ast.If):
                test = self._expressions.of(statement.test, scope)
                if isinstance(test, Symbol) and not scope.nested and scope.yielded is None:
                    return self._either(test, statement, list(pending), scope)
                is_true = truth(test)
            unfolded = self._unfolded(statement, is_true, scope)
            if unfolded is not None:
                pending.extendleft(reversed(unfolded))
                continue
            result = self._statement(statement, scope)
            if result is not None:
                return result
        return None

    def _unfolded(
        self, node: ast.stmt, is_true: bool | None, scope: Scope
    ) -> Sequence[_Pending] | None:
        """The statements that a statement stands for; None where it has to be taken as a whole."""
        match node:
            case ast.If(body=body, orelse=orelse) if is_true is not None:
                return body if is_true else orelse
            case ast.With(items=opened, body=body):
                named: list[_Pending] = []
                for each in opened:
                    value = self._expressions.of(each.context_expr, scope)
                    if each.optional_vars is not None:
                        named.append((each.optional_vars, value))
                return [*named, *body]
            case ast.Match(subject=subject, cases=cases):
                return self._chosen_case(self._expressions.of(subject, scope), cases, scope)
            case ast.Try(body=body, orelse=orelse, finalbody=final):
                return [*body, *orelse, *final]
            case ast.For(target=target, iter=values, body=body) if not _leaves(body):
                parts = self._turns(target, self._expressions.of(values, scope))
                unfolded: list[_Pending] = []
                for part in parts:
                    unfolded += [(target, part), *body]
                return unfolded
        return None

    def _chosen_case(
        self, subject: Any, cases: Sequence[ast.match_case], scope: Scope
    ) -> Sequence[_Pending] | None:
        """The statements of the case that a plain value takes; None where that is not known."""
        for case in cases:
            patterns = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [
                case.pattern
            ]  # fmt: skip
            for pattern in patterns:
                is_rest = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
                value = True if is_rest else Unknown()
                if isinstance(pattern, ast.MatchValue):
                    other = self._expressions.of(pattern.value, scope)
                    value = compared(subject, ast.Eq(), other)
                if case.guard is not None or not isinstance(value, bool):
                    return None
                if value:
                    named = pattern.name if isinstance(pattern, ast.MatchAs) else None
                    target = ast.Name(named or "_", ast.Store(), lineno=pattern.lineno)
                    return [(target, subject), *case.body]
        return []

    def _turns(self, target: ast.expr, values: Any) -> Sequence[Any]:
        """The values of a loop's name; one that is not known where there are none or too many."""
        parts = turns(values)
        if parts is None or len(parts) > MOST_TURNS or not self.step(len(parts)):
            return [Unknown(target.lineno, target)]
        return parts

    def _either(
        self, test: Symbol, choice: ast.If, rest: Sequence[_Pending], scope: Scope
    ) -> _Result:
        """The result of a function that goes one of two ways by a tuned parameter."""
        results = []
        for body in (choice.body, choice.orelse):
            if not self.step(len(rest)):
                return _Returned(Unknown())
            inner = Scope(self._copied(scope.names), scope.parent)
            result = self._block([*body, *rest], inner)
            is_known = result not in _SIGNALS and not inner.is_returned_perhaps
            results.append((None if result is None else result.value) if is_known else Unknown())
        return _Returned(chosen(test, *results))

    def _undecided(self, choice: ast.If, scope: Scope) -> _Result:
        """Both branches of an `if` that only running the script would decide."""
        if self.is_exhausted:
            return self._block(choice.body, scope) or self._block(choice.orelse, scope)
        before = self._copied(scope.names)
        scope.nested += 1
        count = len(scope.yielded or ())
        first = self._block(choice.body, scope)
        after_first, scope.names = scope.names, before
        second = self._block(choice.orelse, scope)
        scope.nested -= 1
        if scope.yielded is not None and len(scope.yielded) > count:
            scope.yielded[count:] = [Unknown(choice.lineno)]
        if first is None and second is None:
            scope.names = self._merged(after_first, scope.names)
        elif first is None:
            scope.names = after_first
        if first is not None and second is not None:
            ends = [each for each in (first, second) if each is not _RAISED]
            return ends[0] if len(ends) == 1 or first is second else _Returned(Unknown())
        ended = first or second
        scope.is_returned_perhaps |= ended is not None and ended is not _RAISED
        return None

    def _merged(self, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        """Names after either of two branches: a value that is known wins over one that is not."""
        merged: dict[str, Any] = {}
        for name in {**first, **second}:
            one, other = first.get(name, Unknown()), second.get(name, Unknown())
            if isinstance(one, Unknown) or isinstance(other, Unknown):
                merged[name] = other if isinstance(one, Unknown) else one
            else:
                merged[name] = one if self._is_same(one, other) else Unknown(0, name)
        return merged

    def _is_same(self, first: Any, second: Any) -> bool:
        if not self.step():
            return False
        if first is second:
            return True
        if type(first) is not type(second):
            return False
        if is_plain(first) or isinstance(first, (Named, Scalar)):
            return bool(first == second)
        if isinstance(first, Array):
            return (first.shape, first.dtype, first.is_empty) == (
                second.shape, second.dtype, second.is_empty,
            )  # fmt: skip
        if isinstance(first, dict) and list(first) != list(second):
            return False
        parts = (list(first.values()), list(second.values())) if isinstance(first, dict) else (
            items(first), items(second),
        )  # fmt: skip
        return (
            parts[0] is not None
            and parts[1] is not None
            and len(parts[0]) == len(parts[1])
            and all(map(self._is_same, parts[0], parts[1]))
        )

    def _statement(self, node: ast.stmt, scope: Scope) -> _Result:
        """One statement that stands for itself."""
        of = self._expressions.of
        match node:
            case ast.Assign(targets=targets, value=value):
                result = of(value, scope)
                for target in targets:
                    self.assign(target, result, scope)
                    if isinstance(target, ast.Name):
                        self.nodes[target.id] = value
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, of(value, scope), scope)
            case ast.AnnAssign(target=ast.Name(id=name)):
                scope.names.setdefault(name, Unknown(node.lineno, name))
            case ast.AugAssign(target=target, op=op, value=value):
                self._changed(target, op, of(value, scope), scope)
            case ast.Expr(value=value):
                of(value, scope)
            case ast.Return(value=value):
                return _Returned(None if value is None else of(value, scope))
            case ast.Raise():
                return _RAISED
            case ast.Break():
                return _BROKEN
            case ast.Continue():
                return _CONTINUED
            case ast.If():
                return self._undecided(node, scope)
            case ast.For(target=target, iter=values, body=body):
                return self._for(target, of(values, scope), body, scope)
            case ast.While(test=test, body=body):
                return self._while(test, body, scope)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._deleted(target, scope)
            case _:
                self._declared(node, scope)
        return None

    def _declared(self, node: ast.stmt, scope: Scope) -> None:
        """A function, a class or an import."""
        match node:
            case ast.FunctionDef(name=name):
                scope.names[name] = self._expressions.function(node, scope)
            case ast.ClassDef(name=name, bases=bases, body=body):
                inner = Scope(parent=scope)
                self._block(body, inner)
                before = [self._expressions.of(each, scope) for each in bases]
                known = tuple(each for each in before if isinstance(each, Class))
                scope.names[name] = made = Class(inner, known)
                self._classes |= {each: made for each in body if isinstance(each, ast.FunctionDef)}
            case ast.Import(names=names):
                for each in names:
                    word = each.asname or each.name.partition(".")[0]
                    scope.names[word] = Named(each.name if each.asname else word)
            case ast.ImportFrom(module=module, names=names):
                for each in names:
                    scope.names[each.asname or each.name] = Named(f"{module or ''}.{each.name}")
            case ast.Global(names=words):
                scope.globals.update(words)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """A value to a name, an item, an attribute, or to several of them."""
        match target:
            case ast.Name(id=name):
                home = scope.outermost() if name in scope.globals else scope
                home.names[name] = value
                self.assigned[name] = value
                self.lines[name] = target.lineno
            case ast.Subscript(value=whole, slice=index):
                table, key = (self._expressions.of(each, scope) for each in (whole, index))
                key = key.value if isinstance(key, Scalar) else key
                if isinstance(table, dict):
                    table[key if is_key(key) else ""] = value if is_key(key) else Unknown()
                elif (
                    isinstance(table, list) and type(key) is int and -len(table) <= key < len(table)
                ):
                    table[key] = value
                elif isinstance(table, Array) and isinstance(whole, ast.Name):
                    scope.names[whole.id] = replace(table, is_empty=False, values=None, ends=None)
            case ast.Attribute(value=whole, attr=name):
                if isinstance(owner := self._expressions.of(whole, scope), Object):
                    owner.scope.names[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                parts = items(value)
                is_known = parts is not None and len(parts) == len(targets)
                for place, each in enumerate(targets):
                    self.assign(each, parts[place] if is_known and parts else Unknown(), scope)

    def _changed(self, target: ast.expr, op: ast.operator, value: Any, scope: Scope) -> None:
        """`target op= value`; a list is changed in its place."""
        before = self._expressions.of(target, scope)
        after = self._expressions.combined(before, op, value)
        if isinstance(before, list) and isinstance(op, ast.Add):
            before[:] = after if isinstance(after, list) else [*before, Unknown(target.lineno)]
        else:
            self.assign(target, after, scope)

    def _deleted(self, target: ast.expr, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.names.pop(name, None)
            case ast.Subscript(value=whole, slice=index):
                table, key = (self._expressions.of(each, scope) for each in (whole, index))
                if isinstance(table, dict) and is_plain(key):
                    table.pop(key, None)

    def _for(
        self, target: ast.expr, values: Any, body: Sequence[ast.stmt], scope: Scope
    ) -> _Result:
        """A loop that may be left."""
        for part in self._turns(target, values):
            self.assign(target, part, scope)
            result = self._turn(body, scope)
            if result is not None and result is not _CONTINUED:
                return None if result is _BROKEN else result
        return None

    def _while(self, test: ast.expr, body: Sequence[ast.stmt], scope: Scope) -> _Result:
        for _ in range(MOST_TURNS):
            is_true = truth(self._expressions.of(test, scope))
            if is_true is False:
                return None
            result = self._turn(body, scope)
            if result is not None and result is not _CONTINUED:
                return None if result is _BROKEN else result
            if is_true is None or not self.step():
                return None
        return None

    def _turn(self, body: Sequence[ast.stmt], scope: Scope) -> _Result:
        scope.nested += 1
        result = self._block(body, scope)
        scope.nested -= 1
        return result


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop's body has a break or continue."""
    kinds = (ast.Break, ast.Continue)
    return any(isinstance(node, kinds) for each in body for node in ast.walk(each))


def _is_tuning(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", "")) == "tune_kernel"


def _unless_outside(value: Any, default: Any) -> Any:
    """The value; the default in place of one that only the command line tells."""
    return default if isinstance(value, Unknown) and value.is_from_outside else value
