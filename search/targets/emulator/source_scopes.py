"""What a name or a brace of a text stands for, by the tokens around it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from greenfast.search.targets.emulator.source_rules import COORDINATES, EXPRESSION_WORDS
from greenfast.search.targets.emulator.source_tokens import Token, closing, opening, text_at

LONGEST_TEMPLATE = 2048
_FIRST = frozenset(("[", "::", "goto", "namespace", "std", "template"))
_ATTRIBUTES = ("__attribute__", "__attribute", "_Pragma", "alignas")


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


def parts(before: str, after: str) -> bool:
    """Whether two tokens mean something together, so that nothing left out may lie between.

    The compiler of the emulator sees them side by side: `[` and `[` are then an attribute.
    """
    return before in _FIRST or {before, after} == {"long", "double"} or after in COORDINATES


def opens_standard(tokens: Sequence[Token], index: int) -> bool:
    """Whether the `namespace` at `index` opens namespace std, or one of this name in another."""
    names, at = [], index + 1
    while at < len(tokens):
        behind = _behind_attribute(tokens, at)
        if behind <= at:  # no attribute, or one without end
            text = tokens[at].text
            if text == "namespace" or (tokens[at].kind != "name" and text != "::"):
                break
            names.append(tokens[at].text)
            behind = at + 1
        at = behind
    plain = names[1:] if names[:1] == ["::"] else names
    if text_at(tokens, index - 1) == "using" and plain[:1] != ["std"]:
        return len(plain) == 1 and _is_standard(tokens[:index], plain[0])
    return (
        names[:1] == ["std"] or plain == ["std"] or ("std" in names and text_at(tokens, at) == "{")
    )


def _is_standard(tokens: Sequence[Token], name: str) -> bool:
    """Whether a text calls namespace std by this name, over any number of aliases."""
    known = {"std"}
    for at, token in enumerate(tokens):
        if token.text == "namespace" and text_at(tokens, at + 2) == "=":
            words = [text_at(tokens, at + 3), text_at(tokens, at + 4)]
            if (words[1] if words[0] == "::" else words[0]) in known:
                known.add(text_at(tokens, at + 1))
    return name in known


def alias_of(tokens: Sequence[Token], index: int, names: Collection[str]) -> str | None:
    """The alias that the `namespace` at `index` gives to one of `names`; None where it does not."""
    if text_at(tokens, index + 2) != "=":
        return None
    at = index + 3
    while at < len(tokens) and tokens[at].text not in (";", "namespace"):
        if tokens[at].text in names:
            return text_at(tokens, index + 1)
        at += 1
    return None


def specialised(tokens: Sequence[Token], index: int, standard: Collection[str]) -> str | None:
    """What the `template` at `index` specialises of namespace std; None: nothing of it.

    `standard` are the names of namespace std in the text. A declaration of more than
    LONGEST_TEMPLATE tokens could hide what it declares: it counts as one of std.
    """
    for at in range(index + 1, min(index + LONGEST_TEMPLATE, len(tokens))):
        text = tokens[at].text
        if text in ("{", ";"):
            return None
        if text in ("struct", "class", "union"):
            if (name := _qualified(tokens, at + 1, standard)) is not None:
                return name
        elif text in standard and text_at(tokens, at + 2).endswith("_v"):
            before = at - 1
            while tokens[before].text in ("::", "cuda"):
                before -= 1
            if tokens[before].kind == "name":  # its type: it is declared and not read
                return text_at(tokens, at + 2)
    return None if len(tokens) <= index + LONGEST_TEMPLATE else "..."


def _qualified(tokens: Sequence[Token], at: int, standard: Collection[str]) -> str | None:
    """The name behind `std::` in a class's name at `at`; None where the class is another's."""
    while (behind := _behind_attribute(tokens, at)) > at:
        at = behind
    while tokens[at : at + 1] and (tokens[at].text == "::" or tokens[at].kind == "name"):
        if tokens[at].text in standard and text_at(tokens, at + 1) == "::":
            return text_at(tokens, at + 2)
        at += 1
    return None


def _behind_attribute(tokens: Sequence[Token], at: int) -> int:
    """The index behind an attribute or a pragma at `at`; `at` where none is, 0 without end."""
    text = text_at(tokens, at)
    if at < len(tokens) and tokens[at].kind == "pragma":
        return at + 1
    if text in _ATTRIBUTES:
        return closing(tokens, at + 1) + 1
    if text == "[" and text_at(tokens, at + 1) == "[":
        return closing(tokens, at) + 1
    return at
