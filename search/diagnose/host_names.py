"""The names of kernels as a host compiler writes them, and as --entry takes them."""

from __future__ import annotations

import re

_WITH = "[with "


def entry_of(function: str, template_parameters: int) -> str:
    """The name of a kernel as --entry takes it, from g++'s __PRETTY_FUNCTION__.

    `void ns::foo(T*, size_t) [with T = float; int n = 4; size_t = unsigned long]` with two
    template parameters is `ns::foo<float, 4>`: g++ lists the types behind aliases, too.
    """
    plain, _, template = function.rstrip().partition(_WITH)
    head = plain[: _parameters_begin(plain)]
    name = head.split()[-1] if head.split() else plain
    name = re.sub(r"\{anonymous\}::|\(anonymous namespace\)::", "", name)
    if not template or not template_parameters:
        return name
    values = []
    for part in _split(template.removesuffix("]"))[:template_parameters]:
        _, equals, value = part.partition(" = ")
        if equals:
            values.append(_literal(value.strip()))
    return f"{name}<{', '.join(filter(None, values))}>"  # a pack may be empty


def _parameters_begin(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        if character == "(" and depth == 0 and not text.startswith("(anonymous", at):
            return at
        depth += (character == "<") - (character == ">")
    return len(text)


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == ";" and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _literal(value: str) -> str:
    """A template's argument as source text; g++ writes the types of a pack as `{int, float}`."""
    return value[1:-1] if value.startswith("{") and value.endswith("}") else value
