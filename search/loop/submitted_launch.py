"""The launch file of a submitted source, checked and written as part of a template's file.

It holds the keys of a template's .toml that describe how a text is launched, so that expressions
over the kernel's dims give the sizes. Nothing but these keys is taken over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import parsed_toml

LAUNCH_FILE = "the launch file"
LONGEST_LAUNCH = 100_000  # characters
MOST_ROWS = 32  # launches, scalars, workspaces, tensor maps
MOST_KEYS = 200  # of a table
SIMPLE_KEYS = ("minimum_sm", "arch_specific", "deterministic")
TABLES = ("supports", "locals", "tiles")
LISTS = ("launches", "scalars", "workspaces", "tensor_maps")
KEYS = (*SIMPLE_KEYS, *TABLES, *LISTS)
AXES = ("grid", "block", "cluster")
_BARE_KEY = re.compile(r"[A-Za-z0-9_]{1,48}\Z", re.ASCII)


def launch_toml(text: str, entry: str) -> str:
    """The launches as TOML, in one spelling; SpecError for anything else than launches.

    `entry` is for launches that name none. A file without [[launches]] describes a single launch.
    """
    if len(text) > LONGEST_LAUNCH:
        raise SpecError(f"{LAUNCH_FILE} is too long", code="bad_spec")
    tables = parsed_toml(text, LAUNCH_FILE)
    if "launches" not in tables and "grid" in tables:  # the short form: a single launch
        launch = {key: tables.pop(key) for key in _LAUNCH_KEYS if key in tables}
        tables["launches"] = [launch]
    if extra := sorted(set(tables) - set(KEYS)):
        raise SpecError(
            f"{LAUNCH_FILE}: unknown key {extra[0]!r}",
            code="unknown_key",
            mend="known: " + ", ".join(KEYS),
        )
    launches = _list_of_tables(tables, "launches")
    if not launches:
        raise SpecError(
            f"{LAUNCH_FILE}: there is no [[launches]]",
            code="bad_spec",
            mend='for example [[launches]] with grid = ["ceil_div(N, 256)"] and block = [256]',
        )
    tables["launches"] = [_complete(launch, entry, number) for number, launch in launches]
    return toml_of(tables)


def toml_of(tables: dict[str, Any]) -> str:
    """The launch file of these keys, in one spelling."""
    return "\n".join(_lines(tables)) + "\n"


_LAUNCH_KEYS = ("entry", *AXES, "smem_dynamic_bytes", "when")


def _list_of_tables(tables: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    rows = tables.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SpecError(f"{LAUNCH_FILE}: {key} is a list of tables", code="bad_spec")
    if len(rows) > MOST_ROWS:
        raise SpecError(f"{LAUNCH_FILE}: more than {MOST_ROWS} {key}", code="bad_spec")
    return list(enumerate(rows, 1))


def _complete(launch: dict[str, Any], entry: str, number: int) -> dict[str, Any]:
    """A launch with its entry, and three sizes for each axis."""
    launch = {"entry": entry, **launch}
    if not launch["entry"]:
        raise SpecError(
            f"{LAUNCH_FILE}: launch {number} names no entry",
            code="bad_spec",
            mend='an entry is the name of an extern "C" __global__ function',
        )
    for axis in AXES:
        if axis in launch:
            sizes = launch[axis] if isinstance(launch[axis], list) else [launch[axis]]
            launch[axis] = [*sizes, *(["1"] * (3 - len(sizes)))]
    return launch


def _lines(tables: dict[str, Any]) -> Iterator[str]:
    """The simple keys first, as TOML wants it."""
    for key in SIMPLE_KEYS:
        if key in tables:
            yield f"{key} = {_value(tables[key])}"
    for key in TABLES:
        if key in tables:
            yield f"[{key}]"
            yield from _items(tables[key], key)
    for key in LISTS:
        for _, row in _list_of_tables(tables, key):
            yield f"[[{key}]]"
            yield from _items(row, key)


def _items(table: Any, where: str) -> Iterator[str]:
    if not isinstance(table, dict):
        raise SpecError(f"{LAUNCH_FILE}: {where} is a table", code="bad_spec")
    if len(table) > MOST_KEYS:
        raise SpecError(f"{LAUNCH_FILE}: {where} has more than {MOST_KEYS} keys", code="bad_spec")
    for key, value in table.items():
        if not _BARE_KEY.match(key):
            raise SpecError(
                f"{LAUNCH_FILE}: [{where}] has the key {key[:60]!r}",
                code="bad_spec",
                mend="keys are letters, digits and _",
            )
        yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        if not value.isascii() or not value.isprintable():
            raise SpecError(
                f"{LAUNCH_FILE}: the text {value[:60]!r}",
                code="bad_spec",
                mend="expressions are printable ASCII",
            )
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(_items(value, "table")) + " }"
    raise SpecError(f"{LAUNCH_FILE}: a {type(value).__name__} has no meaning here", code="bad_spec")
