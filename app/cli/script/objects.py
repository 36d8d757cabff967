"""Objects and classes of a script, and functions that already have some of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from greenfast.app.cli.script.values import Class, Function, Object, Partial, Scope, Unknown

PROPERTIES = frozenset({"property", "cached_property"})
DEFINED_IN = "__class__"  # in the scope of a method that runs


def attribute(value: Object | Class, name: str) -> Any:
    """An attribute; a method has its object, or its class if it is a class method."""
    own = value.scope.names.get(name, ...) if isinstance(value, Object) else ...
    if own is not ...:
        return own
    of = value if isinstance(value, Class) else value.of
    found = ... if of is None else of.find(name)
    if not isinstance(found, Function):
        return Unknown() if found is ... else found
    if "staticmethod" in found.decorators:
        return found
    if "classmethod" in found.decorators:
        return replace(found, owner=of)
    return replace(found, owner=value) if isinstance(value, Object) else found


def parent_of(scope: Scope) -> Any:
    """`super()` in a method: the object, as one of the classes before the method's."""
    of = scope.find(DEFINED_IN)
    first = next(iter(scope.names.values()), None)
    if not isinstance(of, Class) or not isinstance(first, Object):
        return Unknown()
    return Object(first.scope, Class(Scope(), of.bases))


def fill_fields(made: Object, of: Class, given: Sequence[Any], words: Mapping[str, Any]) -> None:
    """The fields of an object whose class has no `__init__`: that of a dataclass or alike."""
    made.scope.names.update(dict(zip(_fields(of), given, strict=False)))
    made.scope.names.update(words)


def _fields(of: Class) -> dict[str, None]:
    names = {name: None for each in of.bases for name in _fields(each)}
    own = of.scope.names.items()
    return names | {name: None for name, value in own if not isinstance(value, Function)}


def unwrapped(
    function: Any, given: Sequence[Any], words: Mapping[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """A function with all arguments of a call, those of `functools.partial` among them."""
    while isinstance(function, Partial):
        given, words = [*function.given, *given], {**function.words, **words}
        function = function.function
    return function, list(given), dict(words)
