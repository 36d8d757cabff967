"""The restrictions of a tuning script, as expressions over its parameters.

A script gives them as texts, functions, constraints of python-constraint, and pairs of one of these
and the names of the parameters that it gets. What no expression says is listed point by point.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from greenfast.app.cli.script.interpreter import Interpreter
from greenfast.app.cli.script.restrictions import (
    by_points,
    over_parameters,
    over_these,
    these_by_points,
)
from greenfast.app.cli.script.symbols import symbol_text
from greenfast.app.cli.script.values import (
    Constraint,
    Function,
    Partial,
    Scope,
    Symbol,
    items,
    number,
)
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import Value, expression
from greenfast.search.text import shortened, visible

AS_TEXT = 'write a text, such as "block_size_x * block_size_y <= 1024"'
_CALLED = (Function, Partial)


@dataclass(frozen=True)
class Space:
    """The parameters that restrictions are about: values in the script, and as they are kept."""

    read: Interpreter
    values: Mapping[str, Mapping[Any, Value]]
    place: Callable[[Any], str]  # FILE:LINE of a value

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)

    def has_fractions(self, name: str) -> bool:
        """Whether the parameter's values are kept as texts, and an expression cannot compute."""
        return any(not isinstance(key, str) and isinstance(value, str)
                   for key, value in self.values[name].items())  # fmt: skip


def restriction_texts(space: Space, value: Any) -> Iterator[str]:
    """Expressions over the parameters; UsageError with the line of one that is not understood."""
    pair = _pair(space, value)
    if pair is not None and isinstance(pair[0], str):
        yield _of_text(space, pair[0])
    elif pair is not None:
        yield from _of_these(space, *pair)
    elif isinstance(value, Constraint):
        yield from _of_these(space, value, list(space.names))
    elif isinstance(value, str):
        yield _of_text(space, value)
    elif isinstance(value, _CALLED):
        result = over_parameters(space.read, value, space.names)
        yield from _computed(
            space, value, result, lambda: by_points(space.read, value, space.values)
        )
    elif isinstance(value, Symbol):
        yield plain_lists(symbol_text(value))
    elif value is not None and value is not True:
        parts = None if isinstance(value, dict) else items(value)
        if parts is None:
            raise UsageError(
                f"{space.place(value)}: restrictions cannot be read, because the file is not run",
                code="bad_tune_file",
                mend=AS_TEXT,
            )
        for part in parts:
            yield from restriction_texts(space, part)


def _pair(space: Space, value: Any) -> tuple[Any, list[str]] | None:
    """A restriction and the names of the parameters that it gets, else None."""
    if not isinstance(value, (tuple, list)) or len(value) not in (2, 3):
        return None
    names = items(value[1])
    is_text = isinstance(value[0], str) and isinstance(value[1], (list, tuple))
    is_first = is_text or isinstance(value[0], (*_CALLED, Constraint))
    if not is_first or isinstance(value[1], dict) or not names:
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    for name in names:
        if name not in space.values:
            raise UsageError(
                f"{space.place(value[0])}: a restriction is about {visible(name)!r}, which is not "
                "a parameter",
                code="bad_restriction",
                mend="known: " + ", ".join(space.names),
            )
    return value[0], list(names)


def _of_these(space: Space, restriction: Any, names: list[str]) -> Iterator[str]:
    result = over_these(space.read, restriction, names)

    def listed() -> str | None:
        return these_by_points(space.read, restriction, names, space.values)

    yield from _computed(space, restriction, result, listed)


def _computed(
    space: Space, function: Any, result: Any, listed: Callable[[], str | None]
) -> Iterator[str]:
    """What a function or constraint gives: an expression, or a list of points."""
    if result is True:
        return
    text = symbol_text(result) if isinstance(result, Symbol) else None
    if number(result) is not None:
        text = str(number(result))
    if text is None or not _is_understood(space, text):
        points = listed()
        if points is not None:
            yield from [points] * (points != "True")
            return
        _check_fractions(space, text or "", space.place(function))
    try:
        expression(text or "", "restriction")
    except SpecError as error:
        what = function.kind if isinstance(function, Constraint) else "a function"
        raise UsageError(
            f"{space.place(function)}: {what} is understood only where it is an expression over "
            "the parameters, or allows so few points that they can be listed",
            code="bad_tune_file",
            mend=AS_TEXT,
        ) from error
    yield text or ""


def _of_text(space: Space, given: str) -> str:
    """The text, or a list of points where it computes what an expression cannot."""
    text = plain_lists(given)
    if _is_understood(space, text):
        return text
    try:
        tree = ast.parse(text.strip(), mode="eval")
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & {*space.names}
        lambda_ = ast.parse(f"lambda {', '.join(sorted(used))}: ({text.strip()})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text  # refused where it is checked
    if not used or not isinstance(lambda_, ast.Lambda):
        return text
    points = by_points(space.read, Function(lambda_, Scope()), space.values)
    if points is None:
        _check_fractions(space, text, space.place(text))
    return points or text


def plain_lists(text: str) -> str:
    """The text with tuples in place of lists: `x in (1, 2)`."""
    if "[" not in text:
        return text
    try:
        tree = ast.parse(text, mode="eval")
        return ast.unparse(_Tuples().visit(tree))
    except (SyntaxError, ValueError, RecursionError):
        return text  # refused where it is checked


class _Tuples(ast.NodeTransformer):
    def visit_List(self, node: ast.List) -> ast.Tuple:
        return ast.Tuple(node.elts, ast.Load())


def _is_understood(space: Space, text: str) -> bool:
    try:
        names = expression(text, "restriction").names
    except SpecError:
        return False
    return not any(space.has_fractions(name) for name in names if name in space.values)


def _check_fractions(space: Space, text: str, where: str) -> None:
    """UsageError for an expression that computes with fractions, which are kept as texts."""
    try:
        names = expression(text, "restriction").names
    except SpecError:
        return  # refused for that
    for name in sorted(names & {*space.names}):
        if space.has_fractions(name):
            raise UsageError(
                f"{where}: the restriction {shortened(text, 120)!r} compares {name}, whose values "
                "are fractions, and has too many points to list them",
                code="bad_tune_file",
                mend="leave the restriction out, or give the parameter whole numbers, such as a "
                "number of halves",
            )
