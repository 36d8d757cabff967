"""Wrong twins of kernels that copy and multiply asynchronously: one fault of a pipeline each.

The operators change one line of a template. `early release` moves a line before the one above it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import islice

from bench.correctness.mutation import NOT_CODE, OPERATORS, Mutant, Operator, changed


def _without(pattern: str) -> Operator:
    return changed(pattern, lambda _: ";")


ASYNCHRONOUS: dict[str, Operator] = {
    "remove a barrier wait": _without(r"gf::mbarrier_wait\([^;]*\);"),
    "wait for the other phase": changed(
        r"(gf::mbarrier_wait\([^;]*), ([^,;]*)\);", lambda m: f"{m[1]}, ({m[2]}) ^ 1);"
    ),
    "expect fewer bytes": changed(
        r"(gf::mbarrier_expect_bytes\([^;]*)\);", lambda m: f"{m[1]} - 16);"
    ),
    "expect more bytes": changed(
        r"(gf::mbarrier_expect_bytes\([^;]*)\);", lambda m: f"{m[1]} + 16);"
    ),
    "one arrival less": changed(
        r"(gf::mbarrier_init\([^;]*), ([^,;]*[*][^,;]*|[2-9])\);", lambda m: f"{m[1]}, {m[2]} - 1);"
    ),
    "one arrival more": changed(
        r"(gf::mbarrier_init\([^;]*), ([^,;]*)\);", lambda m: f"{m[1]}, {m[2]} + 1);"
    ),
    "remove an arrival": _without(r"gf::mbarrier_arrive\w*\([^;]*\);"),
    "every lane arrives": changed(
        r"\bif \((?:lane|threadIdx\.x % 32) == 0\)", lambda m: "if (true)"
    ),
    "remove a proxy fence": _without(r"gf::proxy_fence\w*\(\);"),
    "remove the fence of barriers": _without(r"gf::mbarrier_init_fence\(\);"),
    "remove wgmma fence": _without(r"gf::wgmma_fence\(\);"),
    "remove wgmma commit": _without(r"gf::wgmma_commit\(\);"),
    "remove wgmma wait": _without(r"gf::wgmma_wait<[^>]*>\(\);"),
    "wait for one wgmma group less": changed(
        r"gf::wgmma_wait<([^>]*)>", lambda m: f"gf::wgmma_wait<({m[1]}) + 1>"
    ),
    "another swizzle": changed(
        r"gf::matrix_descriptor<([^>]*)>",
        lambda m: f"gf::matrix_descriptor<({m[1]}) == 64 ? 32 : 64>",
    ),
    "operand 32 bytes further": changed(
        r"(gf::matrix_descriptor<[^;]*)\);", lambda m: f"{m[1]}) + 2;"
    ),
    "operand's stride doubled": changed(
        r"(gf::matrix_descriptor<[^;]*), ([^,;]*)\);", lambda m: f"{m[1]}, 2 * ({m[2]}));"
    ),
    "a box one row further": changed(
        r"(gf::tensor_load\w*\([^;]*, )([\w.]+[^,;]*)((?:, [^,;]*_?head, [^,;]*)?\);)",
        lambda m: f"{m[1]}{m[2]} + 1{m[3]}",
    ),
    "accumulate from the start": changed(
        r", (?:d|step|accumulate) > 0\b|accumulate \|\| j > 0|step > 0 \|\| k > 0",
        lambda m: ", true" if m[0].startswith(",") else "true",
    ),
    "remove a cluster barrier": _without(r"gf::cluster_(?:sync|arrive|wait)\(\);"),
    "remove a wait for stores": _without(r"gf::bulk_wait\w*<[^>]*>\(\);"),
    "remove a commit of stores": _without(r"gf::bulk_commit\(\);"),
    "remove a turn": _without(r"\b(?:await|end)_turn\(\w+\);"),
    **{
        name: OPERATORS[name]
        for name in (
            "remove __syncthreads",
            "remove __syncwarp",
            "remove async_copy_wait",
            "wait for one group less",
            "remove async_copy_commit",
            "remove __threadfence",
            "remove a named barrier",
        )
    },
}
EARLY_RELEASE = "early release"
BLOCKS_TOLD = 2
RELEASE = re.compile(r"\s*(?:release|gf::mbarrier_arrive\w*)\([^;]*\);")
AWAITED = re.compile(r"\s*(?:gf::wgmma_wait|gf::mbarrier_wait|store_tile|issue_\w+)\b[^;]*;")
DEFINITION = re.compile(r"\s*(?:template|__device__|extern|struct|using|constexpr)\b")


def asynchronous_mutants(unit: str, rng: random.Random) -> Iterator[Mutant]:
    """Twins of a text in random order; the operator is drawn first and then one of its places."""
    lines = unit.splitlines()
    places: dict[str, list[Mutant]] = {}
    for number, line in enumerate(lines):
        if NOT_CODE.match(line) or DEFINITION.match(line):
            continue
        code, comment, rest = line.partition("//")
        for name, operator in ASYNCHRONOUS.items():
            for twin in operator(code):
                after = [twin + comment + rest]
                places.setdefault(name, []).append(_mutant(name, lines, number, 1, after))
        if RELEASE.match(line) and number and AWAITED.match(lines[number - 1]):
            after = [line, lines[number - 1]]
            places.setdefault(EARLY_RELEASE, []).append(
                _mutant(EARLY_RELEASE, lines, number - 1, 2, after)
            )
    while places:
        name = rng.choice(sorted(places))
        yield places[name].pop(rng.randrange(len(places[name])))
        if not places[name]:
            del places[name]


def _mutant(operator: str, lines: list[str], number: int, count: int, after: list[str]) -> Mutant:
    end = number + count
    text = "\n".join([*lines[:number], *after, *lines[end:]]) + "\n"
    following = lines[end].strip() if end < len(lines) else ""
    before = lines[number].strip()
    around = " < ".join(islice(_openings(lines, number), BLOCKS_TOLD))
    return Mutant(operator, number, before, after[0].strip(), following, text, around)


def _openings(lines: list[str], number: int) -> Iterator[str]:
    """The lines of code that open the blocks around a line, by their indentation; inner first."""
    depth = _indentation(lines[number])
    for line in reversed(lines[:number]):
        if line.strip() and not line.startswith("#") and _indentation(line) < depth:
            depth = _indentation(line)
            yield line.strip()


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
