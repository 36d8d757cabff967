"""`extern __shared__ T name[]`: the block's dynamic shared memory, by any type and name.

All such arrays of a kernel begin at the same address (CUDA C++ Programming Guide, "__shared__").
In a function the array becomes a pointer, among namespaces an object that converts to one. ptxas
puts them behind the static arrays, at a multiple of the largest alignment that any of them asks
for, and of 16 at least; a section of the kernel's library keeps that number for the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenfast.search.targets.emulator.source_tokens import Token

_GROUPS = ("__attribute__", "__attribute", "alignas")
_ALIGNED = ("aligned", "__aligned__", "align", "alignas")
_LEAST_ALIGNMENT = 16
_SHARED = ("shared", "__shared__")
_MEMORY = "gf_emulator_dynamic_shared()"
_PASSED = ("extern", "static", "volatile", "__shared__")


@dataclass(frozen=True)
class DynamicShared:
    """A declaration between two tokens, and the text that takes its place."""

    first: int
    last: int  # its `;`
    text: str
    alignment: int | None  # None: it is not a plain number


def dynamic_shared(tokens: Sequence[Token], first: int, in_function: bool) -> DynamicShared | None:
    """The declaration at the `extern` of `first`; None if it declares something else."""
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
        text = f"{pointer} const {name} = ({pointer}){_MEMORY};"
    else:
        text = f"static constexpr gf_emulator::DynamicShared<{element} {rest}> {name}{{}};"
    begin = first - 4 if first > 3 and tokens[first - 4].text == "alignas" else first
    return DynamicShared(first, end, text, _alignment(tokens[begin:end]))


def alignment_text(alignments: Sequence[int | None]) -> str:
    """The line that passes them to the runtime; empty for the runtime's default."""
    known = [alignment for alignment in alignments if alignment is not None]
    if not alignments or len(known) < len(alignments):
        return ""
    return (
        f'\n__attribute__((used, section(".gf_dynamic_shared"), aligned({max(known)}))) '
        "static const char gf_emulator_dynamic_alignment = 0;\n"
    )


def _alignment(declaration: Sequence[Token]) -> int | None:
    largest = _LEAST_ALIGNMENT
    for at, token in enumerate(declaration):
        if token.text not in _ALIGNED:
            continue
        inside = [part.text for part in declaration[at + 1 : at + 4]]
        number = inside[1].rstrip("uUlL") if len(inside) == 3 else ""
        if not number.isdecimal() or (inside[0], inside[2]) != ("(", ")"):
            return None
        largest = max(largest, int(number))
    return largest


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
