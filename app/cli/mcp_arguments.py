"""Refusals of calls whose tool or arguments an agent misspelt, with the same codes as REST has.

The SDK ignores arguments that a tool does not have, and answers others with Pydantic's words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from greenfast.app.views.validation import value_words
from greenfast.search.errors import UsageError, unknown_name


def require_known(
    tools: Mapping[str, Callable[..., Any]], name: str, arguments: Mapping[str, Any]
) -> None:
    """UsageError for a tool that does not exist, and for arguments that it lacks or needs."""
    if name not in tools:
        raise unknown_name("tool", name, tools)
    parameters = inspect.signature(tools[name]).parameters
    for argument in arguments:
        if argument not in parameters:
            raise unknown_name("field", argument, parameters, where=f"the tool {name}")
    missing = [
        each.name
        for each in parameters.values()
        if each.default is each.empty and each.name not in arguments
    ]
    if missing:
        raise UsageError(
            f"the tool {name} needs {' and '.join(missing)}",
            code="missing_field",
            mend="its arguments: " + ", ".join(parameters),
        )


def bad_value(name: str, error: ValidationError) -> UsageError:
    """The UsageError for an argument of the wrong type."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return UsageError(f"{place} of the tool {name} {value_words(first)}", code="bad_value")
