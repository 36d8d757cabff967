"""Random candidates and wrong twins of them, judged by the gate and by an independent checker.

    python -m bench.correctness.independent_check FOLDER [--kernels ...] [--templates ...]
                                                  [--count 300] [--mutants 60] [--target cuda:0]

Writes FOLDER/KERNEL.json.gz. Did the gate accept a wrong candidate, or reject a correct one?
The checker (bench/correctness/independent/) has its own reference, bounds, lengths, data,
memory layout and launches, and draws its seeds when it runs. To show that it can reject, it
also gets wrong twins: one line of the text changed by one of a dozen operators.

The gate is correctness on the target. A candidate that passes it and fails the checker is
judged by safety on the emulator, as any contender is, and counts as wrongly accepted if it
passes that too. A twin that passes both is equivalent, or gives correct results on this GPU by
its schedule. A twin that only the gate rejects shows that the checker's data are weaker there.
Exits 1 on a disagreement.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from bench.command_line import script_parser
from bench.correctness.independent import CHECKERS
from bench.correctness.independent_judging import judge_all
from bench.correctness.independent_works import PLANTED, Work, drawn, outcome
from bench.results import Row, finite, write_result
from bench.session import Session, open_session
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec

DISAGREEMENTS = ("wrong accepted", "right rejected")
RUN_DEADLINE_S = 3.0


def main() -> int:
    options = _options()
    with open_session(
        options.target, prefix="independent", run_deadline_s=RUN_DEADLINE_S
    ) as session:
        kernels = [session.catalogue.kernel(name) for name in options.kernels]
        disagreements = sum(check(kernel, session, options) for kernel in kernels)
    return 1 if disagreements else 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--kernels", nargs="+", choices=tuple(CHECKERS), default=tuple(CHECKERS))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--templates", nargs="+", help="of those kernels, only these")
    parser.add_argument("--target", default="cuda:0")
    options = parser.parse_args()
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    known = {item.name for name in options.kernels for item in catalogue.kernel(name).templates}
    if unknown := set(options.templates or ()) - known:
        parser.error(
            f"unknown template {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}"
        )
    return options


def check(kernel: KernelSpec, session: Session, options: argparse.Namespace) -> int:
    """Judge one kernel's templates and return the number of disagreements."""
    rows: list[Row] = []
    began = time.monotonic()
    for template in kernel.templates:
        if options.templates and template.name not in options.templates:
            continue
        if template.tensor_maps and session.target.measures:
            print(f"{kernel.name}/{template.name}: the GPU's checker encodes no tensor maps")
            continue
        begin = time.monotonic()
        works = list(drawn(kernel, template, session, options))
        judge_all(works, kernel, session)
        judged = [work_row(work, template.name) for work in works]
        rows += judged
        seconds = round(time.monotonic() - begin, 1)
        shown = summary(judged, f"{kernel.name}/{template.name}")
        print(json.dumps({**shown, "seconds": seconds}), flush=True)
        for row in judged:
            if row["outcome"] in DISAGREEMENTS:
                print(json.dumps(row), flush=True)
        save(kernel.name, rows, session.environment(), time.monotonic() - began, options.folder)
    return sum(row["outcome"] in DISAGREEMENTS for row in rows)


def save(kernel: str, rows: list[Row], environment: Row, seconds: float, folder: Path) -> None:
    """Write the rows so far with a summary of each template."""
    templates = dict.fromkeys(row["template"] for row in rows)
    by_template = {
        name: summary([row for row in rows if row["template"] == name], name) for name in templates
    }
    result = {"environment": environment, "seconds": round(seconds, 1), "found": by_template}
    write_result(kernel, {**result, "rows": rows}, folder)


def work_row(work: Work, template: str) -> Row:
    return {
        "template": template,
        "compiled": dict(work.compiled),
        "parameters": work.candidate.values(),
        "source": work.source.digest[:16],
        "planted": work.planted,
        "outcome": outcome(work),
        "gate": work.gate,
        "safety": work.safety,
        "checker": work.checker,
        "ratio": finite(work.ratio),
    }


def summary(rows: list[Row], template: str) -> Row:
    """Counts of outcomes: of candidates, of twins, and of twins by operator."""
    plain = [row for row in rows if not row["planted"]]
    twins = [row for row in rows if row["planted"]]
    counts = Counter(row["outcome"] for row in rows)
    by_operator = {
        name: Counter(row["outcome"] for row in twins if row["planted"].startswith(f"{name}:"))
        for name in PLANTED
    }
    return {
        "template": template,
        "candidates": dict(Counter(row["outcome"] for row in plain)),
        "twins": dict(Counter(row["outcome"] for row in twins)),
        **{name: counts[name] for name in DISAGREEMENTS},
        "planted": {name: dict(outcomes) for name, outcomes in by_operator.items() if outcomes},
        "largest_rms_ratio": max((row["ratio"] for row in plain if row["ratio"]), default=None),
    }


if __name__ == "__main__":
    raise SystemExit(main())
