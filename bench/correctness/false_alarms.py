"""Correct candidates under the emulator's checks: every finding in one of them is a false alarm.

    python -m bench.correctness.false_alarms [--count 1000] [--seconds 900] [--seed 0]
                                             [--progress FILE] [--save]

Candidates are drawn at random, all different. Each runs every derived check of its kernel once
in the checked build, in alternating schedules. With --progress a run resumes an earlier one of
the same seed. Exits 1 on an alarm.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice

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
from greenfast.search.gates.safety import checked_problems
from greenfast.search.targets.base import Target

SHIPPED = ("attention", "attention_fp8", "rmsnorm")


def check(draw: Draw, target: Target) -> Row:
    begin = time.monotonic()
    subject = draw.subject(target)
    alarms, runs = [], 0
    for run in target.check(subject.program, checked_problems(subject)):
        runs += 1
        alarms += [
            {
                "kind": finding.kind,
                "sentence": finding.sentence,
                "check": run.problem.case.name,
                "order": run.order,
                "where": finding.where,
                "other_where": finding.other_where,
            }
            for finding in run.findings
        ]
    return {
        "candidate": draw.name,
        "digest": draw.source.digest,
        "template": f"{draw.kernel.name}/{draw.template.name}",
        "runs": runs,
        "alarms": alarms,
        "seconds": round(time.monotonic() - begin, 2),
    }


def remark(row: Row) -> str:
    return f"{row['candidate']}: {row['alarms'][0]['sentence']}" if row["alarms"] else ""


def main() -> int:
    options = random_options(__doc__, 1000)
    kernels = catalogue()
    drawn = islice(draws(kernels, options.seed, SHIPPED), options.count)
    works = {draw.source.digest: draw for draw in drawn}
    with open_session(f"emulator:{DEVICE}", prefix="alarms", catalogue=kernels) as session:
        target = session.target
        controls = controls_found(kernels, target)
        rows = work_through(works, "digest", lambda draw: check(draw, target), remark, options)
    alarmed = [row for row in rows if row["alarms"]]
    summary = {
        "what": "summary",
        "seed": options.seed,
        "asked": options.count,
        "candidates": len(rows),
        "by_template": dict(Counter(row["template"] for row in rows)),
        "checked_runs": sum(row["runs"] for row in rows),
        "candidates_with_an_alarm": len(alarmed),
        "controls_found": list(controls),
        "alarms_by_kind": dict(
            Counter(alarm["kind"] for row in alarmed for alarm in row["alarms"])
        ),
        "candidate_seconds": round(sum(row["seconds"] for row in rows), 1),
    }
    publish("false_alarms", [summary, *alarmed], save=options.save)
    return 1 if alarmed else 0


if __name__ == "__main__":
    raise SystemExit(main())
