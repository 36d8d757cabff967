"""Prove that a change of templates' texts leaves the machine code of candidates as it was.

BEFORE and AFTER are checkouts, or folders of templates. Candidates are rendered with both. Where
the texts differ, NVRTC compiles both, and the cubins are compared. No GPU is needed.

Rows are appended to OUT.json.rows as they come, and an interrupted run continues there. The exit
status is 1 when any machine code differs, and 2 when --seconds ended the run early.

python -m bench.correctness.same_machine_code BEFORE AFTER OUT.json [--recordings] [--count N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.command_line import script_parser
from bench.correctness.machine_code import difference, other_sections
from bench.correctness.pinned_points import recorded_points, result_points
from bench.correctness.template_pairs import (
    Pair,
    Point,
    catalogue_of,
    changed_templates,
    random_points,
    rendered_pair,
    select,
    templates_of,
)
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.toolchain.nvrtc import Cubin, Toolchain

DEVICE, ARCH, ARCH_SPECIFIC = "h200", "sm_90", "sm_90a"
SAME_TEXT, SAME_IMAGE, SAME_CODE = "same text", "same image", "same code"
SAME_REFUSAL, DIFFERENT = "refused alike", "different"
SAME = frozenset((SAME_TEXT, SAME_IMAGE, SAME_CODE, SAME_REFUSAL))
REPORT_EVERY_S = 10.0


def main() -> None:
    options = _options()
    before, after = templates_of(options.before), templates_of(options.after)
    names = options.template or changed_templates(before, after)
    points = {point.digest: point for point in _points(options, before, names)}
    comparison = Comparison(before, after, options.cores, Path(f"{options.out}.rows"))
    comparison.run(points, options.seconds)
    rows = comparison.rows
    verdicts = Counter(row["verdict"] for row in rows)
    write_json(
        options.out,
        {
            "toolchain": dict(comparison.toolchain.identity),
            "templates": list(names),
            "points": len(points),
            "verdicts": dict(sorted(verdicts.items())),
            "rows": sorted(rows, key=lambda row: row["name"]),
        },
    )
    print(f"{len(rows)} of {len(points)} points: {dict(sorted(verdicts.items()))}")
    for row in itertools.islice((row for row in rows if row["verdict"] == DIFFERENT), 10):
        print(f"different: {row['name']}: {row['why']}")
    raise SystemExit(1 if verdicts[DIFFERENT] else 2 if len(rows) < len(points) else 0)


class Comparison:
    """Compares points with several compilers at once, and appends a row for each to a file."""

    def __init__(self, before: Path, after: Path, cores: int, log: Path) -> None:
        self._before, self._after = catalogue_of(before), catalogue_of(after)
        self._cores, self._log, self._lock = cores, log, threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="machine-code-")
        self.toolchain = Toolchain(Path(self._folder.name), cores)
        self.rows: list[Row] = []

    def run(self, points: dict[str, Point], seconds: float) -> None:
        """Compare the points that the file holds no row of, for so many seconds at most."""
        self._read(points)
        done = {row["point"] for row in self.rows}
        left = [point for digest, point in points.items() if digest not in done]
        begin, reported = time.monotonic(), time.monotonic()
        with ThreadPoolExecutor(self._cores) as pool:
            for _ in pool.map(lambda point: self._work(point, begin + seconds), left):
                if time.monotonic() - reported > REPORT_EVERY_S:
                    reported = time.monotonic()
                    print(f"{len(self.rows)} of {len(points)}, {reported - begin:.0f} s",
                          file=sys.stderr, flush=True)  # fmt: skip
        self._folder.cleanup()

    def _read(self, points: dict[str, Point]) -> None:
        """Rows of an earlier run, as far as today's texts are the compared ones."""
        if not self._log.exists():
            return
        for line in self._log.read_text().splitlines():
            row = json.loads(line)
            if row["point"] in points:
                pair = rendered_pair(self._before, self._after, points[row["point"]])
                if (row["before"], row["after"]) == (pair.before.digest, pair.after.digest):
                    self.rows.append(row)

    def _work(self, point: Point, end: float) -> None:
        if time.monotonic() > end:
            return
        pair = rendered_pair(self._before, self._after, point)
        verdict, why = self._verdict(pair)
        row = {
            "point": point.digest,
            "name": point.name,
            "template": point.template,
            "before": pair.before.digest,
            "after": pair.after.digest,
            "verdict": verdict,
            "why": why,
        }
        with self._lock:
            self.rows.append(row)
            with self._log.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def _verdict(self, pair: Pair) -> tuple[str, str]:
        if pair.is_same_text:
            return SAME_TEXT, ""
        arch = ARCH_SPECIFIC if pair.after.arch_specific else ARCH
        one, other = (self.toolchain.compile(text, arch) for text in (pair.before, pair.after))
        if isinstance(one, Cubin) and isinstance(other, Cubin):
            if one.code == other.code:
                return SAME_IMAGE, ""
            why = difference(one, other)
            return (DIFFERENT, why) if why else (SAME_CODE, other_sections(one, other))
        if not isinstance(one, Cubin) and not isinstance(other, Cubin):
            same = one.reason == other.reason
            return (SAME_REFUSAL if same else DIFFERENT), f"{one.sentence}; {other.sentence}"
        return DIFFERENT, "only one of them compiles"


def _points(options: argparse.Namespace, before: Path, names: Sequence[str]) -> Iterator[Point]:
    kernels = catalogue_of(before)
    if options.recordings:
        yield from itertools.islice(recorded_points(kernels, set(names)), options.recorded)
        if options.recorded is None:
            yield from result_points(kernels, set(names))
    for kernel, template in select(names, kernels):
        yield from random_points(kernel, template, device(DEVICE), options.seed, options.count)


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--template", action="append", metavar="KERNEL/NAME", help="only this one")
    parser.add_argument(
        "--recordings", action="store_true", help="also those of recordings and results"
    )
    parser.add_argument("--recorded", type=int, metavar="N", help="N recorded ones only")
    parser.add_argument("--count", type=int, default=100, help="random points of each template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, default=usable_cores())
    parser.add_argument("--seconds", type=float, default=3600.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
