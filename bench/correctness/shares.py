"""Runs a script over random candidates in many processes, one a core, each with its own rows.

    python -m bench.correctness.shares FOLDER [--processes 14] SCRIPT [options of the script]
    cat FOLDER/*.jsonl >> ROWS.jsonl
    python -m SCRIPT [the same options] --progress ROWS.jsonl --seconds 0 --save

SCRIPT takes --share and --progress: `bench.correctness.candidates_and_twins` or
`bench.model.model_hopper`. Process I works through share I and appends to FOLDER/I.jsonl, its
output goes to FOLDER/I.log. One process for all cores would be slower: its references and laid-out
inputs are computed by turns. The second and third command, also on another machine, join the rows
and store the result.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.command_line import script_parser
from bench.results import ROOT
from greenfast.search.cores import usable_cores

REPORT_EVERY_S = 30.0


def start(index: int, cores: list[int], options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Share `index` of the script, kept to one core, in a process group of its own."""
    command = [
        *(sys.executable, "-m", options.script, *options.rest),
        *("--share", f"{index}/{options.processes}"),
        *("--progress", str(options.folder / f"{index:02d}.jsonl")),
    ]
    with (options.folder / f"{index:02d}.log").open("ab") as log:
        os.sched_setaffinity(0, {cores[index % len(cores)]})  # the child inherits it
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def stored_rows(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))


def stop(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--processes", type=int, default=usable_cores())
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="options of the script")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begin, reported = time.monotonic(), 0.0
    cores = sorted(os.sched_getaffinity(0))
    children = [start(index, cores, options) for index in range(options.processes)]
    os.sched_setaffinity(0, cores)
    try:
        while any(child.poll() is None for child in children):
            time.sleep(0.5)
            if time.monotonic() - begin > reported + REPORT_EVERY_S:
                reported += REPORT_EVERY_S
                print(f"{reported:.0f} s: {stored_rows(options.folder)} rows", flush=True)
    finally:
        stop(children)
    # A script exits with 1 where a row shows a failure; other statuses are broken runs.
    broken = [index for index, child in enumerate(children) if child.returncode not in (0, 1)]
    print(f"{stored_rows(options.folder)} rows in {time.monotonic() - begin:.0f} s; {broken=}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
