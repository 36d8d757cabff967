"""A validation error of FastAPI as a sentence with our codes, about the field that people wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError

from greenfast.app.views.known_fields import known_fields
from greenfast.search.errors import MOST_REFUSALS
from greenfast.search.text import shortened

LONGEST_QUOTE = 300
MOST_READ = 1_000  # errors of one body: a list of a megabyte has many wrong values
LONGEST_GIVEN = 60  # characters of a wrong value
# What a value must be, by the type of Pydantic's error.
VALUE_WORDS = {
    "string_type": "a text",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
FORM_PATH = "/login"
FORM = "a form with the field token"
JSON_TYPE = "send it with the header `content-type: application/json`"
WORKLOAD = (
    'a workload is a name, a text such as "B=8,S_q=577", or an object with dims and, as needed, '
    'options, name and weight: {"dims": {"B": 8, "S_q": 577}}'
)


class Refusal(NamedTuple):
    status: int
    code: str
    sentence: str
    mend: str = ""
    field: str = ""


def refusals_of(error: RequestValidationError, route: object) -> list[Refusal]:
    """A refusal for each wrong field, at most MOST_REFUSALS; at least one."""
    refusals: dict[str, Refusal] = {}
    left = list(error.errors())[:MOST_READ]
    while left and len(refusals) < MOST_REFUSALS:
        first, left = telling(left), _elsewhere(left)
        refusal = _refusal(first, error.body, route)
        refusals.setdefault(refusal.field, refusal)
    return list(refusals.values())


def _elsewhere(errors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The errors that are not about the place of the first one."""
    first = errors[0]
    place = tuple(first["loc"][:-1] if first["loc"][-1] == "str" else first["loc"])
    return [error for error in errors[1:] if tuple(error["loc"][: len(place)]) != place]


def _refusal(first: Mapping[str, Any], body: object, route: object) -> Refusal:
    place = [str(part) for part in first["loc"]]
    kind, where = first["type"], place[0]
    if kind == "json_invalid":
        why = str(first.get("ctx", {}).get("error", ""))
        return Refusal(400, "malformed_json", "the body is not JSON", why)
    field = ".".join(map(str, written_place(first["loc"], body)))[:LONGEST_QUOTE] or where
    if kind == "extra_forbidden":
        known = known_fields(route, place)
        close = get_close_matches(place[-1][:LONGEST_QUOTE], known, n=1)
        return Refusal(
            422,
            "unknown_field",
            f"unknown field {place[-1][:LONGEST_QUOTE]!r} in the {where}",
            (f"did you mean {close[0]!r}? " if close else "") + "known: " + ", ".join(known),
            field,
        )
    if field == "body":
        code = "missing_field" if kind == "missing" else "bad_value"
        if getattr(route, "path", "") == FORM_PATH:
            return Refusal(422, code, f"the body must be {FORM}")
        hint = JSON_TYPE if isinstance(body, bytes) else ""
        return Refusal(422, code, "the body must be a JSON object", hint)
    if kind == "missing":
        hint = WORKLOAD if place[1:2] == ["workloads"] else ""
        return Refusal(422, "missing_field", f"{field} is missing in the {where}", hint, field)
    hint = WORKLOAD if place[1:2] == ["workloads"] and place[-1] in ("str", "WorkloadIn") else ""
    message = "is neither of what a workload can be" if hint else value_words(first)
    sentence = f"{field} {message}"
    return Refusal(422, "bad_value", sentence, hint, field)


def value_words(error: Mapping[str, Any]) -> str:
    """What a value must be, in the words of JSON: "must be a text, not 5".

    An error of another kind than those of VALUE_WORDS keeps Pydantic's message.
    """
    if error["type"] not in VALUE_WORDS:
        return f"is not valid: {error['msg']}"[:LONGEST_QUOTE]
    words = VALUE_WORDS[error["type"]].format(**error.get("ctx", {}))
    given = error.get("input")
    if given is None or isinstance(given, str | int | float):
        written = json.dumps(given)  # escapes all that a terminal or a page could take for its own
        return f"must be {words}, not {shortened(written, LONGEST_GIVEN)}"
    return f"must be {words}"


def telling(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The error to report: the first, or the deepest at its place if several types are allowed.

    Pydantic tries each type. Of an object that is no text, the text's error says nothing.
    """
    first = errors[0]
    field = tuple(first["loc"][:-1])
    beside = [error for error in errors if tuple(error["loc"][: len(field)]) == field]
    if first["loc"][-1] != "str":
        return first
    return max(beside, key=lambda error: len(error["loc"]))


def written_place(loc: Sequence[int | str], body: object) -> list[int | str]:
    """The place without the names of types that the request did not write."""
    if loc[0] != "body":
        return list(loc[1:])
    place: list[int | str] = []
    value: Any = body
    part: Any
    for part in loc[1:]:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
        elif part != loc[-1] or not isinstance(value, dict):
            continue  # a member of a union
        place.append(part)
    return place
