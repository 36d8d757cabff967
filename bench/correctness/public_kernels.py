"""How many kernels of public repositories does `greenfast check` run as they are?

    python -m bench.correctness.public_kernels llm.c=PATH cuda-samples=PATH [--only TEXT]
                                               [--first N] [--data FOLDER] [--jobs N] [--save]

public_kernels.txt holds a launch of each kernel, and none of their text. Each kernel is checked
from the command line. A kernel *ran* when the check ended with exit code 0 or 1. Prints the kernels
that did not, and why, and the findings. With --save the rows are stored as the result
`public_kernels`, beside those of kernels that did not run now; paths of checkouts are not.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.command_line import add_save, run_greenfast, script_parser
from bench.environment import environment
from bench.results import Row, read_result, write_result
from greenfast.search.text import one_line

TABLE = Path(__file__).with_suffix(".txt")
EXIT_CLEAN, EXIT_FINDINGS = 0, 1
LONGEST_SENTENCE = 300


@dataclass(frozen=True)
class PublicKernel:
    suite: str
    file: str
    options: tuple[str, ...]

    @property
    def entry(self) -> str:
        return self.options[self.options.index("--entry") + 1]


def table() -> Iterator[PublicKernel]:
    """The launches of public_kernels.txt."""
    for line in TABLE.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            suite, file, options = (part.strip() for part in line.split("|", 2))
            yield PublicKernel(suite, file, tuple(shlex.split(options)))


def checked(kernel: PublicKernel, checkout: Path, data: str) -> Row:
    """One kernel's row."""
    options = [f"-I={checkout / 'Common'}"] if (checkout / "Common").is_dir() else []
    begin = time.monotonic()
    process: subprocess.CompletedProcess[str] = run_greenfast(
        "check",
        str(checkout / kernel.file),
        *kernel.options,
        *[part for option in options for part in option.split("=")],
        "--json",
        data=data,
        check=False,
    )
    row: Row = {
        "suite": kernel.suite,
        "file": kernel.file,
        "entry": kernel.entry,
        "ran": process.returncode in (EXIT_CLEAN, EXIT_FINDINGS),
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - begin, 2),
    }
    if not row["ran"]:
        sentence = one_line(process.stderr).replace(str(checkout), "").removeprefix("greenfast: ")
        return {**row, "why": sentence[:LONGEST_SENTENCE], "findings": []}
    report = json.loads(process.stdout)
    findings = [
        {"kind": each["kind"], "count": each["count"], "sentence": each["sentence"]}
        for each in report["findings"]
    ]
    return {**row, "why": "", "findings": findings}


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="SUITE=PATH")
    parser.add_argument("--only", default="", help="only kernels whose file and entry contain this")
    parser.add_argument("--first", type=int, default=1, help="the list's kernels from this one on")
    parser.add_argument("--data", help="greenfast's data folder; its compiled emulator is kept")
    parser.add_argument("--jobs", type=int, default=1)
    add_save(parser)
    arguments = parser.parse_args()
    checkouts = dict(text.split("=", 1) for text in arguments.checkouts)
    kernels = [
        kernel
        for kernel in islice(table(), arguments.first - 1, None)
        if kernel.suite in checkouts and arguments.only in f"{kernel.file} {kernel.entry}"
    ]
    with (
        tempfile.TemporaryDirectory(prefix="greenfast-public-") as scratch,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        data = arguments.data or scratch
        rows = []
        for row in pool.map(
            lambda kernel: checked(kernel, Path(checkouts[kernel.suite]).resolve(), data), kernels
        ):
            print(_line(row), flush=True)
            rows.append(row)
    for suite in checkouts:
        of_suite = [row for row in rows if row["suite"] == suite]
        print(f"{suite}: {sum(row['ran'] for row in of_suite)} of {len(of_suite)} ran")
    if arguments.save:
        write_result("public_kernels", _with_other_kernels(rows))
    return 0


def _with_other_kernels(rows: list[Row]) -> Row:
    """The rows, and those that are stored of the list's other kernels; each has its commit."""
    now, stored = environment(), read_result("public_kernels")
    commits = stored.get("commits", {})  # of rows that were stored before rows had their own
    latest = {
        _key(row): {**row, "commit": row.get("commit") or commits[row["suite"]]}
        for row in stored["rows"]
    }
    latest |= {_key(row): {**row, "commit": now["commit"]} for row in rows}
    keys = [(kernel.suite, kernel.file, kernel.entry) for kernel in table()]
    return {"environment": now, "rows": [latest[key] for key in keys if key in latest]}


def _key(row: Row) -> tuple[str, str, str]:
    return row["suite"], row["file"], row["entry"]


def _line(row: Row) -> str:
    state = "ran" if row["ran"] else f"exit {row['exit_code']}"
    text = f"{state:7} {row['seconds']:6.1f} s  {row['file']} {row['entry']}  {row['why']}"
    return text + "".join(
        f"\n          {each['kind']} x{each['count']}: {each['sentence']}"
        for each in row["findings"]
    )


if __name__ == "__main__":
    sys.exit(main())
