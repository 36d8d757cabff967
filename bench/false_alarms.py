"""Right candidates under the checks: anything that is found in one of them is a false alarm.

    bench/false_alarms.py [--count 1000] [--seconds 900] [--seed 0] [--progress FILE] [--save]

Candidates are drawn at random, all different; each runs every derived check of its kernel once in the checked
build, schedules by turns. With --progress a run goes on where an earlier one of the same seed ended.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.environment import publish
from bench.random_candidates import DEVICE, Draw, catalogue, controls_found, draws
from search.gates.safety import checked_problems
from search.targets import TargetSettings, open_target
from search.targets.base import Target


def check(draw: Draw, target: Target) -> dict:
    begin = time.monotonic()
    subject = draw.subject(target)
    alarms, runs = [], 0
    for run in target.check(subject.program, checked_problems(subject)):
        runs += 1
        alarms += [{"kind": one.kind, "sentence": one.sentence, "check": run.problem.case.name, "order": run.order,
                    "where": one.where, "other_where": one.other_where} for one in run.findings]
    return {"candidate": draw.name, "digest": draw.source.digest, "template": f"{draw.kernel.name}/{draw.template.name}",
            "runs": runs, "alarms": alarms, "seconds": round(time.monotonic() - begin, 2)}


def earlier(path: Path | None) -> dict[str, dict]:
    """Rows that an interrupted run left, by digest of the source."""
    if path is None or not path.exists():
        return {}
    return {row["digest"]: row for row in map(json.loads, path.read_text().splitlines())}


def work_through(chosen: list[Draw], options: argparse.Namespace, target: Target) -> list[dict]:
    """A row each, of as many as the time allows."""
    done, lock, begin = earlier(options.progress), threading.Lock(), time.monotonic()
    rows = [done[one.source.digest] for one in chosen if one.source.digest in done]
    log = open(options.progress, "a") if options.progress else None

    def work(draw: Draw) -> None:
        if time.monotonic() - begin > options.seconds:
            return
        row = check(draw, target)
        with lock:
            rows.append(row)
            if log:
                log.write(json.dumps(row) + "\n")
                log.flush()
            if row["alarms"] or len(rows) % 50 == 0:
                first = f": {row['candidate']}: {row['alarms'][0]['sentence']}" if row["alarms"] else ""
                print(f"{len(rows)} of {len(chosen)}, {time.monotonic() - begin:.0f} s{first}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, [one for one in chosen if one.source.digest not in done]):
            pass
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    kernels = catalogue()
    chosen = list(islice(draws(kernels, options.seed), options.count))
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(os.environ.get("GREENFAST_BENCH_CACHE", folder))
        target = open_target(f"emulator:{DEVICE}", TargetSettings(cache, kernels.include_dirs, 1))
        target.prepare()
        controls = controls_found(kernels, target)
        rows = work_through(chosen, options, target)
    alarmed = [row for row in rows if row["alarms"]]
    summary = {"what": "summary", "seed": options.seed, "asked": options.count, "candidates": len(rows),
               "by_template": dict(Counter(row["template"] for row in rows)), "checked_runs": sum(row["runs"] for row in rows),
               "candidates_with_an_alarm": len(alarmed), "controls_found": list(controls),
               "alarms_by_kind": dict(Counter(one["kind"] for row in alarmed for one in row["alarms"])),
               "candidate_seconds": round(sum(row["seconds"] for row in rows), 1)}
    publish("false_alarms", [summary, *alarmed])
    return 1 if alarmed else 0


if __name__ == "__main__":
    raise SystemExit(main())
