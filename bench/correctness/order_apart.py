"""Kernels for Hopper, judged by the emulator's checks and by a second checker of other code.

    python -m bench.correctness.order_apart [--album] [--count 10] [--seed 0]
                                             [--templates attention/wgmma ...] [--progress FILE]
                                             [--save]

--album judges the album's entries of such kernels, correct and wrong; --count candidates of each
template are drawn at random. The two agree if both find something or both find nothing. Some
disagreements are explained in EXPLAINED. Exits 1 on one that is not.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.correctness.album_subject import album_subject
from bench.correctness.random_candidates import DEVICE, catalogue, draws_of
from bench.correctness.second_checker import Judgement, judge_apart
from bench.environment import publish
from bench.results import Row
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.diagnose.album import Entry, entries
from greenfast.search.errors import Fault
from greenfast.search.gates import Subject
from greenfast.search.gates.safety import checked_problems
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.verdict import Rejected

TEMPLATES = ("attention/wgmma", "attention_fp8/wgmma", "gemm/wgmma")
ALBUM_KERNELS = ("pipe", "product", "relay")  # all of whose entries are for Hopper
# Why a named entry of the album may be judged otherwise by the two.
EXPLAINED = {
    "relay-end_within_16_bytes": "a tensor store's bytes in global memory: not judged apart",
    "relay-store_read_before_its_end": "a bulk store's bytes in global memory: not judged apart",
    "gemm-bias_of_the_tokens": "a read of global memory beyond its buffer: not judged apart",
    "product-registers_beyond_the_pool": "the registers of a block: not judged apart",
}


def subjects_of_album(session: Session, folder: Path) -> Iterator[tuple[str, Entry, Subject]]:
    for number, entry in enumerate(entries()):
        if entry.kernel not in ALBUM_KERNELS and entry.template != "wgmma":
            continue
        subject = album_subject(session, entry, folder / str(number))
        if not isinstance(subject, Rejected):
            yield entry.id, entry, subject


def judged_row(name: str, group: str, subject: Subject, build: EmulatorBuild) -> Row:
    begin = time.monotonic()
    problems = list(checked_problems(subject))
    found: Counter[str] = Counter()
    first = ""
    for run in subject.target.check(subject.program, problems) or ():
        found.update(finding.kind for finding in run.findings)
        if run.findings and not first:
            first = f"{run.findings[0].sentence} {run.findings[0].where}"
    middle = time.monotonic()
    second = judge_apart(subject.source, problems, build)
    return {
        "name": name,
        "group": group,
        "emulator": dict(found),
        "second": dict(Counter(conflict.kind for conflict in second.conflicts)),
        "agrees": bool(found) == (not second.is_clean) and second.is_judged,
        "explained": EXPLAINED.get(name, ""),
        "emulator_first": first[:300],
        "second_first": _first(second)[:300],
        "clusters": second.clusters,
        "emulator_s": round(middle - begin, 2),
        "second_s": round(time.monotonic() - middle, 2),
    }


def _first(judgement: Judgement) -> str:
    return judgement.conflicts[0].sentence if judgement.conflicts else ""


def summary(rows: list[Row]) -> Row:
    return {
        "what": "summary",
        "groups": {
            group: {
                "judged": len(of_group),
                "both_clean": sum(not row["emulator"] and row["agrees"] for row in of_group),
                "both_find": sum(bool(row["emulator"]) and row["agrees"] for row in of_group),
                "same_kind": sum(
                    bool(set(row["emulator"]) & set(row["second"])) for row in of_group
                ),
                "disagreements": sum(not row["agrees"] for row in of_group),
                "explained": sum(not row["agrees"] and bool(row["explained"]) for row in of_group),
            }
            for group in dict.fromkeys(row["group"] for row in rows)
            for of_group in [[row for row in rows if row["group"] == group]]
        },
        "emulator_s": round(sum(row["emulator_s"] for row in rows), 1),
        "second_s": round(sum(row["second_s"] for row in rows), 1),
    }


def main() -> int:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--album", action="store_true")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--templates", nargs="*", choices=TEMPLATES, default=TEMPLATES)
    parser.add_argument("--words", nargs="*", default=[""], help="of the album's entries")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="resume from these rows")
    options = parser.parse_args()
    log: Path | None = options.progress
    rows = [json.loads(line) for line in log.open()] if log and log.exists() else []
    known = {row["name"] for row in rows}
    with (
        tempfile.TemporaryDirectory() as folder,
        open_session(f"emulator:{DEVICE}", prefix="apart", catalogue=catalogue()) as session,
    ):
        build = EmulatorBuild(session.folder, include_dirs=session.catalogue.include_dirs)

        def judge(name: str, group: str, subject: Subject) -> None:
            try:
                row = judged_row(name, group, subject, build)
            except Fault as fault:
                print(f"{name}: {fault}", file=sys.stderr, flush=True)
                return
            rows.append(row)
            if not row["agrees"]:
                print(json.dumps(row), file=sys.stderr, flush=True)
            if log:
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")

        with ThreadPoolExecutor(usable_cores()) as pool:
            for name, group, subject in works(session, Path(folder), options):
                if name not in known:
                    pool.submit(judge, name, group, subject)
    rows = [{**row, "explained": EXPLAINED.get(row["name"], "")} for row in rows]
    rows.sort(key=lambda row: (row["group"], row["name"]))
    publish("order_apart", [summary(rows), *rows], save=options.save)
    return int(any(not row["agrees"] and not row["explained"] for row in rows))


def works(session: Session, folder: Path, options: object) -> Iterator[tuple[str, str, Subject]]:
    if options.album:
        for name, entry, subject in subjects_of_album(session, folder):
            if any(word in name for word in options.words):
                yield name, "album, wrong" if entry.stage else "album, right", subject
    for template in options.templates:
        kernel, item = template.split("/")
        drawn = draws_of(session.catalogue, kernel, item, options.seed)
        for draw in islice(drawn, options.count):
            yield draw.name, template, draw.subject(session.target)


if __name__ == "__main__":
    raise SystemExit(main())
