"""A proposer for `greenfast evolve` without a model: it changes one number of a parent.

    greenfast evolve KERNEL --propose "python -m greenfast.propose_mutation"

It reads the JSON prompt on stdin and prints JSON with a source. It changes a tile size (a power of
two that the text and its launches share), a named constant, or the factor of an unrolled loop.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TILES = tuple(2**power for power in range(3, 11))
FACTORS = (1, 2, 4, 8, 16)
_CONSTANT = re.compile(
    r"\b(?:constexpr\s+\w+\s+(?P<a>\w+)\s*=\s*|define[ \t]+(?P<b>\w+)[ \t]+)(?P<value>\d+)\b(?!\.)"
)
_UNROLL = re.compile(r"(?P<head>#\s*pragma\s+unroll)(?P<factor>[ \t]+\d+)?[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Mutation:
    """A changed source with its launches, and the change in words."""

    source: str
    launch: str
    words: str


def mutations(source: str, launch: str) -> Iterator[Mutation]:
    """Every change of one number, in a fixed order."""
    yield from _tiles(source, launch)
    yield from _constants(source, launch)
    yield from _unrolled(source, launch)


def _tiles(source: str, launch: str) -> Iterator[Mutation]:
    """Double or halve a number wherever the text and its launches have it."""
    for size in TILES:
        number = re.compile(rf"(?<![\w.]){size}(?![\w.])")
        if not (number.search(source) and number.search(launch)):
            continue
        for changed in (size // 2, size * 2):
            if changed in TILES:
                yield Mutation(
                    number.sub(str(changed), source),
                    number.sub(str(changed), launch),
                    f"{size} -> {changed}",
                )


def _constants(source: str, launch: str) -> Iterator[Mutation]:
    """Change a named constant, also where the launches have a constant of that name."""
    for match in _CONSTANT.finditer(source):
        name, value = match["a"] or match["b"], int(match["value"])
        own = re.compile(rf'(?m)^{name} = "?{value}"?$')
        for changed in sorted({max(1, value // 2), value + 1, value * 2} - {value}):
            text = source[: match.start("value")] + str(changed) + source[match.end("value") :]
            launches = own.sub(f'{name} = "{changed}"', launch)
            yield Mutation(text, launches, f"{name} = {value} -> {changed}")


def _unrolled(source: str, launch: str) -> Iterator[Mutation]:
    for match in _UNROLL.finditer(source):
        present = (match["factor"] or "").strip()
        for factor in FACTORS:
            if str(factor) != present:
                line = f"{match['head']} {factor}"
                text = source[: match.start()] + line + source[match.end() :]
                yield Mutation(text, launch, f"unroll {present or 'all'} -> {factor}")


def proposal(prompt: dict[str, Any]) -> dict[str, str]:
    """A mutation of the first parent that follows from the prompt's seed and numbers."""
    parent = prompt["parents"][0]
    choices = list(mutations(parent["source"], parent["launch"]))
    if not choices:
        raise SystemExit("the parent has no number that could be changed")
    rng = random.Random(f"{prompt['seed']}/{prompt['trial']}/{prompt['attempt']}")
    mutation = rng.choice(choices)
    return {
        "source": mutation.source,
        "launch": mutation.launch,
        "hypothesis": mutation.words,
        "model": "greenfast.propose_mutation",
    }


if __name__ == "__main__":
    json.dump(proposal(json.load(sys.stdin)), sys.stdout)
