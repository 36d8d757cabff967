"""Text for people, made harmless for terminals and logs."""

from __future__ import annotations

import unicodedata

# Controls, direction marks, lone surrogates, unusual line ends.
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: object) -> str:
    """`text` with control characters written as escapes; line feeds and tabs are kept."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in HIDDEN_CATEGORIES
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def one_line(text: object) -> str:
    """`visible(text)` on a single line, with runs of white space as single spaces."""
    return " ".join(visible(text).split())
