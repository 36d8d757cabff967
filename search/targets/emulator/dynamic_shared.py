"""`extern __shared__ T name[]`: the block's dynamic shared memory, by any type and name.

All such arrays of a kernel begin at the same address (CUDA C++ Programming Guide, "__shared__").
In a function the array becomes a pointer, among namespaces an object that converts to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenfast.search.targets.emulator.source_tokens import Token

_GROUPS = ("__attribute__", "__attribute", "alignas")
_SHARED = ("shared", "__shared__")
_MEMORY = "gf_emulator_dynamic_shared()"
_PASSED = ("extern", "static", "volatile", "__shared__")


@dataclass(frozen=True)
class DynamicShared:
    """A declaration between two tokens, and the text that takes its place."""

    first: int
    last: int  # its `;`
    text: str


def dynamic_shared(tokens: Sequence[Token], first: int, in_function: bool) -> DynamicShared | None:
    """The declaration at the `extern` of `first`; None where it declares something else."""
    end = first
    while end < len(tokens) and tokens[end].text not in (";", "{", "}", "="):
        end += 1
    if end >= len(tokens) or tokens[end].text != ";":
        return None
    words, is_shared = _words(tokens, first, end)
    bracket = next((at for at, token in enumerate(words) if token.text == "["), 0)
    if not is_shared or bracket < 2 or words[bracket + 1].text != "]":
        return None
    name = words[bracket - 1].text
    is_volatile = any(token.text == "volatile" for token in words)
    element = " ".join(token.text for token in words[: bracket - 1] if token.text not in _PASSED)
    rest = " ".join(token.text for token in words[bracket + 2 :])
    element = ("volatile " if is_volatile else "") + element
    if in_function:
        pointer = f"std::add_pointer_t<{element} {rest}>"
        return DynamicShared(first, end, f"{pointer} const {name} = ({pointer}){_MEMORY};")
    return DynamicShared(
        first, end, f"static constexpr gf_emulator::DynamicShared<{element} {rest}> {name}{{}};"
    )


def _words(tokens: Sequence[Token], first: int, end: int) -> tuple[list[Token], bool]:
    """The tokens without attributes and markers; whether `__shared__` is among them."""
    words: list[Token] = []
    is_shared, index = False, first
    while index < end:
        token = tokens[index]
        if token.text in _GROUPS:
            depth, index = 0, index + 1
            while index < end:
                depth += (tokens[index].text == "(") - (tokens[index].text == ")")
                is_shared |= tokens[index].text in _SHARED
                index += 1
                if depth == 0:
                    break
            continue
        is_shared |= token.text == "__shared__"
        if token.kind not in ("marker", "pragma"):
            words.append(token)
        index += 1
    return words, is_shared
