"""`greenfast config`: every setting, its value, and where it comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.settings import Settings, setting_table
from greenfast.app.views.terminal import say
from greenfast.search.kernels.catalogue import HERE, PATH_VARIABLE, here, kernels_below

PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
PREFIX, TESTS = "GREENFAST_", "GREENFAST_TEST_"
# Variables of single parts, described with them.
READ_ELSEWHERE = (
    "GREENFAST_CUDA",
    "GREENFAST_CXX",
    "GREENFAST_LIBCUDA",
    "GREENFAST_NODE_CACHE",
    "GREENFAST_PEERS_PYTHON",
    "GREENFAST_RECORDINGS",
    "GREENFAST_REFERENCE_DEADLINE_S",
    "GREENFAST_RUNTIME_CACHE",
    "GREENFAST_NO_BROWSER",
    "GREENFAST_SLOW_TESTS",
)
FURTHER = (
    (PATH_VARIABLE, "folders of your kernels, separated by colons; they replace namesakes"),
    ("NO_COLOR", "any value: no colours"),
    ("COLUMNS", "the width of tables that are written to a pipe or file"),
)


def config(as_json: AsJson = False) -> int:
    """Show every setting with its value and its origin.

    Settings are environment variables; options of a command override them for that command. Secrets
    are not shown.
    """
    rows = settings_in_use()
    if as_json:
        print_json(rows)
        return 0
    for sentence in unread_variables(os.environ):
        say(f"greenfast: {sentence}")
    cells = [(row["variable"], _shown(row["value"]), row["from"], row["doc"]) for row in rows]
    console().print(table(("setting", "value", "from", ""), cells))
    return 0


def unread_variables(environment: Iterable[str]) -> Iterator[str]:
    """A sentence for each variable that looks like a setting but is not one."""
    known = {*(variable for variable, _, _ in setting_table()), *(name for name, _ in FURTHER)}
    known |= set(READ_ELSEWHERE)
    for name in sorted(set(environment) - known):
        if name.startswith(PREFIX) and not name.startswith(TESTS):
            words = {each.removeprefix(PREFIX): each for each in known}
            close = get_close_matches(name.removeprefix(PREFIX), words, n=1)
            yield f"nothing reads {name}" + (f" (did you mean {words[close[0]]}?)" if close else "")


def settings_in_use() -> list[dict[str, Any]]:
    """Every setting as an object; UsageError for a variable with an invalid value."""
    settings = Settings.from_environment()
    rows = []
    for field in fields(Settings):
        variable = field.metadata["variable"]
        given = bool(os.environ.get(variable))
        rows.append(
            {
                "variable": variable,
                "value": _harmless(field.name, getattr(settings, field.name)),
                "from": "environment" if given else "default",
                "default": _harmless(field.name, field.default),
                "doc": field.metadata["doc"],
            }
        )
    for variable, doc in FURTHER:
        value = os.environ.get(variable)
        origin = "default" if value is None else "environment"
        rows.append(
            {"variable": variable, "value": value, "from": origin, "default": None, "doc": doc}
        )
    rows.append(_kernels_here())
    return rows


def _kernels_here() -> dict[str, Any]:
    """The folder of kernels that no variable names."""
    folders = [str(folder) for folder in here() if kernels_below(folder)]
    return {
        "variable": f"./{HERE}",
        "value": folders[0] if folders else None,
        "from": "current folder" if folders else "default",
        "default": None,
        "doc": f"your kernels in the current folder, unless it is on {PATH_VARIABLE}",
    }


def _harmless(name: str, value: Any) -> Any:
    """The value without secrets, as JSON has it."""
    if name.endswith("token"):
        return "(hidden)" if value else ""
    if name == "database_url":
        return PASSWORD.sub(r"\1:(hidden)@", str(value))
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> object:
    if isinstance(value, list):
        return ", ".join(value) or None
    return None if value == "" else value
