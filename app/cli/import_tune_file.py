"""The space and the launch of a tuning script in Kernel Tuner's style.

Parameters, restrictions, the problem's size, `grid_div_x`, the names of a block's sizes and the
shared memory are those of a call of `tune_kernel`, or of names as Kernel Tuner has them. Anything
that only running the script would tell is refused with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from greenfast.app.cli.import_restrictions import AS_TEXT, Space, plain_lists, restriction_texts
from greenfast.app.cli.import_script import Script
from greenfast.app.cli.import_source import (
    MOST_VALUES,
    ProblemSize,
    Tuning,
    checked_restrictions,
    checked_values,
)
from greenfast.app.cli.script.interpreter import TuningCall
from greenfast.app.cli.script.objects import unwrapped
from greenfast.app.cli.script.restrictions import over_parameters
from greenfast.app.cli.script.symbols import symbol_text
from greenfast.app.cli.script.values import (
    Constraint,
    Function,
    Partial,
    Scalar,
    Symbol,
    Unknown,
    is_plain,
    items,
    number,
)
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import Value, expression
from greenfast.search.text import shortened, visible

_USUAL_NAMES = {"restrictions": ("restrictions", "restrict")}  # besides an argument's own
_SIZE_NAMES = ("problem_size",)  # no kernel's argument
_PROBLEM_SIZE_PLACE = 2  # among the arguments of tune_kernel


def read_tune_file(
    script: Script, entry: str | None = None, *, has_grid: bool = False, has_smem: bool = False
) -> Tuning:
    """Parameters, restrictions and the launch of a script, which is not run.

    With `has_grid` or `has_smem` the caller knows the grid or the shared memory, and the script's
    is not read. Errors: UsageError with the script's line.
    """
    given = _Given(script, script.call(entry))
    parameters = _parameters(given)
    names = tuple(parameters)
    tuning = Tuning(parameters, _restrictions(given, parameters))
    if not has_grid:
        divisors = tuple(_divisors(given, f"grid_div_{axis}", names) for axis in "xyz")
        sizes = _problem_size(given, names)
        tuning = replace(tuning, problem_size=sizes, grid_divisors=divisors)
    if not has_smem:
        tuning = replace(tuning, smem=_shared_memory(given, names))
    blocks = given.value("block_size_names")
    if blocks is None:
        return tuning
    return replace(tuning, block_names=_expressions(given, "block_size_names", blocks, names))


class _Given:
    """What a call passes, or what a script without a call assigns."""

    def __init__(self, script: Script, call: TuningCall | None) -> None:
        self.script, self.call = script, call

    def value(self, what: str) -> Any:
        """An argument's value; None where there is none."""
        call, read = self.call, self.script.read
        if call is not None and (what in call.given or not call.is_partial):
            return call.given.get(what)
        names = _USUAL_NAMES.get(what, (what,))
        return next((read.assigned[name] for name in names if name in read.assigned), None)

    def node(self, what: str) -> ast.expr | None:
        """An argument as the call writes it."""
        if self.call is None:
            return None
        for word in self.call.node.keywords:
            if word.arg == what:
                return word.value
        places = self.call.node.args
        is_size = what == "problem_size" and len(places) > _PROBLEM_SIZE_PLACE
        return places[_PROBLEM_SIZE_PLACE] if is_size else None

    def where(self, what: str, value: Any = None) -> str:
        """The file and line of a value, as near as it is known."""
        lines = self.script.read.lines
        names = [name for name in _USUAL_NAMES.get(what, (what,)) if name in lines]
        line = lines[names[0]] if names else 0
        if self.call is not None and not names:
            line = self.call.node.lineno
        if isinstance(value, Unknown) and value.line:
            line = value.line
        if isinstance(value, Partial):
            value = unwrapped(value, [], {})[0]
        if isinstance(value, Function):
            line = value.node.lineno
        if isinstance(value, Constraint):
            line = value.line
        return f"{self.script.file}:{line}" if line else self.script.file


def _parameters(given: _Given) -> dict[str, tuple[Value, ...]]:
    table = given.value("tune_params")
    if table is None or table == {}:
        raise UsageError(
            f"{given.script.file} assigns no tune_params",
            code="bad_tune_file",
            mend='write tune_params = {"block_size_x": [32, 64, 128]}',
        )
    if not isinstance(table, dict):
        raise _not_understood("tune_params", given.where("tune_params", table))
    return {
        _name(name, given): _values(name, values, given.where("tune_params", values))
        for name, values in table.items()
    }


def _name(name: Any, given: _Given) -> str:
    if not isinstance(name, str) or not name:
        raise _not_understood("a parameter's name", given.where("tune_params"))
    return name


def _values(name: str, value: Any, where: str) -> tuple[Value, ...]:
    """The values of a parameter; fractions are kept as texts, as a #define needs them."""
    parts = items(value)
    if parts is None:
        raise _not_understood("the values", where)
    if len(parts) > MOST_VALUES:
        raise UsageError(f"{where}: more than {MOST_VALUES} values", code="bad_tune")
    plain = list(map(_plain, parts))
    for each in plain:
        if isinstance(each, Unknown):
            text = repr(shortened(visible(each.text), 60)) if each.text else "the values"
            raise _not_understood(text, where)
        if not is_plain(each):
            raise _not_understood("the values", where)
    if any(isinstance(each, float) for each in plain):
        are_numbers = all(type(each) in (int, float) for each in plain)
        plain = [repr(each) for each in plain] if are_numbers else plain
    return checked_values(name, plain, where)


def _restrictions(given: _Given, parameters: Mapping[str, Sequence[Value]]) -> tuple[str, ...]:
    def place(value: Any) -> str:
        return given.where("restrictions", value)

    table = given.value("tune_params")
    values = {
        name: dict(zip(map(_plain, items(table[name]) or ()), kept, strict=False))
        for name, kept in parameters.items()
    }
    space = Space(given.script.read, values, place)
    texts = [*restriction_texts(space, given.value("restrictions"))]
    return checked_restrictions(texts, space.names, place(None))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Scalar) else value


def _divisors(given: _Given, what: str, names: Sequence[str]) -> tuple[str, ...] | None:
    value = given.value(what)
    return None if value is None else _expressions(given, what, value, names)


def _expressions(given: _Given, what: str, value: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Texts over the parameters: those of the script, and what its functions compute."""
    where = given.where(what, value)
    texts = [plain_lists(each) for each in _texts(given, what, value, names)]
    return checked_restrictions(texts, names, where)


def _texts(given: _Given, what: str, value: Any, names: Sequence[str]) -> Iterator[str]:
    parts = items(value)
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Function, Partial)):
        yield from _of_function(given, what, value, names)
    elif parts is not None and not isinstance(value, dict):
        for each in parts:
            yield from _texts(given, what, each, names)
    elif type(number(value)) is int:
        yield str(number(value))
    elif isinstance(value, Symbol):
        yield symbol_text(value)
    else:
        raise _not_understood(what, given.where(what, value))


def _of_function(
    given: _Given, what: str, function: Function | Partial, names: Sequence[str]
) -> Iterator[str]:
    result = over_parameters(given.script.read, function, names)
    where = given.where(what, function)
    text = symbol_text(result) if isinstance(result, Symbol) else None
    if result is True:
        return
    if text is None and number(result) is not None:
        text = str(number(result))
    try:
        expression(text or "", where)
    except SpecError as error:
        raise UsageError(
            f"{where}: a function is understood only where it is an expression over the parameters",
            code="bad_tune_file",
            mend=AS_TEXT,
        ) from error
    yield text or ""


def _problem_size(given: _Given, names: Sequence[str]) -> tuple[ProblemSize, ...]:
    """Along x, y and z; a name stays a name, since an argument may have it."""
    value = given.value("problem_size")
    if value is None:
        return ()
    node = given.node("problem_size")
    if isinstance(value, (Function, Partial)):
        value = over_parameters(given.script.read, value, names)
    parts = value if isinstance(value, str) else items(value)
    if isinstance(node, ast.Name) and (isinstance(value, (list, tuple)) or node.id in _SIZE_NAMES):
        node = given.script.read.nodes.get(node.id, node)
    nodes = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    sizes = [value] if parts is None or isinstance(value, str) else list(parts)
    return tuple(
        _size(each, nodes[axis] if axis < len(nodes) else None, given)
        for axis, each in enumerate(sizes[:3])
    )


def _size(value: Any, node: ast.expr | None, given: _Given) -> ProblemSize:
    name = node.id if isinstance(node, ast.Name) else ""
    if isinstance(value, Symbol):
        return ProblemSize(text=symbol_text(value))
    if isinstance(value, str):  # Kernel Tuner's way to name a parameter
        return ProblemSize(value) if value.isidentifier() else ProblemSize(text=value)
    size = number(value)
    if size is not None and not isinstance(size, bool) and size % 1 == 0:
        return ProblemSize(name, int(size))
    if name and isinstance(value, Unknown):
        return ProblemSize(name)
    shown = ast.unparse(node) if node is not None else "of the script"
    line = given.call.node.lineno if given.call is not None else 0
    where = given.where("problem_size", value) if isinstance(value, Unknown) else ""
    raise UsageError(
        f"{where or f'{given.script.file}:{line}'}: the problem's size "
        f"{shortened(visible(shown), 60)!r} cannot be read, because the file is not run",
        code="bad_tune_file",
        mend='give the grid, for example --grid "ceil_div(n, block_size_x)"',
    )


def _shared_memory(given: _Given, names: Sequence[str]) -> str:
    """Bytes of dynamic shared memory: `smem_args=dict(size=...)`."""
    table = given.value("smem_args") if given.call is not None else None
    if table is None or table == {}:
        return "0"
    size = table.get("size") if isinstance(table, dict) else None
    if isinstance(size, (str, Function, Partial, Symbol)) or type(number(size)) is int:
        (text,) = _expressions(given, "smem_args", size, names) or ("0",)
        return text
    raise UsageError(
        f"{given.where('smem_args', size)}: smem_args cannot be read, because the file is not run",
        code="bad_tune_file",
        mend='give --smem EXPR, for example --smem "4 * block_size_x"',
    )


def _not_understood(what: str, where: str) -> UsageError:
    mend = "write a literal list of values, range(...), or a list comprehension over a range"
    if what == "restrictions":
        mend = AS_TEXT
    return UsageError(
        f"{where}: {what} cannot be read, because the file is not run",
        code="bad_tune_file",
        mend=mend,
    )
