"""Wrong twins of correct candidates: does a gate reject each?

    python -m bench.correctness.mutants [--count 200] [--seconds 900] [--seed 0] [--progress FILE]
                                        [--save]

A mutant has one fault, planted by a text operator. A survivor is a mutant that correctness and
safety both pass. known_survivors.py explains each kind of survivor: why no input can tell it from
the original, or why it was missed. A survivor that is not listed there was missed. Exits 1 then.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import replace
from itertools import islice

from bench.correctness.known_survivors import explained
from bench.correctness.mutation import OPERATORS, Mutant, mutants
from bench.correctness.random_candidates import (
    DEVICE,
    Draw,
    catalogue,
    controls_found,
    draws,
    random_options,
    work_through,
)
from bench.environment import publish
from bench.results import Row
from bench.session import open_session
from greenfast.search.errors import Fault
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.targets.base import Target
from greenfast.search.verdict import Outcome

DEADLINE_S = 6.0  # a mutant may never end
ATTEMPTS = 20  # to find a mutation that compiles


def judge(draw: Draw, mutant: Mutant, target: Target) -> tuple[str, str, str] | None:
    """Rejecting gate, reason and sentence, empty for a survivor; None if it does not compile."""
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


def mutant_row(number: int, draw: Draw, seed: int, target: Target) -> Row:
    """The verdict on the first mutant of a candidate that compiles."""
    begin, rng = time.monotonic(), random.Random(seed * 1_000_003 + number)
    for mutant in islice(mutants(draw.source.unit, rng), ATTEMPTS):
        rejection = judge(draw, mutant, target)
        if rejection is not None:
            break
    else:
        return {"number": number, "candidate": draw.name, "outcome": "nothing to mutate"}
    gate, reason, sentence = rejection
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


def remark(row: Row) -> str:
    return f"survived: {row['operator']}: {row['before']}" if row["outcome"] == "survived" else ""


def summary(rows: list[Row], options: argparse.Namespace) -> Row:
    tried = [row for row in rows if row["outcome"] != "nothing to mutate"]
    return {
        "what": "summary",
        "seed": options.seed,
        "asked": options.count,
        "mutants": len(tried),
        "outcomes": dict(Counter(row["outcome"] for row in tried)),
        "reasons": dict(Counter(row["reason"] for row in tried if row["reason"])),
        "by_operator": {
            name: dict(Counter(row["outcome"] for row in tried if row["operator"] == name))
            for name in OPERATORS
            if any(row["operator"] == name for row in tried)
        },
        "only_safety_saw": sum(row["outcome"] == "rejected by safety" for row in tried),
        "survivors": [
            {
                key: row[key]
                for key in ("outcome", "operator", "before", "after", "candidate", "why")
            }
            for row in tried
            if row["outcome"] in ("equivalent", "missed")
        ],
    }


def main() -> int:
    options = random_options(__doc__, 200)
    kernels = catalogue()
    works = dict(enumerate(enumerate(islice(draws(kernels, options.seed), options.count))))
    with open_session(
        f"emulator:{DEVICE}", prefix="mutants", catalogue=kernels, run_deadline_s=DEADLINE_S
    ) as session:
        controls_found(kernels, session.target)
        rows = work_through(
            works,
            "number",
            lambda numbered: mutant_row(*numbered, options.seed, session.target),
            remark,
            options,
        )
    rows = [explained(row) for row in sorted(rows, key=lambda row: row["number"])]
    total = summary(rows, options)
    publish("mutants", [total, *rows], save=options.save)
    return 1 if total["outcomes"].get("missed") else 0


if __name__ == "__main__":
    raise SystemExit(main())
