"""What a name or a brace of a text stands for, by the tokens around it."""

from __future__ import annotations

from collections.abc import Sequence

from greenfast.search.targets.emulator.source_rules import EXPRESSION_WORDS
from greenfast.search.targets.emulator.source_tokens import Token, opening, text_at


def is_namespace(tokens: Sequence[Token], brace: int) -> bool:
    """Whether the brace opens a namespace or `extern "C"`."""
    at = brace - 1
    if at >= 0 and tokens[at].kind == "string":
        return text_at(tokens, at - 1) == "extern"
    while at >= 0 and (tokens[at].text == "::" or tokens[at].kind in ("name", "marker")):
        if tokens[at].text == "namespace":
            return True
        at -= 1
    return False


def is_declared(tokens: Sequence[Token], index: int) -> bool:
    """Whether the text may declare the name at `index`, instead of reading it.

    A GPU would read that variable, where the emulator reads the coordinate.
    """
    if text_at(tokens, index + 1) == ".":
        return False
    before = tokens[index - 1] if index else None
    if before is None or before.text in EXPRESSION_WORDS:
        return False
    if before.text == ",":
        opened = opening(tokens, index - 1)
        return not (
            opened >= 0
            and (
                tokens[opened].text == "("
                or text_at(tokens, opened - 1) in ("=", ",", "(", "{", "return")
            )
        )
    return before.kind == "name" or before.text in (")", "]", ">", "*", "&", "&&")


def specialised(tokens: Sequence[Token], index: int) -> str | None:
    """What the `template <>` at `index` specialises of namespace std, or of an alias of it."""
    if [text_at(tokens, index + k) for k in (1, 2)] != ["<", ">"]:
        return None
    standard = {"std"} | {
        text_at(tokens, at + 1)
        for at in range(index)
        if tokens[at].text == "namespace"
        and "std" in (text_at(tokens, at + 3), text_at(tokens, at + 4))
        and text_at(tokens, at + 2) == "="
    }
    at, depth = index + 3, 0  # of template arguments
    while at + 2 < len(tokens) and tokens[at].text not in ("{", ";", "(", "="):
        name = tokens[at + 2].text
        is_class = tokens[at - 1].text in ("struct", "class", "union", "::")
        if depth == 0 and tokens[at].text in standard and (is_class or name.endswith("_v")):
            return name
        depth += {"<": 1, ">": -1}.get(tokens[at].text, 0)
        at += 1
    return None
