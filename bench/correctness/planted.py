"""Every kernel of the album against its expected verdict: gate, reason, line and time.

    python -m bench.correctness.planted [WORD ...] [--save]

With WORDs, only the entries whose name contains one of them. Exits 1 if a verdict is not as
expected.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.diagnose.album import Entry, Judged, catalogue_of, entries, judge
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.verdict import Rejected, verdict_name

SHORT_DEADLINE_S = 3.0  # for a kernel that does not end
STAGES = ("render", "compile", "ptxas", "correctness", "safety")


def album_row(judged: Judged) -> Row:
    entry, verdict = judged.entry, judged.evaluated.verdict
    rejection = (
        {
            "stage": str(verdict.stage),
            "reason": str(verdict.reason),
            "sentence": verdict.sentence[:400],
        }
        if isinstance(verdict, Rejected)
        else {}
    )
    first = judged.findings[0] if judged.findings else None
    return {
        "kernel": entry.kernel,
        "kind": entry.kind,
        "name": entry.name,
        "expected": entry.stage or "green",
        "expected_reasons": list(entry.reasons),
        "verdict": verdict_name(verdict),
        **rejection,
        "finding": f"{first.kind} at {first.where}, against {first.other_where}" if first else "",
        "as_expected": not judged.sentence,
        "mismatch": judged.sentence,
        "seconds": round(judged.evaluated.duration_s, 2),
    }


def album_rows(session: Session, selected: list[Entry]) -> list[Row]:
    """The entries' rows, on all cores."""
    settings = TargetSettings(session.folder, session.catalogue.include_dirs, 2, SHORT_DEADLINE_S)
    impatient = open_target("emulator:h200", settings)

    def judged_row(entry: Entry, folder: Path, target: Target) -> Row:
        folder.mkdir()
        row = album_row(judge(entry, catalogue_of(entry, folder), target, session.toolchain))
        if not row["as_expected"]:
            print(f"{entry.id}: {row['mismatch']}", file=sys.stderr, flush=True)
        return row

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(usable_cores()) as pool:
        jobs = [
            pool.submit(
                judged_row,
                entry,
                Path(folder) / f"patch{number}",
                impatient if entry.impatient else session.target,
            )
            for number, entry in enumerate(selected)
        ]
        return [job.result() for job in jobs]


def summary(rows: list[Row], seconds: float) -> Row:
    broken = [row for row in rows if row["expected"] != "green"]
    correct = [row for row in rows if row["expected"] == "green"]
    return {
        "what": "summary",
        "broken": len(broken),
        "caught_as_named": sum(row["as_expected"] for row in broken),
        "right": len(correct),
        "passed": sum(row["as_expected"] for row in correct),
        "caught_by": {stage: sum(row.get("stage") == stage for row in broken) for stage in STAGES},
        "with_a_finding": sum(bool(row["finding"]) for row in rows),
        "wall_s": round(seconds, 1),
    }


def main() -> int:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    words, begin = options.words or [""], time.monotonic()
    selected = [entry for entry in entries() if any(word in entry.id for word in words)]
    with open_session("emulator:h200", prefix="planted", workers=2) as session:
        rows = album_rows(session, selected)
    publish("planted", [summary(rows, time.monotonic() - begin), *rows], save=options.save)
    return 0 if all(row["as_expected"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
