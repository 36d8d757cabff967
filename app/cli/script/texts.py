"""Texts that a script formats: with `%`, `format` and in f-strings, to a bounded length."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from greenfast.app.cli.script.values import (
    LONGEST_TEXT,
    FilePath,
    Named,
    Scalar,
    Unknown,
    bounded,
    is_plain,
)

_SPEC = re.compile(r"[<>=^+ -]{0,2}0?\d{0,3}(?:\.\d{1,2})?[bdeEfFgGosxX%]?\Z")
_DOLLAR = re.compile(r"\$(?:\$|(?P<name>[A-Za-z_]\w*)|\{(?P<braced>\w+)\})")
_PERCENT = re.compile(r"%(?:\((?P<name>\w+)\))?(?P<spec>[-+ 0#]*\d{0,3}(?:\.\d{1,2})?[dfgesrxXi%])")


def shown_in_text(value: Any) -> Any:
    """The value as `str` shows it, or Unknown."""
    if isinstance(value, Scalar):
        return str(value.value)
    if isinstance(value, FilePath):
        return value.text
    return str(value) if is_plain(value) else Unknown()


def formatted(value: Any, spec: str) -> Any:
    """`format(value, spec)`."""
    if not spec:
        return shown_in_text(value)
    plain = value.value if isinstance(value, Scalar) else value
    if not is_plain(plain) or plain is None or not _SPEC.match(spec):
        return Unknown()
    try:
        return format(plain, spec)
    except (ValueError, TypeError, OverflowError):
        return Unknown()


def from_format(text: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """`text.format(...)` with fields that are numbers or names."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        return Unknown()
    made: list[str] = []
    for count, (literal, field, spec, conversion) in enumerate(parts):
        made.append(literal)
        if field is None:
            continue
        place = field or str(sum(each[1] is not None for each in parts[:count]))
        value = (
            given[int(place)]
            if place.isdecimal() and len(place) < 4 and int(place) < len(given)
            else words.get(place, Unknown())
        )
        shown = formatted(value, spec or "")
        if conversion or not isinstance(shown, str):
            return Unknown()
        made.append(shown)
    return joined(made)


def from_percent(text: str, given: Any) -> Any:
    """`text % given`."""
    values = list(given) if isinstance(given, tuple) else [given]
    made: list[str] = []
    end = 0
    for match in _PERCENT.finditer(text):
        between, end = text[end : match.start()], match.end()
        if "%" in between:
            return Unknown()
        made.append(between)
        if match["spec"] == "%":
            made.append("%")
            continue
        if match["name"] is not None:
            value = given.get(match["name"], Unknown()) if isinstance(given, dict) else Unknown()
        else:
            value = values.pop(0) if values else Unknown()
        plain = value.value if isinstance(value, Scalar) else value
        if match["spec"][-1] == "s" and isinstance(plain, (FilePath, Named)):
            plain = shown_in_text(plain)
        if not is_plain(plain):
            return Unknown()
        try:
            made.append(f"%{match['spec']}" % (plain,))
        except (ValueError, TypeError, OverflowError):
            return Unknown()
    if "%" in text[end:]:
        return Unknown()
    return joined([*made, text[end:]])


def from_dollars(text: str, words: Mapping[str, Any]) -> Any:
    """`string.Template(text).substitute(words)`."""
    made: list[str] = []
    end = 0
    for match in _DOLLAR.finditer(text):
        made.append(text[end : match.start()])
        end = match.end()
        name = match["name"] or match["braced"]
        shown = "$" if name is None else shown_in_text(words.get(name, Unknown()))
        if not isinstance(shown, str):
            return Unknown()
        made.append(shown)
    return joined([*made, text[end:]])


def joined(parts: Sequence[str]) -> Any:
    if sum(map(len, parts)) > LONGEST_TEXT:
        return Unknown()
    return "".join(parts)


def replaced(text: str, old: str, new: str) -> Any:
    """`text.replace(old, new)`."""
    if len(text) + text.count(old) * len(new) > LONGEST_TEXT:
        return Unknown()
    return bounded(text.replace(old, new))
