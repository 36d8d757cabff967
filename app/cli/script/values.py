"""The values in a script that `greenfast import` reads: Python's, NumPy's by shape, and unknown."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from greenfast.search.errors import GreenfastError

LONGEST_TEXT = 2**20
LONGEST_LIST = 2**16
LARGEST_NUMBER = 2**64
LARGEST_SYMBOL = 400  # operations
PLAIN = (int, float, str, bool, type(None))
_OUTSIDE = frozenset({"argv", "environ", "getenv", "input"})


@dataclass(frozen=True)
class Unknown:
    """A value that only running the script would tell."""

    line: int = 0
    what: ast.AST | str = ""
    error: GreenfastError | None = None  # why greenfast does not look

    @property
    def text(self) -> str:
        """The expression as the script has it."""
        return self.what if isinstance(self.what, str) else ast.unparse(self.what)

    @property
    def is_from_outside(self) -> bool:
        """Whether the command line or the environment gives the value."""
        parts = ast.walk(self.what) if isinstance(self.what, ast.AST) else ()
        names = {getattr(part, "attr", getattr(part, "id", "")) for part in parts}
        return not names.isdisjoint(_OUTSIDE)


@dataclass(frozen=True)
class Named:
    """What another module holds, by its dotted name: `np.float32`, or a builtin function."""

    path: str

    @property
    def last(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Array:
    """An array of NumPy, CuPy or alike; `values` are known only of short ones."""

    shape: tuple[int, ...]
    dtype: str = "float64"
    is_empty: bool = False  # its content does not matter, or is zero
    values: Sequence[Any] | None = None
    ends: tuple[int | float, int | float] | None = None  # random numbers lie between them
    is_sorted: bool = False
    is_list: bool = False  # a list of unknown numbers


@dataclass(frozen=True)
class Scalar:
    """A number of one of NumPy's types."""

    dtype: str
    value: int | float


@dataclass(frozen=True)
class FilePath:
    """A path of pathlib."""

    text: str


@dataclass(frozen=True)
class OpenFile:
    path: str


@dataclass(frozen=True)
class FileText:
    """What is read from a file, which is opened only where the text matters."""

    path: str


@dataclass(frozen=True, eq=False)
class Symbol:
    """An expression over the tuned parameters."""

    node: ast.expr
    size: int = 1


@dataclass(frozen=True, eq=False)
class Parameters:
    """The dictionary that a restriction gets: Symbols, or the values of a point."""

    known: Mapping[str, Any]
    read: set[str] = field(default_factory=set)  # the names of those that were looked at

    def item(self, name: Any, default: Any = ...) -> Any:
        """The value of a parameter; a Symbol of an unknown name, which is refused later."""
        if not isinstance(name, str) or not name.isidentifier():
            return Unknown()
        self.read.add(name)
        unknown = Symbol(ast.Name(name, ast.Load())) if default is ... else default
        return self.known.get(name, unknown)

    def table(self) -> dict[str, Any]:
        self.read.update(self.known)
        return dict(self.known)


@dataclass(eq=False)
class Scope:
    """Names of a module, a function or an object."""

    names: dict[str, Any] = field(default_factory=dict)
    parent: Scope | None = None
    is_returned_perhaps: bool = False
    nested: int = 0  # loops and undecided branches around the current statement
    yielded: list[Any] | None = None  # of a generator
    globals: set[str] = field(default_factory=set)

    def find(self, name: str) -> Any:
        """The value, or ... where no scope has the name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return ...

    def outermost(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(frozen=True, eq=False)
class Function:
    node: ast.Lambda | ast.FunctionDef
    scope: Scope
    owner: Any = None  # of a method: the object or the class
    defaults: Mapping[str, Any] = field(default_factory=dict)
    is_generator: bool = False

    @property
    def decorators(self) -> set[str]:
        """The last words of its decorators' names."""
        nodes = getattr(self.node, "decorator_list", [])
        return {getattr(each, "attr", getattr(each, "id", "")) for each in nodes}


@dataclass(frozen=True, eq=False)
class Partial:
    """A function with some of its arguments, as `functools.partial` makes it."""

    function: Any
    given: tuple[Any, ...]
    words: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Constraint:
    """A constraint of python-constraint on the values of some parameters."""

    kind: str
    given: tuple[Any, ...]
    line: int


@dataclass(frozen=True, eq=False)
class Class:
    scope: Scope
    bases: tuple[Class, ...] = ()

    def find(self, name: str) -> Any:
        """What the class or a class before it has by this name, or ... for none."""
        places = (self.scope.names.get(name, ...), *(each.find(name) for each in self.bases))
        return next((found for found in places if found is not ...), ...)


@dataclass(frozen=True, eq=False)
class Object:
    scope: Scope
    of: Class | None = None


@dataclass(frozen=True)
class Pattern:
    """A text with $names, as `string.Template` holds it."""

    text: str


@dataclass(frozen=True, eq=False)
class Options:
    """A parser of command lines, which gives every option its default."""

    scope: Scope


def number(value: Any) -> int | float | None:
    """The number that a value is, or None."""
    if isinstance(value, Scalar):
        return value.value
    return value if isinstance(value, (int, float)) else None


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, true, false or None."""
    return isinstance(value, PLAIN)


def is_key(value: Any) -> bool:
    """Whether a value may be a dictionary's key: a plain one, NumPy's name of a type, a tuple."""
    return is_plain(value) or isinstance(value, Named) or (
        isinstance(value, tuple) and all(map(is_key, value))
    )  # fmt: skip


def bounded(value: Any) -> Any:
    """The value, or Unknown where it is too large to be kept."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return Unknown()
    if isinstance(value, (list, tuple, dict)) and len(value) > LONGEST_LIST:
        return Unknown()
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        return Unknown()
    return value


def items(value: Any) -> Sequence[Any] | None:
    """The items of a list, range, dictionary or short array; None for anything else."""
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, Array):
        return value.values
    return value if isinstance(value, (list, tuple, range)) else None


def turns(value: Any) -> Sequence[Any] | None:
    """What a loop over the value meets: its items, or the letters of a text."""
    return value if isinstance(value, str) and len(value) <= LONGEST_LIST else items(value)


def copied(value: Any, seen: dict[int, Any], depth: int = 4) -> Any:
    """The value, with lists and dictionaries copied that later statements may change.

    `seen` gets the copies, so that two names of one list have one copy.
    """
    if not isinstance(value, (list, dict)) or not depth:
        return value
    if id(value) not in seen:
        copy: Any = type(value)()
        seen[id(value)] = copy
        if isinstance(value, list):
            copy.extend(copied(each, seen, depth - 1) for each in value)
        else:
            copy.update({key: copied(each, seen, depth - 1) for key, each in value.items()})
    return seen[id(value)]
