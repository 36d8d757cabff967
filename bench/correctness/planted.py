"""Every kernel of the album against what must be said of it: which gate said no, why, at which line, how fast.

bench/correctness/planted.py [WORD ...] [--save]      only the entries whose name holds one of the words
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.environment import publish
from greenfast.search.cores import usable_cores
from greenfast.search.diagnose.album import Entry, Judged, catalogue_of, entries, judge
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Rejected, verdict_name

ENOUGH_S = 3.0  # for a kernel that does not end


def row(judged: Judged) -> dict:
    entry, verdict = judged.entry, judged.evaluated.verdict
    said = (
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
        **said,
        "finding": f"{first.kind} at {first.where}, against {first.other_where}" if first else "",
        "as_expected": not judged.sentence,
        "mismatch": judged.sentence,
        "seconds": round(judged.evaluated.duration_s, 2),
    }


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    chosen = [one for one in entries() if not words or any(word in one.id for word in words)]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(os.environ.get("GREENFAST_BENCH_CACHE", folder))
        toolchain = Toolchain(cache, usable_cores())
        settings = dict(
            cache_folder=cache, include_dirs=(REPOSITORY_TEMPLATES / "include",), workers=2
        )
        patient = open_target("emulator:h200", TargetSettings(**settings))
        impatient = open_target(
            "emulator:h200", TargetSettings(**settings, run_deadline_s=ENOUGH_S)
        )
        patient.prepare()

        def work(numbered: tuple[int, Entry]) -> dict:
            number, entry = numbered
            own = Path(folder) / f"patch{number}"
            own.mkdir()
            found = row(
                judge(
                    entry,
                    catalogue_of(entry, own),
                    impatient if entry.impatient else patient,
                    toolchain,
                )
            )
            if not found["as_expected"]:
                print(f"{entry.id}: {found['mismatch']}", file=sys.stderr, flush=True)
            return found

        with ThreadPoolExecutor(usable_cores()) as pool:
            rows = list(pool.map(work, enumerate(chosen)))
        toolchain.close()
    broken = [one for one in rows if one["expected"] != "green"]
    right = [one for one in rows if one["expected"] == "green"]
    summary = {
        "what": "summary",
        "broken": len(broken),
        "caught_as_named": sum(one["as_expected"] for one in broken),
        "right": len(right),
        "passed": sum(one["as_expected"] for one in right),
        "caught_by": {
            stage: sum(one.get("stage") == stage for one in broken)
            for stage in ("render", "compile", "ptxas", "correctness", "safety")
        },
        "with_a_finding": sum(bool(one["finding"]) for one in rows),
        "wall_s": round(time.monotonic() - begin, 1),
    }
    publish("planted", [summary, *rows])
    return 0 if all(one["as_expected"] for one in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
