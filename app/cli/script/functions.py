"""Functions and methods that the interpreter of scripts knows: builtins, math, os.path, pathlib."""

from __future__ import annotations

import ast
import math
import os.path
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from greenfast.app.cli.script import arrays, symbols, texts
from greenfast.app.cli.script.values import (
    LONGEST_LIST,
    Array,
    FilePath,
    FileText,
    Named,
    Object,
    OpenFile,
    Options,
    Parameters,
    Pattern,
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

_MATH: dict[str, Callable[..., Any]] = {
    "sqrt": math.sqrt, "log2": math.log2, "log": math.log, "log10": math.log10, "exp": math.exp,
    "ceil": math.ceil, "floor": math.floor, "round": round, "abs": abs, "gcd": math.gcd,
    "pow": lambda a, b: a**b if abs(a) < 2**32 and 0 <= b <= 62 else Unknown(),
}  # fmt: skip
_LISTS = ("list", "tuple", "sorted", "reversed", "set", "frozenset")
_TABLES = ("dict", "OrderedDict")
_PATHS = ("Path", "PurePath", "PosixPath")
_QUIET = ("print", "exit", "chdir", "append_to_path", "insert", "seed", "makedirs")


def builtin(name: Named, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """What a function that a script imports or that is built in gives; Unknown for others."""
    short = name.last
    for known in (_of_lists, _of_numbers, _of_paths):
        result = known(name, given, words)
        if result is not ...:
            return result
    if short == "str" and len(given) == 1:
        return texts.shown_in_text(given[0])
    if short == "dtype" and len(given) == 1:
        return given[0]
    if short == "dedent" and given and isinstance(given[0], str):
        return textwrap.dedent(given[0])
    if short == "Template" and len(given) == 1 and isinstance(given[0], str):
        return Pattern(given[0])
    if short == "ArgumentParser":
        return Options(Scope())
    if short in _QUIET:
        return None
    result = arrays.made(short, given, words)
    return Unknown() if result is ... else result


def _of_lists(name: Named, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    short = name.last
    if short in _TABLES:
        return _table(given, words)
    if short == "range" and 1 <= len(given) <= 3:
        numbers = [number(each) for each in given]
        if not all(type(each) is int for each in numbers) or (len(numbers) == 3 and not numbers[2]):
            return Unknown()
        return range(*(int(each) for each in numbers if each is not None))
    if short in _LISTS:
        return _listed(short, given)
    if short == "len" and len(given) == 1:
        if isinstance(given[0], Array):
            return given[0].shape[0] if given[0].shape else Unknown()
        parts = given[0] if isinstance(given[0], str) else items(given[0])
        return Unknown() if parts is None else len(parts)
    if short in ("all", "any") and len(given) == 1:
        parts = items(given[0])
        op = ast.And() if short == "all" else ast.Or()
        return Unknown() if parts is None else symbols.joined(op, parts)
    if short == "enumerate" and given and (parts := turns(given[0])) is not None:
        first = number(words.get("start", given[1] if len(given) > 1 else 0))
        pairs = enumerate(parts[: LONGEST_LIST + 1], int(first) if first is not None else 0)
        return bounded(list(pairs)) if first is not None else Unknown()
    if short == "zip" and given:
        columns = [turns(each) for each in given]
        if any(each is None for each in columns):
            return Unknown()
        whole = [each[:LONGEST_LIST] for each in columns if each is not None]
        return list(zip(*whole, strict=False))
    if name.path == "itertools.product" or (short == "product" and "repeat" not in words):
        return _product(given)
    return ...


def _table(given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """`dict(...)`."""
    if len(given) > 1 or isinstance(given[0] if given else None, Unknown):
        return Unknown()
    table: dict[Any, Any] = {}
    for pair in items(given[0]) or () if given and not isinstance(given[0], dict) else ():
        parts = items(pair)
        if parts is None or len(parts) != 2 or not is_key(parts[0]):
            return Unknown()
        table[parts[0]] = parts[1]
    return {**(given[0] if given and isinstance(given[0], dict) else table), **words}


def _listed(short: str, given: Sequence[Any]) -> Any:
    if not given:
        return [] if short != "tuple" else ()
    if isinstance(given[0], range):
        return given[0] if short != "reversed" else given[0][::-1]
    parts = turns(given[0])
    if parts is None and isinstance(given[0], Array) and short in ("list", "sorted"):
        is_sorted = short == "sorted" or given[0].is_sorted
        return replace(given[0], is_list=True, is_sorted=is_sorted)
    if parts is None or len(given) > 1:
        return Unknown()
    if short == "tuple":
        return tuple(parts)
    if short in ("sorted", "set", "frozenset"):
        parts = list(dict.fromkeys(parts)) if short != "sorted" and _plain(parts) else parts
        kinds = {isinstance(each, str) for each in parts}
        return sorted(parts) if _plain(parts) and len(kinds) <= 1 and None not in parts else (
            Unknown()
        )  # fmt: skip
    return list(parts)[::-1] if short == "reversed" else list(parts)


def _plain(parts: Sequence[Any]) -> bool:
    return all(map(is_plain, parts))


def _product(given: Sequence[Any]) -> Any:
    columns = [turns(each) or () for each in given]
    if math.prod(map(len, columns)) > LONGEST_LIST or not columns:
        return Unknown()
    return list(product(*columns))


def _of_numbers(name: Named, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    short = name.last
    if short in ("min", "max", "sum") and given:
        parts = given if len(given) > 1 else items(given[0])
        if parts is None or not parts or words:
            return Unknown()
        if any(isinstance(each, Symbol) for each in parts):
            is_sum = short == "sum"
            return symbols.accumulated("sum", parts) if is_sum else symbols.called(short, parts)
        numbers = [number(each) for each in parts]
        if any(each is None for each in numbers):
            return Unknown()
        whole = [each for each in numbers if each is not None]
        if short == "sum":
            return bounded(sum(whole))
        return bounded(min(whole) if short == "min" else max(whole))
    if short in ("int", "float", "bool") and len(given) == 1:
        return _converted(short, given[0])
    if short in _MATH and given and not any(isinstance(each, Array) for each in given):
        if isinstance(given[0], Symbol):
            return _of_symbol(short, given)
        try:
            return bounded(_MATH[short](*(number(each) for each in given)))
        except (ArithmeticError, TypeError, ValueError):
            return Unknown()
    return ...


def _of_symbol(short: str, given: Sequence[Any]) -> Any:
    if short == "abs":
        return symbols.called("abs", given)
    if not isinstance(given[0], Symbol) or len(given) > 1:
        return Unknown()
    return {"ceil": symbols.rounded_up, "floor": symbols.whole}.get(short, lambda _: Unknown())(
        given[0]
    )


def _converted(short: str, value: Any) -> Any:
    if isinstance(value, Symbol):
        return symbols.whole(value) if short == "int" else value
    plain = value if isinstance(value, str) and len(value) < 100 else number(value)
    if plain is None:
        return Unknown()
    try:
        return bounded({"int": int, "float": float, "bool": bool}[short](plain))
    except (ArithmeticError, ValueError):
        return Unknown()


def _of_paths(name: Named, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    short = name.last
    paths = [each.text if isinstance(each, FilePath) else each for each in given]
    is_of_texts = bool(paths) and all(isinstance(each, str) for each in paths)
    if short == "getcwd":
        return "."
    if short == "cwd" and name.path.split(".")[-2:-1] == ["Path"]:
        return FilePath(".")
    if short in _PATHS:
        return FilePath(os.path.join(*paths)) if is_of_texts else Unknown()
    if short == "open" and paths:
        return OpenFile(paths[0]) if isinstance(paths[0], str) else Unknown()
    if not is_of_texts or ".path." not in f".{name.path}" or short in ("exists", "isfile"):
        return ...
    if short == "join":
        return bounded(os.path.join(*paths))
    if short in ("abspath", "realpath", "normpath", "expanduser"):
        return os.path.normpath(paths[0])
    if short in ("dirname", "basename"):
        return getattr(os.path, short)(paths[0])
    return ...


def method(value: Any, name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """What a method of a text, list, dictionary, path or array gives."""
    match value:
        case Array():
            return arrays.method(value, name, given, words)
        case str():
            return _of_text(value, name, given, words)
        case list():
            return _of_list(value, name, given)
        case dict():
            return _of_table(value, name, given, words)
        case FilePath():
            return _of_path(value, name, given)
        case Options():
            return _of_options(value, name, given, words)
        case Pattern() if name in ("substitute", "safe_substitute"):
            table = given[0] if given and isinstance(given[0], dict) else {}
            return texts.from_dollars(value.text, {**table, **words})
        case OpenFile() if name == "read" and not given:
            return FileText(value.path)
        case Parameters() if name == "get" and given:
            return value.item(given[0], given[1] if len(given) > 1 else None)
        case Parameters():
            return _of_table(value.table(), name, given, words)
    return Unknown()


def _of_options(value: Options, name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """`add_argument` and `parse_args`, as for a command line without words."""
    if name == "parse_args":
        return Object(value.scope)
    longest = max((each for each in given if isinstance(each, str)), key=len, default="")
    word = words.get("dest", longest.lstrip("-").replace("-", "_"))
    if name == "add_argument" and isinstance(word, str):
        is_flag = words.get("action") == "store_true"
        is_needed = not longest.startswith("-") and "default" not in words
        default = Unknown() if is_needed else words.get("default", False if is_flag else None)
        value.scope.names[word] = default
        return None
    return value if name.startswith("add_") else Unknown()


def _of_path(value: FilePath, name: str, given: Sequence[Any]) -> Any:
    if name in ("read_text", "read"):
        return FileText(value.text)
    if name == "open":
        return OpenFile(value.text)
    if name in ("resolve", "absolute", "expanduser"):
        return FilePath(os.path.normpath(value.text))
    if name == "as_posix":
        return value.text
    if name == "joinpath" and all(isinstance(each, str) for each in given):
        return FilePath(os.path.join(value.text, *given))
    if name in ("with_suffix", "with_name") and given and isinstance(given[0], str):
        stem, _ = os.path.splitext(value.text)
        folder = os.path.dirname(value.text)
        return FilePath(
            stem + given[0] if name == "with_suffix" else os.path.join(folder, given[0])
        )
    return Unknown()


def _of_text(value: str, name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    if name == "format":
        return texts.from_format(value, given, words)
    if name == "join" and len(given) == 1:
        parts = items(given[0])
        if parts is None or not all(isinstance(each, str) for each in parts):
            return Unknown()
        whole = [word for each in parts for word in (value, each)][1:]
        return texts.joined(whole)
    if not all(isinstance(each, str) for each in given) or words:
        return Unknown()
    if name == "replace" and len(given) == 2:
        return texts.replaced(value, *given)
    if name in ("strip", "lstrip", "rstrip", "lower", "upper", "split", "splitlines", "title",
                "startswith", "endswith", "removeprefix", "removesuffix"):  # fmt: skip
        try:
            return bounded(getattr(value, name)(*given))
        except (TypeError, ValueError):
            return Unknown()
    return Unknown()


def _of_list(value: list[Any], name: str, given: Sequence[Any]) -> Any:
    if name == "append" and len(given) == 1 and len(value) < LONGEST_LIST:
        value.append(given[0])
        return None
    if name == "extend" and len(given) == 1:
        parts = items(given[0])
        is_known = parts is not None and len(value) + len(parts) <= LONGEST_LIST
        value.extend(parts if is_known and parts is not None else [Unknown()])
        return None
    if name == "insert" and len(given) == 2 and type(given[0]) is int:
        value.insert(given[0], given[1])
        return None
    if name == "remove" and len(given) == 1 and is_plain(given[0]) and _plain(value):
        if given[0] in value:
            value.remove(given[0])
        return None
    if name == "sort" and not given:
        value[:] = items(_listed("sorted", [value])) or [Unknown()]
        return None
    return list(value) if name == "copy" else Unknown()


def _of_table(
    value: dict[Any, Any], name: str, given: Sequence[Any], words: Mapping[str, Any]
) -> Any:
    if name == "update":
        table = _table(given, words)
        value.update(table if isinstance(table, dict) else {"": Unknown()})
        return None
    if name in ("get", "setdefault", "pop") and given and is_key(given[0]):
        default = given[1] if len(given) > 1 else None
        if name == "setdefault":
            return value.setdefault(given[0], default)
        return value.get(given[0], default) if name == "get" else value.pop(given[0], default)
    if name in ("keys", "values", "items") and not given:
        return list(getattr(value, name)())
    return dict(value) if name == "copy" else Unknown()


def is_file_name(text: str) -> bool:
    """Whether a text names a file: one line without blanks in front, with an ending."""
    return re.fullmatch(r"[^\n{;]*\.[A-Za-z]{1,6}", text) is not None
