"""Reading what `greenfast import` is given: a CUDA text's entry, and tune parameters.

A Python file in Kernel Tuner's style is parsed and never run: literals, range() and list
comprehensions over ranges are understood, and anything else is refused with its line.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.search.errors import GreenfastError, SpecError, UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.expressions import Value, expression
from greenfast.search.text import shortened, visible

MOST_VALUES = 4096
NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,47}\Z", re.ASCII)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(
    r"__global__\b(?P<between>[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*)?)"
    r"\b(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)\s*\{"
)
C_TYPES = {
    "float": "float32",
    "int": "int32",
    "unsigned": "int32",
    "unsigned int": "int32",
    "int32_t": "int32",
    "long long": "int64",
    "int64_t": "int64",
    "size_t": "int64",
    "half": "fp16",
    "__half": "fp16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
}
_QUALIFIERS = re.compile(r"\b(?:const|__restrict__|__restrict|restrict|volatile)\b")


@dataclass(frozen=True)
class Declared:
    """A parameter of the entry, as the CUDA text declares it."""

    name: str
    dtype: str  # of C_TYPES; "" for another type
    is_pointer: bool
    is_const: bool


@dataclass(frozen=True)
class Entry:
    name: str
    parameters: tuple[Declared, ...]
    is_extern_c: bool


@dataclass(frozen=True)
class ImportedArgument:
    """--arg NAME:TYPE[SIZES]:ROLE, or NAME:TYPE=VALUE for a scalar."""

    name: str
    dtype: str
    shape: tuple[str, ...]  # numbers, or names of scalars
    role: str  # "input" | "output" | "scalar"
    value: int | float = 0

    @property
    def is_size(self) -> bool:
        """Whether the value may be the size of a tensor."""
        return self.role == "scalar" and self.dtype != "float32"


@dataclass(frozen=True)
class Tuning:
    """Parameters with their values, and restrictions over them."""

    parameters: Mapping[str, tuple[Value, ...]]
    restrictions: tuple[str, ...]


def read_cuda(path: Path) -> str:
    text = read_author_file(path, visible(path))
    for word in ("{% endraw", "{%- endraw", "{%endraw"):
        if word in text:
            raise UsageError(
                f"{visible(path)} holds {word!r}, which a template cannot hold", code="bad_source"
            )
    local = re.search(r'^\s*#\s*include\s+"(?!gf/)([^"]*)"', text, re.MULTILINE)
    if local:
        line = text[: local.start(1)].count("\n") + 1
        raise UsageError(
            f"{visible(path)}:{line}: it includes {visible(local[1])!r}, and a kernel is one file",
            code="local_include",
            mend="paste the included text in its place",
        )
    return text


def read_entry(text: str, wanted: str | None, file: str) -> Entry:
    """The entry of that name, or the only one."""
    bare = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    entries = {match["name"]: match for match in _ENTRY.finditer(bare)}
    if wanted is None and len(entries) != 1:
        raise UsageError(
            f"{file} has {len(entries)} __global__ functions"
            + (f": {', '.join(entries)}" if entries else ""),
            code="unknown_entry",
            mend="name one with --entry" if entries else "an entry is a __global__ function",
        )
    name = wanted or next(iter(entries))
    if name not in entries:
        raise UsageError(
            f"{file} has no __global__ function {visible(name)!r}",
            code="unknown_entry",
            mend="known: " + (", ".join(entries) or "none"),
        )
    match = entries[name]
    before = bare[: match.start()].rstrip()
    if before.endswith(">"):
        raise UsageError(
            f"{file}: {name} is a template of C++, which has no name to launch",
            code="bad_source",
            mend='write an extern "C" __global__ function that calls it',
        )
    texts = [part.strip() for part in match["parameters"].split(",") if part.strip()]
    return Entry(
        name,
        tuple(_declared(part, file) for part in texts if part != "void"),
        before.endswith('extern "C"') or 'extern "C" {' in before,
    )


def _declared(text: str, file: str) -> Declared:
    words = _QUALIFIERS.sub(" ", text)
    pointers = words.count("*")
    kind, _, name = words.replace("*", " ").strip().rpartition(" ")
    dtype = C_TYPES.get(" ".join(kind.split()), "")
    if pointers > 1 or "[" in name or not IDENTIFIER.match(name) or not kind:
        raise UsageError(
            f"{file}: the parameter {shortened(visible(text), 60)!r}; a launch passes pointers to "
            "tensors and numbers",
            code="bad_source",
        )
    return Declared(name, dtype, pointers == 1, bool(re.search(r"\bconst\b", text)))


def own_define(text: str, name: str) -> str | None:
    """The value that the text itself defines for a name."""
    match = re.search(rf"^\s*#\s*define\s+{name}\s+([^\s/]+)", text, re.MULTILINE)
    return match[1] if match else None


def parsed_tune(texts: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """--tune NAME=V1,V2,..."""
    parameters: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values:
            raise UsageError(
                f"--tune {visible(text)!r} is not NAME=VALUE,VALUE,...", code="bad_tune"
            )
        parameters[name] = checked_values(
            name, [_value(word.strip()) for word in values.split(",")], "--tune"
        )
    return parameters


def checked_values(name: str, values: Sequence[Any], where: str) -> tuple[Value, ...]:
    """The values of a parameter, of one type and without repetitions."""
    if not IDENTIFIER.match(name):
        raise UsageError(
            f"{where}: the name {shortened(visible(repr(name)), 60)}; a #define's name is letters, "
            "digits and _",
            code="bad_tune",
        )
    kinds = {type(value) for value in values}
    if not values or len(kinds) != 1 or not kinds <= {int, bool, str}:
        raise UsageError(
            f"{where}: {name} has the values {shortened(visible(list(values)), 60)}; all must be "
            "whole numbers, or all true or false, or all names",
            code="bad_tune",
        )
    if len(values) > MOST_VALUES:
        raise UsageError(
            f"{where}: {name} has {len(values)} values; at most {MOST_VALUES}", code="bad_tune"
        )
    if kinds == {str} and not all(re.fullmatch(r"[\w.+-]{1,64}", value) for value in values):
        raise UsageError(
            f"{where}: a text of {name} is not a name of letters, digits and _", code="bad_tune"
        )
    return tuple(dict.fromkeys(values))


def _value(text: str) -> Value:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def checked_restrictions(texts: Sequence[str], names: Sequence[str], where: str) -> tuple[str, ...]:
    """Restrictions as constraints; UsageError for one that is no expression over the names."""
    for text in texts:
        try:
            checked = expression(text, where)
        except SpecError as error:
            raise UsageError(error.message, code="bad_restriction", mend=error.mend) from error
        unknown = sorted(checked.names - set(names))
        if unknown:
            raise UsageError(
                f"{where}: {visible(text)!r} uses {unknown[0]!r}, which is no parameter",
                code="bad_restriction",
                mend="known: " + ", ".join(names),
            )
    return tuple(texts)


# ---- a Python file in Kernel Tuner's style ----


def read_tune_file(path: Path) -> Tuning:
    """`tune_params` and `restrictions` of a Python file, which is not run."""
    file = visible(path)
    try:
        tree = ast.parse(read_author_file(path, file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        place = f"{file}:{line}" if line else file
        raise UsageError(f"{place} is not valid Python", code="bad_tune_file") from error
    parameters: dict[str, tuple[Value, ...]] = {}
    restrictions: tuple[str, ...] = ()
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        target, where = node.targets[0], f"{file}:{node.lineno}"
        match target:
            case ast.Name(id="tune_params"):
                parameters = {
                    name: checked_values(name, values, where)
                    for name, values in _dictionary(node.value, where).items()
                }
            case ast.Subscript(
                value=ast.Name(id="tune_params"), slice=ast.Constant(value=str(name))
            ):
                parameters[name] = checked_values(name, _list(node.value, where), where)
            case ast.Name(id="restrictions" | "restrict"):
                restrictions = _texts(node.value, where)
    if not parameters:
        raise UsageError(
            f"{file} assigns no tune_params",
            code="bad_tune_file",
            mend='write tune_params = {"block_size_x": [32, 64, 128]}',
        )
    return Tuning(parameters, checked_restrictions(restrictions, tuple(parameters), file))


def _dictionary(node: ast.expr, where: str) -> dict[str, list[Any]]:
    match node:
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_text(key, where): _list(value, where) for key, value in pairs}
        case ast.Call(func=ast.Name(id="dict" | "OrderedDict"), args=[], keywords=words):
            return {str(word.arg): _list(word.value, where) for word in words}
        case ast.Call(func=ast.Name(id="dict" | "OrderedDict"), args=[inner], keywords=[]):
            return _dictionary(inner, where)
        case ast.List(elts=pairs) if all(isinstance(pair, ast.Tuple) for pair in pairs):
            return {
                _text(pair.elts[0], where): _list(pair.elts[1], where)
                for pair in pairs
                if isinstance(pair, ast.Tuple) and len(pair.elts) == 2
            }
    raise _not_understood("tune_params", where)


def _list(node: ast.expr, where: str) -> list[Any]:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_constant(item, {}, where) for item in items]
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            return _list(inner, where)
        case ast.Call(func=ast.Name(id="range"), args=bounds, keywords=[]) if 1 <= len(bounds) <= 3:
            return _range(bounds, where)
        case ast.ListComp(
            elt=item,
            generators=[ast.comprehension(target=ast.Name(id=name), iter=values, ifs=[])],
        ):
            return [_constant(item, {name: value}, where) for value in _list(values, where)]
    raise _not_understood("the values", where)


def _range(bounds: Sequence[ast.expr], where: str) -> list[int]:
    numbers = [_constant(bound, {}, where) for bound in bounds]
    if not all(type(number) is int for number in numbers) or (len(numbers) == 3 and not numbers[2]):
        raise _not_understood("the range", where)
    values = range(*numbers)
    if len(values) > MOST_VALUES:
        raise UsageError(f"{where}: more than {MOST_VALUES} values", code="bad_tune")
    return list(values)


def _constant(node: ast.expr, values: Mapping[str, Any], where: str) -> Any:
    """A literal, or arithmetic over the name of a comprehension."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, bool, str):
        return node.value
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
        return ast.Constant(self._values[node.id]) if node.id in self._values else node


def _texts(node: ast.expr, where: str) -> tuple[str, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple(_text(item, where) for item in node.elts)
    raise _not_understood("restrictions", where)


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
