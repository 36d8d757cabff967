"""Restrictions that a script computes, as expressions over the tuned parameters.

A function is followed once for all values. Where that gives no expression, it is computed for each
combination of the values that it reads, and the expression lists the combinations that it allows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations, product
from math import prod
from typing import Any

from greenfast.app.cli.script import symbols
from greenfast.app.cli.script.interpreter import Interpreter
from greenfast.app.cli.script.objects import unwrapped
from greenfast.app.cli.script.operations import truth
from greenfast.app.cli.script.values import (
    Constraint,
    Function,
    Parameters,
    Symbol,
    Unknown,
    items,
    number,
)
from greenfast.search.kernels.expressions import LONGEST_EXPRESSION

MOST_POINTS = 4096
MOST_ORDERED = 4  # parameters whose orders are all tried
_BOUNDS: dict[str, tuple[str, type[ast.cmpop]]] = {
    "MaxProdConstraint": ("prod", ast.LtE), "MinProdConstraint": ("prod", ast.GtE),
    "ExactProdConstraint": ("prod", ast.Eq), "MaxSumConstraint": ("sum", ast.LtE),
    "MinSumConstraint": ("sum", ast.GtE), "ExactSumConstraint": ("sum", ast.Eq),
}  # fmt: skip
_SETS: dict[str, tuple[type[ast.cmpop], type[ast.boolop]]] = {
    "InSetConstraint": (ast.In, ast.And), "NotInSetConstraint": (ast.NotIn, ast.And),
    "SomeInSetConstraint": (ast.In, ast.Or), "SomeNotInSetConstraint": (ast.NotIn, ast.Or),
}  # fmt: skip


def over_parameters(interpreter: Interpreter, function: Any, names: Sequence[str]) -> Any:
    """What a function gives for the tuned parameters: by name, or as one dictionary of them."""
    interpreter.begin()
    return _called(interpreter, function, Parameters({name: _symbol(name) for name in names}))


def over_these(interpreter: Interpreter, restriction: Any, names: Sequence[str]) -> Any:
    """What a function or constraint gives for the values of these parameters, in their order."""
    interpreter.begin()
    values = [_symbol(name) for name in names]
    if isinstance(restriction, Constraint):
        return _of_constraint(interpreter, restriction, values)
    return _in_order(interpreter, restriction, names, values)


def by_points(
    interpreter: Interpreter, function: Any, values: Mapping[str, Mapping[Any, Any]]
) -> str | None:
    """An expression that lists what a function allows; None for a long one.

    `values` has the script's values of each parameter, with those that the expression compares.
    """

    def allowed(point: Parameters) -> Any:
        return _called(interpreter, function, point)

    return _listed(interpreter, allowed, values)


def these_by_points(
    interpreter: Interpreter,
    restriction: Any,
    names: Sequence[str],
    values: Mapping[str, Mapping[Any, Any]],
) -> str | None:
    """The same of a function on the values of these parameters, in their order."""
    if isinstance(restriction, Constraint):
        if restriction.kind != "FunctionConstraint" or not restriction.given:
            return None
        restriction = restriction.given[0]

    def allowed(point: Parameters) -> Any:
        return _in_order(interpreter, restriction, names, [point.item(name) for name in names])

    return _listed(interpreter, allowed, values)


def _symbol(name: str) -> Symbol:
    return Symbol(ast.Name(name, ast.Load()))


def _called(interpreter: Interpreter, function: Any, values: Parameters) -> Any:
    """A function of parameters by their names, or of the dictionary of them all."""
    inner, given, words = unwrapped(function, [], {})
    if not isinstance(inner, Function):
        return Unknown()
    free = _free_arguments(inner, len(given), words)
    needed = [name for name in free if name not in inner.defaults]
    named = [name for name in free if name in values.known]
    if inner.node.args.kwarg is not None and set(needed) <= set(named):
        return interpreter.call(inner, given, words | values.table())
    if named and set(needed) <= set(named):
        return interpreter.call(inner, given, words | {name: values.item(name) for name in named})
    if len(needed or free) != 1:
        return Unknown()
    return interpreter.call(inner, given, words | {(needed or free)[0]: values})


def _free_arguments(function: Function, given: int, words: Mapping[str, Any]) -> list[str]:
    """The names of the arguments that a call has still to give."""
    arguments = function.node.args
    places = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    places = places[given + (function.owner is not None) :]
    return [name for name in [*places, *(each.arg for each in arguments.kwonlyargs)]
            if name not in words]  # fmt: skip


def _in_order(
    interpreter: Interpreter, function: Any, names: Sequence[str], values: Sequence[Any]
) -> Any:
    """A function of these parameters, by its own names if they are these, else in their order."""
    inner, given, words = unwrapped(function, [], {})
    if not isinstance(inner, Function):
        return Unknown()
    if set(_free_arguments(inner, len(given), words)) == set(names):
        return interpreter.call(inner, given, words | dict(zip(names, values, strict=True)))
    return interpreter.call(inner, [*given, *values], words)


def _of_constraint(interpreter: Interpreter, constraint: Constraint, values: list[Symbol]) -> Any:
    kind, given = constraint.kind, constraint.given
    if kind == "FunctionConstraint" and given:
        return interpreter.apply(given[0], values)
    if kind in _BOUNDS and given:
        return _bounded(kind, given, values)
    if kind in _SETS and len(given) == 1 and (parts := items(given[0])) is not None:
        test, join = _SETS[kind]
        return symbols.joined(
            join(), [symbols.compared([x, list(parts)], [test()]) for x in values]
        )
    if kind in ("AllDifferentConstraint", "AllEqualConstraint") and len(values) > 1:
        test = ast.NotEq if kind.startswith("AllDifferent") else ast.Eq
        pairs = [symbols.compared(pair, [test()]) for pair in combinations(values, 2)]
        return symbols.joined(ast.And(), pairs)
    return Unknown()


def _bounded(kind: str, given: Sequence[Any], values: list[Symbol]) -> Any:
    """A bound of a product, or of a sum that may have factors."""
    shape, test = _BOUNDS[kind]
    factors = items(given[1]) if len(given) > 1 and given[1] is not None else [1] * len(values)
    if factors is None or len(factors) != len(values) or number(given[0]) is None:
        return Unknown()
    terms = [
        value if number(factor) == 1 else symbols.combined(factor, ast.Mult(), value)
        for factor, value in zip(factors, values, strict=True)
    ]
    return symbols.compared([symbols.accumulated(shape, terms), given[0]], [test()])


def _listed(
    interpreter: Interpreter,
    allowed: Callable[[Parameters], Any],
    values: Mapping[str, Mapping[Any, Any]],
) -> str | None:
    """An expression of the points that are allowed, over the parameters that this depends on."""
    interpreter.begin()
    first = {name: next(iter(each)) for name, each in values.items()}
    names: list[str] = []
    while prod(len(values[name]) for name in names) <= MOST_POINTS:
        table: dict[tuple[Any, ...], bool] = {}
        read: set[str] = set()
        for point in product(*(values[name] for name in names)):
            whole = Parameters({**first, **dict(zip(names, point, strict=True))})
            is_allowed = truth(allowed(whole))
            if is_allowed is None or interpreter.is_exhausted:
                return None
            read |= whole.read
            kept = (values[name][value] for name, value in zip(names, point, strict=True))
            table[tuple(kept)] = is_allowed
        if not read <= values.keys():
            return None
        if read <= set(names):
            return _shortest(names, table)
        names = [name for name in values if name in read or name in names]
    return None


def _shortest(names: Sequence[str], table: Mapping[tuple[Any, ...], bool]) -> str | None:
    orders = list(permutations(range(len(names)))) if len(names) <= MOST_ORDERED else [()]
    texts = []
    for order in orders:
        places = order or range(len(names))
        turned = {tuple(point[place] for place in places): is_in for point, is_in in table.items()}
        texts.append(_choice([names[place] for place in places], turned))
    text = min(texts, key=len)
    return text if len(text) <= LONGEST_EXPRESSION else None


def _choice(names: Sequence[str], table: Mapping[tuple[Any, ...], bool]) -> str:
    """An expression that is true at the points of the table that are."""
    kinds = set(table.values())
    if len(kinds) == 1:
        return str(kinds.pop())
    rests: dict[Any, dict[tuple[Any, ...], bool]] = {}
    for point, is_in in table.items():
        rests.setdefault(point[0], {})[point[1:]] = is_in
    groups: dict[str, list[Any]] = {}
    for value, rest in rests.items():
        groups.setdefault(_choice(names[1:], rest), []).append(value)
    parts = []
    for rest_text, members in groups.items():
        if rest_text == "False":
            continue
        test = _membership(names[0], members, [value for value in rests if value not in members])
        rest_part = f"({rest_text})" if " or " in rest_text else rest_text
        parts.append(" and ".join(part for part in (test, rest_part) if part not in ("", "True")))
    return " or ".join(parts)


def _membership(name: str, members: Sequence[Any], others: Sequence[Any]) -> str:
    """That the parameter has one of the values; empty where it has no other."""
    if not others:
        return ""
    is_in = len(members) <= len(others)
    few = members if is_in else others
    if len(few) == 1:
        return f"{name} {'==' if is_in else '!='} {few[0]!r}"
    return f"{name} {'in' if is_in else 'not in'} {tuple(few)!r}"
