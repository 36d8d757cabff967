"""Text for people: made harmless for terminals and logs, and kept short."""

from __future__ import annotations

import unicodedata

HIDDEN_CATEGORIES = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # controls, direction marks, lone surrogates, odd line ends


def visible(text: object) -> str:
    """`text` with every character that a terminal might obey written as an escape; line feeds and tabs stay."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in HIDDEN_CATEGORIES
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def one_line(text: object) -> str:
    """`text` made visible, on a single line."""
    return " ".join(visible(text).split())


def shortened(text: str, limit: int) -> str:
    """The first and the last half of a text over `limit` characters, and how much is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[-half:]}"
