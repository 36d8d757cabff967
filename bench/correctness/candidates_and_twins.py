"""Random candidates of the newest templates and wrong twins, judged by gates and apart from them.

    python -m bench.correctness.candidates_and_twins [--templates gemm/wgmma ...] [--count 300]
        [--twins 60] [--first 0] [--seconds 900] [--seed 0] [--progress FILE] [--share I/N] [--save]

Each candidate is a random valid point. The gates `correctness` and `safety` judge it on the
emulator, and so does the independent checker (bench/correctness/independent/), which imports
nothing of greenfast. A twin of a candidate has one fault of an asynchronous pipeline
(asynchronous_mutation.py): a wait that is missing, a wrong phase, too few bytes expected. A twin
that the gates pass is equivalent (known_asynchronous.py says why) or was missed.

`bench.correctness.shares` runs it in many processes.

Exits 1 where a candidate is rejected by only one of the two, or a twin was missed.
"""

from __future__ import annotations

import argparse
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bench.correctness.asynchronous_mutation import asynchronous_mutants
from bench.correctness.independent_judging import on_emulator
from bench.correctness.independent_works import Work, random_work
from bench.correctness.known_asynchronous import explained
from bench.correctness.random_candidates import random_parser, work_through
from bench.environment import publish
from bench.results import Row, finite
from bench.session import Session, open_session
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.verdict import Outcome

TEMPLATES = (
    "gemm/mma",
    "gemm/wgmma",
    "gemm_fp8/wgmma",
    "attention/wgmma",
    "attention/decode",
    "attention_fp8/wgmma",
)
DEADLINE_S = 20.0  # a twin may never end
ATTEMPTS = 20  # to find a twin that compiles


@dataclass(frozen=True)
class Task:
    """A candidate by its number, or a twin of the candidate with that number."""

    template: str  # kernel/template
    number: int
    is_twin: bool

    @property
    def key(self) -> str:
        return f"{self.template} {'twin' if self.is_twin else 'candidate'} {self.number}"


def tasks(templates: Sequence[str], count: int, twins: int, first: int = 0) -> Iterator[Task]:
    """Numbers in turns over the templates, so that a run that is cut short has all of them.

    Numbers begin with `first`; those before it come last.
    """
    most = max(count, twins)
    for number in (*range(first, most), *range(min(first, most))):
        for template in templates:
            if number < count:
                yield Task(template, number, is_twin=False)
            if number < twins:
                yield Task(template, number, is_twin=True)


def task_row(task: Task, session: Session, seed: int) -> Row:
    """The verdicts of the gates and of the checker on one candidate or twin."""
    begin = time.monotonic()
    kernel_name, _, template_name = task.template.partition("/")
    kernel = session.catalogue.kernel(kernel_name)
    template = kernel.template(template_name)
    rng = random.Random(f"{seed} {task.template} {task.number}")
    work = random_work(task.number, kernel, template, session, rng)
    judged = _twin_row(work, kernel, session, rng) if task.is_twin else _row(work, kernel, session)
    return {
        "key": task.key,
        "template": task.template,
        "twin": task.is_twin,
        "compiled": dict(work.compiled),
        "parameters": work.candidate.values(),
        "source": work.source.digest[:16],
        **judged,
        "seconds": round(time.monotonic() - begin, 2),
    }


def _twin_row(work: Work, kernel: KernelSpec, session: Session, rng: random.Random) -> Row:
    """The verdicts on the first twin that compiles."""
    for mutant in islice(asynchronous_mutants(work.source.unit, rng), ATTEMPTS):
        source = replace(
            work.source, unit=mutant.unit, digest=f"twin {rng.random()} of {work.source.digest}"
        )
        try:
            judged = _row(replace(work, source=source), kernel, session)
        except Fault as fault:
            if fault.code != "emulator_unsupported":
                raise
            continue
        planted = {"operator": mutant.operator, "before": mutant.before, "after": mutant.after}
        return {**planted, "following": mutant.following, "block": mutant.block, **judged}
    return {"outcome": "nothing to change"}


def _row(work: Work, kernel: KernelSpec, session: Session) -> Row:
    # As in a search, three cases have sizes that nobody could know beforehand.
    context = session.context(
        kernel, compiled=work.compiled, seed=work.id, sizes_secret=secrets.randbits(63)
    )
    subject = context.subject(work.candidate, work.source, None)
    gate, reason, sentence = gates(subject)
    judged = replace(work, subject=subject)
    on_emulator(judged, kernel, session.target)
    return {
        "outcome": outcome(gate, judged.checker or ""),
        "gate": gate,
        "reason": reason,
        "sentence": sentence[:300],
        "checker": (judged.checker or "")[:300],
        "ratio": finite(judged.ratio),
    }


def gates(subject: Subject) -> tuple[str, str, str]:
    """The rejecting gate with its reason and sentence; empty if both pass."""
    for gate in (CorrectnessGate(), SafetyGate()):
        result = gate.judge(subject)
        if result.outcome is Outcome.FAILED:
            return gate.name, str(result.reason), result.sentence
        if result.outcome is not Outcome.PASSED:
            raise Fault(f"{gate.name} is {result.outcome}: {result.sentence}", code="not_judged")
    return "", "", ""


def outcome(gate: str, checker: str) -> str:
    if gate:
        return "both reject" if checker else "only the gates reject"
    return "only the checker rejects" if checker else "both accept"


def template_summary(template: str, rows: Sequence[Row], options: argparse.Namespace) -> Row:
    own = [row for row in rows if row["template"] == template]
    plain = [row for row in own if not row["twin"]]
    twins = [row for row in own if row["twin"] and row["outcome"] != "nothing to change"]
    return {
        "what": "summary",
        "template": template,
        "seed": options.seed,
        "asked": options.count,
        "candidates": len(plain),
        "right rejected": sum(row["outcome"] == "only the gates reject" for row in plain),
        "wrong accepted": sum(row["outcome"] == "only the checker rejects" for row in own),
        "outcomes": dict(Counter(row["outcome"] for row in plain)),
        "twins": len(twins),
        "twin_outcomes": dict(Counter(row["verdict"] for row in twins)),
        "twin_reasons": dict(Counter(row["reason"] for row in twins if row["reason"])),
        "checker_alone_overlooks": sum(row["outcome"] == "only the gates reject" for row in twins),
        "by_operator": {
            name: dict(Counter(row["verdict"] for row in twins if row["operator"] == name))
            for name in sorted({row["operator"] for row in twins})
        },
        "seconds": round(sum(row["seconds"] for row in own), 1),
    }


def remark(row: Row) -> str:
    if row["outcome"] == "only the checker rejects" or (
        row["outcome"] == "only the gates reject" and not row["twin"]
    ):
        return f"{row['outcome']}: {row['key']} {row['sentence']}{row['checker']}"
    return f"survived: {row['key']} {row['before']}" if _survived(row) else ""


def _survived(row: Row) -> bool:
    return row["twin"] and row["outcome"] == "both accept"


def with_verdict(row: Row) -> Row:
    """A twin's verdict: the gate that rejects it, `equivalent` with the reason, or `missed`."""
    if not row["twin"] or row["outcome"] == "nothing to change":
        return row
    if row["gate"]:
        return {**row, "verdict": f"rejected by {row['gate']}"}
    return explained(row)


def failures(summaries: Sequence[Row]) -> int:
    return sum(
        row["right rejected"] + row["wrong accepted"] + row["twin_outcomes"].get("missed", 0)
        for row in summaries
    )


def main() -> int:
    parser = random_parser(__doc__, 300)
    parser.add_argument("--twins", type=int, default=60)
    parser.add_argument(
        "--first", type=int, default=0, help="begin with this number; those before it come last"
    )
    parser.add_argument("--templates", nargs="+", choices=TEMPLATES, default=TEMPLATES)
    options = parser.parse_args()
    numbered = tasks(options.templates, options.count, options.twins, options.first)
    works = {task.key: task for task in numbered}
    with open_session("emulator:h200", prefix="apart", run_deadline_s=DEADLINE_S) as session:
        rows = work_through(
            works, "key", lambda task: task_row(task, session, options.seed), remark, options
        )
    rows = [with_verdict(row) for row in sorted(rows, key=lambda row: str(row["key"]))]
    summaries = [template_summary(name, rows, options) for name in options.templates]
    publish("candidates_and_twins", [*summaries, *rows], save=options.save)
    return 1 if failures(summaries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
