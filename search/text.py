"""Text for people, made harmless for terminals and logs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

# Controls, direction marks, lone surrogates, unusual line ends.
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")

_NAME_IN_BRACES = re.compile(r"\{(\w+)\}")


def visible(text: object) -> str:
    """`text` with an escape for every character that a terminal might obey.

    Line feeds and tabs stay.
    """
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in HIDDEN_CATEGORIES
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def written(value: object) -> str:
    """A parameter's value as templates and command lines write it: `true`, not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else visible(value)


def one_line(text: object) -> str:
    """`visible(text)` on a single line, with runs of white space as single spaces."""
    return " ".join(visible(text).split())


def not_parsed(error: Exception) -> str:
    """Why a text is no JSON or TOML; Python's parsers tell of their own limits in other words."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "integer string conversion" in str(error):
        return "a whole number has more than 4,300 digits"
    return one_line(error)


def file_line(file: str, line: int) -> str:
    """A place that editors and terminals open on a click."""
    return f"{file}:{line}"


def filled(sentence: str, values: Mapping[str, object]) -> str:
    """An author's sentence with each {name} replaced by its value; other braces stay as they are.

    Python's own formatting would read attributes of the values and pad them to any length.
    """
    return _NAME_IN_BRACES.sub(
        lambda name: str(values[name[1]]) if name[1] in values else name[0], sentence
    )


def last_line(text: str) -> str:
    """The last words of a program that failed, for a message."""
    return shortened(text.strip().rpartition("\n")[2])


def shortened(text: str, limit: int = 300) -> str:
    """`text` in at most `limit` characters, with an ellipsis where some are missing."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def abridged(text: str, limit: int) -> str:
    """The first and the last half of a text over `limit` characters, and how much is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[-half:]}"
