"""Wrong twins of right candidates: one fault each, planted by a text operator, and whether a gate rejects it.

    bench/correctness/mutants.py [--count 200] [--seconds 900] [--seed 0] [--progress FILE] [--save]

A survivor is a mutant that correctness and safety both pass. KNOWN says of each kind of survivor, by hand, why no
input can tell it from the original, or why it was missed; a survivor that is not listed there was missed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bench.correctness.random_candidates import (
    DEVICE,
    Draw,
    catalogue,
    controls_found,
    draws,
    parsed_options,
    work_through,
)
from bench.environment import publish
from greenfast.search.errors import Fault
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.verdict import Outcome

DEADLINE_S = 6.0  # a mutant may never end
ATTEMPTS = 20  # to find a mutation that compiles
NOT_CODE = re.compile(r"\s*(#|//|$)")
# Not a computation: what a change of these lines gives does not compile, or is another program's header.
DECLARATION = re.compile(
    r"\s*(template|using|namespace|struct|constexpr|extern|__device__|__shared__|static_assert)\b"
)
LARGER_ARRAY = re.compile(r"\s*[\w:<>]+ \w+(\[[^]]+\])+( = \{\})?(, [^;]*)?;")


def _without(pattern: str) -> Callable[[str], Iterator[str]]:
    return _changed(pattern, lambda _: "")


def _changed(pattern: str, change: Callable[[re.Match], str]) -> Callable[[str], Iterator[str]]:
    """Every way to apply `change` at one place of a line."""
    compiled = re.compile(pattern)

    def apply(line: str) -> Iterator[str]:
        for match in compiled.finditer(line):
            yield line[: match.start()] + change(match) + line[match.end() :]

    return apply


OPERATORS: dict[str, Callable[[str], Iterator[str]]] = {
    "remove __syncthreads": _without(r"__syncthreads\(\);"),
    "remove __syncwarp": _without(r"__syncwarp\(\);"),
    "remove async_copy_wait": _without(r"gf::async_copy_wait<[^>]*>\(\);"),
    "wait for one group less": _changed(
        r"async_copy_wait<([^>]*)>", lambda m: f"async_copy_wait<({m[1]}) + 1>"
    ),
    "remove async_copy_commit": _without(r"gf::async_copy_commit\(\);"),
    "remove __threadfence": _without(r"__threadfence\(\);"),
    "remove a named barrier": _without(r"gf::named_barrier_(?:sync|arrive)\([^;]*\);"),
    "drop a mask": _changed(
        r"\bif \(((?:row|r|s|i|key|first|row_index|lane)\b[^()]* (?:<|>=) [^()]*)\)(?! return)",
        lambda m: "if (true)",
    ),
    "drop half of a mask": _changed(r"(\w+(?: [+] [^&|()?]*)? < \w+) && ", lambda m: ""),
    "drop a choice": _changed(r"(\b[\w ]+(?: \+ \w+)? < \w+) \? ", lambda m: "true ? "),
    "one more turn": _changed(r" < (?=\w)", lambda m: " <= "),
    "index plus one": _changed(
        r"(?<=\w)\[((?:[^][]|\[[^][]*\])+)\](?=[^(])", lambda m: f"[({m[1]}) + 1]"
    ),
    "drop a reduction": _changed(r"gf::warp_(?:sum|max)(?:<[^>]*>)?\(", lambda m: "("),
    "swap minimum and maximum": _changed(
        r"\bf(max|min)f\(", lambda m: "fminf(" if m[1] == "max" else "fmaxf("
    ),
    "swap integer minimum and maximum": _changed(
        r"\b(max|min)\(", lambda m: "min(" if m[1] == "max" else "max("
    ),
    "drop a rescale": _changed(
        r"row_sum \* factor|row\.sum \*= rescale;|row\.o\[c\] \*= rescale;|"
        r"sum\[j\]\.x\[e\] \*= shrink\.x\[e\];",
        lambda m: "row_sum" if m[0].startswith("row_sum") else "",
    ),
    "assign instead of add": _changed(r"^(?!\s*for )(.*) \+= ", lambda m: m[1] + " = "),
    "plain instead of atomic": _changed(
        r"(?<![=(] )atomicAdd\(([^,;]*), ([^;]*)\);", lambda m: f"*({m[1]}) += {m[2]};"
    ),
    "one lane further": _changed(
        r"__shfl_(\w+)_sync\(([^,]*), ([^,]*), ([^,)]*)\)",
        lambda m: f"__shfl_{m[1]}_sync({m[2]}, {m[3]}, {m[4]} + 1)",
    ),
}


@dataclass(frozen=True)
class Known:
    """A kind of survivor: texts that its operator, line, following line and candidate's name must hold."""

    verdict: str  # "equivalent" | "missed"
    operator: str
    before: str
    candidate: str  # a regular expression
    why: str
    following: str = ""


MASKED_TILES = "walks on over tiles that no row of the block sees: every key of them is masked, so it is slower and the same"
KNOWN: tuple[Known, ...] = (
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "block_end = visible_keys(min(first_row + tile_m, S_q)",
        "attention/.*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "block_end = visible_keys(min(first_row + tile_m, S_q)",
        "attention/",
        MASKED_TILES,
    ),
    Known(
        "equivalent",
        "one more turn",
        "first < C; first += threads",
        "scan/right",
        "where threads divides C there is one chunk more, of which no element exists: nothing of it is stored",
    ),
    Known(
        "equivalent",
        "one more turn",
        "pass < passes",
        "attention/wmma",
        "the next line leaves the loop: a row of turn `passes` is never one of the tile",
        "const int row = pass *",
    ),
    Known(
        "equivalent",
        "wait for one group less",
        "async_copy_wait<0>",
        "attention/wmma .*pipeline_depth=[2-4]",
        "behind the walk the newest group holds no copies, so that all others are still waited for",
        "__syncthreads",
    ),
    Known(
        "equivalent",
        "drop a choice",
        "score[j] = first_key + j < row_end",
        "mask=none .*keys_per_step=1 ",
        "a turn takes one key, and the loop ends with the row's keys",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "the next row's sums",
        r"reduce/right .*threads=32 ",
        "the block is one warp, of which lane 0 alone writes and reads the place",
    ),
    Known(
        "equivalent",
        "assign instead of add",
        "sum += own[row][bin]",
        "count_in=shared",
        "there is one row, and sum is 0",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        r"reduce/right .*threads=32 .*method=shuffle",
        "the block is one warp, of which lane 0 alone writes and reads the place",
        "if (warp == 0) {",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "the next row's sums",
        r"reduce/right .*rows_per_block=1 ",
        "there is no next row",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "lastblock/right .*fence_by=block",
        "one thread writes the sum, makes it visible and takes the ticket: it needs no barrier for that",
        '#line 39 "lastblock',
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "attention/wmma .*pipeline_depth=1 .*o_in=fragments",
        "the walk itself ends with a barrier",
        '#line 212 "attention/wmma.cu',
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "attention/wmma .*pipeline_depth=1 .*o_in=shared",
        "the walk itself ends with a barrier",
        '#line 217 "attention/wmma.cu',
    ),
    Known(
        "equivalent",
        "remove async_copy_commit",
        "async_copy_commit",
        "attention/wmma .*pipeline_depth=[2-4] .*q_in_fragments=False",
        "the copies of Q go with those of the first tile, which are waited for before either is read",
        '#line 191 "attention/wmma.cu',
    ),
    Known(
        "equivalent",
        "remove async_copy_wait",
        "async_copy_wait<0>",
        "attention/wmma .*pipeline_depth=[2-4] .*q_in_fragments=True",
        "behind the walk the open groups hold no copies, and Q was waited for before",
        "__syncthreads",
    ),
    Known(
        "equivalent",
        "remove async_copy_wait",
        "async_copy_wait<0>",
        "attention/mma .*q_in=(direct|registers)",
        "behind the walk the open groups hold no copies, and Q was there before",
        "__syncthreads",
    ),
    Known(
        "equivalent",
        "drop a choice",
        "exp2_polynomial(exponent) : gf::exp2_approx(exponent)",
        "attention/mma",
        "both give the same power of two, within the tolerances; the choice only spreads the work over two units",
    ),
    Known(
        "equivalent",
        "one more turn",
        "chunk + slots < chunks",
        "pipe/right",
        "one more arrival at a barrier to which nobody comes any more before the block ends",
    ),
    Known(
        "equivalent",
        "one more turn",
        "score[j] = first_key + j < row_end",
        "mask=none .*keys_per_step=1 ",
        "a turn takes one key, and the loop ends with the row's keys",
    ),
    Known(
        "equivalent",
        "one more turn",
        "distance < threads; distance *= 2",
        "scan/right",
        "threads is a power of two, and no thread has another so far before it: the sums are copied",
    ),
    Known(
        "equivalent",
        "drop a mask",
        "if (row < tile_m)",
        "attention/wmma .*(warps_n=[12] |softmax_lanes=(8|16|32) )",
        "the rows of a pass divide the tile's",
        "finish_row(",
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "const int warp_begin = visible_keys(min(",
        "attention/mma .*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "one more turn",
        "if (row < tile_m)",
        "attention/wmma .*(warps_n=[12] |softmax_lanes=(8|16|32) )",
        "the rows of a pass divide the tile's",
        "finish_row(",
    ),
    Known(
        "equivalent",
        "one more turn",
        "first_key < block_end; first_key += tile_n",
        "attention/scalar .*mask=none",
        "where tile_n divides the keys there is one tile more, of rows that do not exist: no key of it is walked",
    ),
    Known(
        "equivalent",
        "swap integer minimum and maximum",
        "const int row = min(first_row + lane_row",
        "attention/wmma .*mask=none",
        "without a mask every row sees all keys, whichever row is asked for",
    ),
    Known(
        "equivalent",
        "index plus one",
        "scores[i][j].num_elements",
        "attention/wmma",
        "the number is the type's: no element is read",
    ),
    Known(
        "equivalent",
        "index plus one",
        "// [16 row_fragments,",
        "attention/mma",
        "the array is larger, and used as before",
    ),
    Known(
        "equivalent",
        "one more turn",
        "i < row_fragments",
        "attention/wmma .*tile_m=(32|64|128) .*warps_m=1 warps_n=1 pipeline_depth=1 swizzle=xor "
        ".*pv=scalar .*s_p_alias=False",
        "one fragment more of Q, made of K, whose scores fall on P: the block's one warp has not yet made it anew",
        "const int row = (warp_m",
    ),
    Known(
        "equivalent",
        "assign instead of add",
        "total += partial[warp]",
        "lastblock/right .*threads=32 ",
        "the block is one warp, and total is 0",
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "reduce/right .*method=warp_tree",
        "behind the tree's last barrier the first warp reads only what it alone writes, in step",
        '#line 67 "reduce/right',
    ),
    Known(
        "equivalent",
        "remove __syncthreads",
        "__syncthreads();",
        "attention/mma .*tile_m=32 .*tile_n=160 warps_n=2 q_in=direct split_kv=1 .*pipeline_depth=3 .*split_kv_wait=True",
        "the parts lie over the first K alone, which nobody reads behind the barrier before P V",
        "const Parts parts",
    ),
    Known(
        "missed",
        "one more turn",
        "e < scores[i][j].num_elements",
        "attention/wmma",
        "of a thread's own array the compiler's check lets a reference to the place behind the last one pass",
        "const int key =",
    ),
)


@dataclass(frozen=True)
class Mutant:
    operator: str
    number: int  # of the line in the unit
    before: str
    after: str
    following: str  # the next line
    unit: str


def mutants(unit: str, rng: random.Random) -> Iterator[Mutant]:
    """Mutants of a text in random order: an operator first, then one of its places, so that rare operators are met."""
    lines = unit.splitlines()
    places: dict[str, list[Mutant]] = {}
    for number, line in enumerate(lines):
        if NOT_CODE.match(line) or (DECLARATION.match(line) and "= " not in line):
            continue
        code, comment, rest = line.partition("//")
        for name, operator in OPERATORS.items():
            for changed in operator(code):
                if name == "index plus one" and LARGER_ARRAY.match(code):
                    continue
                text = (
                    "\n".join([*lines[:number], changed + comment + rest, *lines[number + 1 :]])
                    + "\n"
                )
                following = lines[number + 1].strip() if number + 1 < len(lines) else ""
                places.setdefault(name, []).append(
                    Mutant(name, number, line.strip(), changed.strip(), following, text)
                )
    while places:
        name = rng.choice(sorted(places))
        yield places[name].pop(rng.randrange(len(places[name])))
        if not places[name]:
            del places[name]


def judge(draw: Draw, mutant: Mutant, target: Target) -> tuple[str, str, str] | None:
    """(gate, reason, sentence) of the rejection, empty strings for a survivor; None when it does not compile."""
    subject = draw.subject(
        target, replace(draw.source, unit=mutant.unit, digest="mutant of " + draw.source.digest)
    )
    try:
        for gate in (CorrectnessGate(), SafetyGate()):
            result = gate.judge(subject)
            if result.outcome is Outcome.FAILED:
                return gate.name, str(result.reason), result.sentence
    except Fault as fault:
        if fault.code == "emulator_unsupported":
            return None
        raise
    return "", "", ""


def row(number: int, draw: Draw, seed: int, target: Target) -> dict:
    begin = time.monotonic()
    for mutant in islice(
        mutants(draw.source.unit, random.Random(seed * 1_000_003 + number)), ATTEMPTS
    ):
        said = judge(draw, mutant, target)
        if said is not None:
            break
    else:
        return {"number": number, "candidate": draw.name, "outcome": "nothing to mutate"}
    gate, reason, sentence = said
    return {
        "number": number,
        "candidate": draw.name,
        "template": f"{draw.kernel.name}/{draw.template.name}",
        "operator": mutant.operator,
        "before": mutant.before,
        "after": mutant.after,
        "following": mutant.following,
        "outcome": f"rejected by {gate}" if gate else "survived",
        "reason": reason,
        "sentence": sentence[:300],
        "seconds": round(time.monotonic() - begin, 2),
    }


def explained(one: dict) -> dict:
    """A survivor's row with what is known of it."""
    if one["outcome"] != "survived":
        return one
    for known in KNOWN:
        if (
            known.operator == one["operator"]
            and known.before in one["before"]
            and known.following in one["following"]
            and re.search(known.candidate, one["candidate"])
        ):
            return {**one, "outcome": known.verdict, "why": known.why}
    return {**one, "outcome": "missed", "why": "not explained"}


def remark(row: dict) -> str:
    return f"survived: {row['operator']}: {row['before']}" if row["outcome"] == "survived" else ""


def summary(rows: list[dict], options: argparse.Namespace) -> dict:
    tried = [one for one in rows if one["outcome"] != "nothing to mutate"]
    return {
        "what": "summary",
        "seed": options.seed,
        "asked": options.count,
        "mutants": len(tried),
        "outcomes": dict(Counter(one["outcome"] for one in tried)),
        "reasons": dict(Counter(one["reason"] for one in tried if one["reason"])),
        "by_operator": {
            name: dict(Counter(one["outcome"] for one in tried if one["operator"] == name))
            for name in OPERATORS
            if any(one["operator"] == name for one in tried)
        },
        "only_safety_saw": sum(one["outcome"] == "rejected by safety" for one in tried),
        "survivors": [
            {
                key: one[key]
                for key in ("outcome", "operator", "before", "after", "candidate", "why")
            }
            for one in tried
            if one["outcome"] in ("equivalent", "missed")
        ],
    }


def main() -> int:
    options = parsed_options(__doc__, 200)
    kernels = catalogue()
    chosen = list(islice(draws(kernels, options.seed), options.count))
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(os.environ.get("GREENFAST_BENCH_CACHE", folder))
        target = open_target(
            f"emulator:{DEVICE}", TargetSettings(cache, kernels.include_dirs, 1, DEADLINE_S)
        )
        target.prepare()
        controls_found(kernels, target)
        made = work_through(
            dict(enumerate(zip(range(len(chosen)), chosen))),
            "number",
            lambda one: row(*one, options.seed, target),
            remark,
            options,
        )
        rows = [explained(one) for one in sorted(made, key=lambda one: one["number"])]
    found = summary(rows, options)
    publish("mutants", [found, *rows])
    return 1 if found["outcomes"].get("missed") else 0


if __name__ == "__main__":
    raise SystemExit(main())
