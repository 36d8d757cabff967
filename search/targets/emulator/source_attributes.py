"""Judges the attributes of a candidate's text, and leaves out those without an effect."""

from __future__ import annotations

from greenfast.search.targets.emulator.source_names import judge_name
from greenfast.search.targets.emulator.source_rewriting import (
    Rewriting,
    closing,
    listed,
    text_at,
)
from greenfast.search.targets.emulator.source_rules import (
    DEVICE_WORDS,
    DROPPED_ATTRIBUTES,
    DROPPED_STANDARD_ATTRIBUTES,
    KEPT_ATTRIBUTES,
    LAYOUT_ATTRIBUTES,
)


def gnu_attribute(rewriting: Rewriting, start: int) -> int:
    """Judge `__attribute__((...))` at the token `start`; the index behind it."""
    tokens = rewriting.source.tokens
    end = closing(tokens, start + 1)
    inner = closing(tokens, start + 2) if text_at(tokens, start + 2) == "(" else -1
    if end < 0 or inner != end - 1:
        raise rewriting.refuse(
            tokens[start], "the attribute has no end or no list in double brackets"
        )
    kept, words = False, []
    for first, after in listed(tokens, start + 3, inner):
        name = tokens[first].text.strip("_")
        if name in LAYOUT_ATTRIBUTES and start - 1 in rewriting.class_ends:
            raise rewriting.refuse(
                tokens[first],
                f"NVRTC ignores the attribute `{name}` behind a class; "
                f"write it before the name: struct __attribute__(({name})) ...",
            )
        if name in DEVICE_WORDS:
            words.append(DEVICE_WORDS[name])
        elif name in KEPT_ATTRIBUTES:
            kept = True
        elif name not in DROPPED_ATTRIBUTES:
            raise rewriting.refuse(tokens[first], _attribute_reason(tokens[first].text))
        if name in KEPT_ATTRIBUTES:
            _arguments(rewriting, first + 1, after)
    if words and kept:
        raise rewriting.refuse(tokens[start], "CUDA's attributes must be in a list of their own")
    if not kept:
        rewriting.replace(tokens[start], tokens[end], " ".join(words))
    return end + 1


def standard_attribute(rewriting: Rewriting, start: int) -> int:
    """Judge `[[...]]` at the token `start`; the index behind it."""
    tokens = rewriting.source.tokens
    end = closing(tokens, start)
    if end < 0:
        raise rewriting.refuse(
            tokens[start], "the attribute has no end or no list in double brackets"
        )
    first_inside, namespace = start + 2, ""
    if text_at(tokens, first_inside) == "using":
        namespace, first_inside = text_at(tokens, first_inside + 1), first_inside + 3
    kept = False
    for first, after in listed(tokens, first_inside, end - 1):
        name_at, space = first, namespace
        if text_at(tokens, first + 1) == "::":
            name_at, space = first + 2, tokens[first].text
        name = text_at(tokens, name_at).strip("_")
        gnu = space.strip("_") in ("gnu", "nv", "clang")
        keeps = KEPT_ATTRIBUTES if gnu else frozenset[str]()
        drops = DROPPED_ATTRIBUTES if gnu else DROPPED_STANDARD_ATTRIBUTES
        if (space and not gnu) or name not in keeps | drops:
            shown = f"{space}::{name}" if space else name
            raise rewriting.refuse(tokens[name_at], _attribute_reason(shown))
        if gnu and name in LAYOUT_ATTRIBUTES:
            raise rewriting.refuse(
                tokens[name_at],
                f"NVRTC does not know the attribute `{space}::{name}`; "
                f"write __attribute__(({name}))",
            )
        if name in keeps:
            kept = True
            _arguments(rewriting, name_at + 1, after)
    if not kept:
        rewriting.replace(tokens[start], tokens[end], "")
    return end + 1


def _arguments(rewriting: Rewriting, start: int, stop: int) -> None:
    """The names in a kept attribute's arguments are judged like other code."""
    for index in range(start, stop):
        if rewriting.source.tokens[index].kind == "name":
            judge_name(rewriting, index)


def _attribute_reason(name: str) -> str:
    return f"the attribute `{name}` is not one that CUDA C++ needs; leave it out"
