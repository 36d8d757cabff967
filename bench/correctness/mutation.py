"""Wrong twins of a source: one fault each, planted in one line by a text operator."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

NOT_CODE = re.compile(r"\s*(#|//|$)")
# Lines that compute nothing: a change of one does not compile, or belongs to another program.
DECLARATION = re.compile(
    r"\s*(template|using|namespace|struct|constexpr|extern|__device__|__shared__|static_assert)\b"
)
LARGER_ARRAY = re.compile(r"\s*[\w:<>]+ \w+(\[[^]]+\])+( = \{\})?(, [^;]*)?;")


Operator = Callable[[str], Iterator[str]]


def _without(pattern: str) -> Operator:
    return changed(pattern, lambda _: "")


def changed(pattern: str, change: Callable[[re.Match[str]], str]) -> Operator:
    """Every way to apply `change` at one place of a line."""
    compiled = re.compile(pattern)

    def apply(line: str) -> Iterator[str]:
        for match in compiled.finditer(line):
            yield line[: match.start()] + change(match) + line[match.end() :]

    return apply


OPERATORS: dict[str, Operator] = {
    "remove __syncthreads": _without(r"__syncthreads\(\);"),
    "remove __syncwarp": _without(r"__syncwarp\(\);"),
    "remove async_copy_wait": _without(r"gf::async_copy_wait<[^>]*>\(\);"),
    "wait for one group less": changed(
        r"async_copy_wait<([^>]*)>", lambda m: f"async_copy_wait<({m[1]}) + 1>"
    ),
    "remove async_copy_commit": _without(r"gf::async_copy_commit\(\);"),
    "remove __threadfence": _without(r"__threadfence\(\);"),
    "remove a named barrier": _without(r"gf::named_barrier_(?:sync|arrive)\([^;]*\);"),
    "drop a mask": changed(
        r"\bif \(((?:row|r|s|i|key|first|row_index|lane)\b[^()]* (?:<|>=) [^()]*)\)(?! return)",
        lambda m: "if (true)",
    ),
    "drop half of a mask": changed(r"(\w+(?: [+] [^&|()?]*)? < \w+) && ", lambda m: ""),
    "drop a choice": changed(r"(\b[\w ]+(?: \+ \w+)? < \w+) \? ", lambda m: "true ? "),
    "one more turn": changed(r" < (?=\w)", lambda m: " <= "),
    "index plus one": changed(
        r"(?<=\w)\[((?:[^][]|\[[^][]*\])+)\](?=[^(])", lambda m: f"[({m[1]}) + 1]"
    ),
    "drop a reduction": changed(r"gf::warp_(?:sum|max)(?:<[^>]*>)?\(", lambda m: "("),
    "swap minimum and maximum": changed(
        r"\bf(max|min)f\(", lambda m: "fminf(" if m[1] == "max" else "fmaxf("
    ),
    "swap integer minimum and maximum": changed(
        r"\b(max|min)\(", lambda m: "min(" if m[1] == "max" else "max("
    ),
    "drop a rescale": changed(
        r"row_sum \* factor|row\.sum \*= rescale;|row\.o\[c\] \*= rescale;|"
        r"sum\[j\]\.x\[e\] \*= shrink\.x\[e\];",
        lambda m: "row_sum" if m[0].startswith("row_sum") else "",
    ),
    "assign instead of add": changed(r"^(?!\s*for )(.*) \+= ", lambda m: m[1] + " = "),
    "plain instead of atomic": changed(
        r"(?<![=(] )atomicAdd\(([^,;]*), ([^;]*)\);", lambda m: f"*({m[1]}) += {m[2]};"
    ),
    "one lane further": changed(
        r"__shfl_(\w+)_sync\(([^,]*), ([^,]*), ([^,)]*)\)",
        lambda m: f"__shfl_{m[1]}_sync({m[2]}, {m[3]}, {m[4]} + 1)",
    ),
}


@dataclass(frozen=True)
class Mutant:
    operator: str
    number: int  # of the line in the unit
    before: str
    after: str
    following: str  # the next line
    unit: str
    block: str = ""  # the lines that open the blocks around it, `inner < outer`


def mutants(unit: str, rng: random.Random) -> Iterator[Mutant]:
    """Mutants of a text in random order.

    The operator is drawn first and then one of its places, so that rare operators occur too.
    """
    lines = unit.splitlines()
    places: dict[str, list[Mutant]] = {}
    for number, line in enumerate(lines):
        if NOT_CODE.match(line) or (DECLARATION.match(line) and "= " not in line):
            continue
        code, comment, rest = line.partition("//")
        for name, operator in OPERATORS.items():
            for twin in operator(code):
                if name == "index plus one" and LARGER_ARRAY.match(code):
                    continue
                text = (
                    "\n".join([*lines[:number], twin + comment + rest, *lines[number + 1 :]]) + "\n"
                )
                following = lines[number + 1].strip() if number + 1 < len(lines) else ""
                places.setdefault(name, []).append(
                    Mutant(name, number, line.strip(), twin.strip(), following, text)
                )
    while places:
        name = rng.choice(sorted(places))
        yield places[name].pop(rng.randrange(len(places[name])))
        if not places[name]:
            del places[name]
