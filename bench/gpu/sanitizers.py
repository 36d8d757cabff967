"""The album's kernels for Hopper under compute-sanitizer, beside the verdict that they must get.

    python -m bench.gpu.sanitizers OUT.json [--stored FILE] [--tools TOOL ...] [--seconds 140]
                                   [--processes 12] [--together 6] [--words WORD ...]
                                   [--prepare-only]

Each kernel runs on up to three of its derived checks. Each tool looks at all of them, a few kernels
in one process; each kernel's entry gets a name of its own, by which a report names it. A process
that loses its GPU context is followed by another for the rest. Kernels that never end, by the
album, are left out. Several processes share the GPU.

What OUT.json (or --stored) has of a kernel and a tool is kept and not run again, so that a second
call goes on where the first one ended. The file is written after each share of --together kernels,
and all processes end after --seconds. --prepare-only needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.correctness.album_subject import album_subject
from bench.correctness.random_candidates import DEVICE, catalogue
from bench.environment import basic_environment
from bench.results import ROOT, Row, read_json, write_json
from bench.session import Session, open_session
from greenfast.search.children import kill_group
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.album import Entry, entries
from greenfast.search.diagnose.profile import parse_sanitizer
from greenfast.search.digest import text_digest
from greenfast.search.gates import Subject
from greenfast.search.gates.safety import checked_problems
from greenfast.search.targets.cuda.arena import describe
from greenfast.search.toolchain import Cubin

TOOLS = ("initcheck", "synccheck", "memcheck", "racecheck")
KERNELS = ("pipe", "product", "relay", "gemm", "gemm_fp8")
TEMPLATES = ("wgmma", "decode")
NEVER_END = ("deadlock", "timeout")
PROBLEMS = 3
PROCESS_S = 60.0


def main() -> int:
    options = _options()
    if not options.prepare_only:
        require_gpu()
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="greenfast-sanitizers-") as name:
        folder = Path(name)
        jobs = prepared(folder, options.words)
        print(f"{len(jobs)} kernels prepared", flush=True)
        found = stored(options.stored or options.out, jobs)
        shares = shares_of(jobs, found, options.tools, options.together)
        print(f"{sum(len(share) for _, share in shares)} runs in {len(shares)} shares", flush=True)
        if options.prepare_only:
            return 0
        rows = publish(options.out, jobs, found)
        with ThreadPoolExecutor(options.processes) as pool:
            working = [
                pool.submit(Runs(folder / str(number), end).of, *share)
                for number, share in enumerate(shares)
            ]
            for done in as_completed(working):
                for kernel, tool, row in done.result():
                    found[kernel][tool] = row
                rows = publish(options.out, jobs, found)
    print(json.dumps(rows[0], indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--stored", type=Path, metavar="FILE", help="of an earlier call")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS, help="in this order")
    parser.add_argument(
        "--seconds", type=float, default=140.0, help="end all processes after these"
    )
    parser.add_argument("--processes", type=int, default=min(12, usable_cores()))
    parser.add_argument("--together", type=int, default=6, help="kernels in one process")
    parser.add_argument("--words", nargs="*", default=[""], help="of the entries' names")
    parser.add_argument("--prepare-only", action="store_true")
    return parser.parse_args()


Found = dict[str, dict[str, Row]]  # by kernel, then by tool


def stored(path: Path, jobs: list[Row]) -> Found:
    """What an earlier call found about these kernels."""
    rows = read_json(path)["rows"][1:] if path.is_file() else []
    tools = {row["name"]: row["tools"] for row in rows}
    return {job["name"]: dict(tools.get(job["name"], {})) for job in jobs}


def shares_of(
    jobs: list[Row], found: Found, tools: Sequence[str], together: int
) -> list[tuple[str, list[Row]]]:
    """What is not known yet: (tool, kernels of one process)."""
    shares = []
    for tool in tools:
        missing = [job for job in jobs if tool not in found[job["name"]]]
        count = -(-len(missing) // together)
        shares += [(tool, missing[start::count]) for start in range(count)]
    return shares


def publish(out: Path, jobs: list[Row], found: Found) -> list[Row]:
    rows = [{**job["about"], "tools": found[job["name"]]} for job in jobs]
    rows = [summary(rows), *rows]
    write_json(out, {"environment": {**basic_environment(), "tool": version()}, "rows": rows})
    return rows


@cache
def version() -> str:
    told = subprocess.run(
        ["compute-sanitizer", "--version"], capture_output=True, check=False, text=True
    )
    return next((line for line in told.stdout.splitlines() if "ersion" in line), "")


# ---- kernels ----


def selected(words: list[str]) -> list[Entry]:
    return [
        entry
        for entry in entries()
        if (entry.kernel in KERNELS or entry.template in TEMPLATES)
        and not set(NEVER_END) & {*entry.reasons, *entry.finds}
        and any(word in entry.id for word in words)
    ]


def prepared(folder: Path, words: list[str]) -> list[Row]:
    """Each kernel with its cubin and its launches in files."""
    opened = open_session(f"emulator:{DEVICE}", prefix="sanitizers", catalogue=catalogue())
    with opened as session, ThreadPoolExecutor(usable_cores()) as pool:
        numbered = enumerate(selected(words))
        jobs = pool.map(lambda item: job(session, folder / f"job{item[0]}", *item), numbered)
        return [each for each in jobs if each is not None]


def job(session: Session, folder: Path, number: int, entry: Entry) -> Row | None:
    folder.mkdir()
    subject = subject_of(session, entry, folder / "album")
    names = {name: f"{name}_of_{number}" for name in subject.source.entries}
    source = subject.source
    text, unit = (renamed(each, names) for each in (source.text, source.unit))
    source = replace(
        source, text=text, unit=unit, digest=text_digest(text), entries=tuple(names.values())
    )
    arch = device(DEVICE).compiled_arch(specific=source.arch_specific)
    cubin = session.toolchain.compile(source, arch)
    if not isinstance(cubin, Cubin):
        return None
    (folder / "kernel.cubin").write_bytes(cubin.code)
    problems = []
    for place, problem in enumerate(checked_problems(subject)[:PROBLEMS]):
        described = describe(problem, folder / f"images{place}")
        for launch in described["launches"]:
            launch["entry"] = names[launch["entry"]]
        problems.append(described)
    return {
        "name": entry.id,
        "entries": list(names.values()),
        "cubin": str(folder / "kernel.cubin"),
        "problems": problems,
        "about": {
            "name": entry.id,
            "template": entry.template,
            "right": not entry.stage,
            "stage": entry.stage,
            "reasons": list(entry.reasons),
            "finds": list(entry.finds),
        },
    }


def renamed(text: str, names: dict[str, str]) -> str:
    for name, to in names.items():
        text = re.sub(rf"\b{name}\b(?=\s*\()", to, text)
    return text


def subject_of(session: Session, entry: Entry, folder: Path) -> Subject:
    subject = album_subject(session, entry, folder)
    assert isinstance(subject, Subject), subject
    return subject


# ---- under a tool ----


@dataclass(frozen=True)
class Runs:
    """Processes of one share, in a folder of their own, until a time."""

    folder: Path
    end: float

    def of(self, tool: str, share: list[Row]) -> list[tuple[str, str, Row]]:
        """(kernel, tool, what the tool said) of each job, in as many processes as it takes."""
        self.folder.mkdir()
        rows: list[tuple[str, str, Row]] = []
        while share and time.monotonic() < self.end:
            said = self._process(tool, share, self.folder / str(len(rows)))
            if not said:
                break
            rows += [(kernel, tool, row) for kernel, row in said]
            share = share[len(said) :]
        return rows

    def _process(self, tool: str, share: list[Row], stem: Path) -> list[tuple[str, Row]]:
        request, log, out = (stem.with_suffix(ending) for ending in (".json", ".log", ".out"))
        request.write_text(json.dumps(share))
        command = ["compute-sanitizer", "--tool", tool, "--log-file", str(log)]
        command += ["--show-backtrace", "no", "--print-limit", "1000"]
        command += [sys.executable, "-m", "bench.gpu.sanitized_launches", str(request)]
        left_s = self.end - time.monotonic()
        ended = True
        with out.open("wb") as opened:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=opened, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                process.wait(min(PROCESS_S, left_s))
            except subprocess.TimeoutExpired:
                ended = False
            finally:
                kill_group(process)
        said = told(share, out, log, ended, alone=left_s > PROCESS_S)
        if not said and ended:
            print(f"{tool} began no kernel: {out.read_text()[-1000:]}", file=sys.stderr)
        return said


def told(
    share: list[Row], out: Path, log: Path, ended: bool, *, alone: bool
) -> list[tuple[str, Row]]:
    """The rows of the jobs that were judged: findings by entry, and how the launch ended.

    Where the process was stopped, the job in progress may have had too little time. It counts, as
    one that did not end, if it was `alone` in a process that had all its time.
    """
    lines = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    endings = {row["end"]: row["error"] for row in lines if "end" in row}
    begun = sum("begin" in row for row in lines)
    count = begun if ended else max(len(endings), min(begun, 1) if alone else 0)
    text = log.read_text(errors="replace") if log.is_file() else ""
    # A tool that was killed leaves no summary, and its reports count all the same.
    findings = parse_sanitizer(text + "\n========= ERROR SUMMARY: see above\n")
    rows = []
    for each in share[:count]:
        own = [finding for finding in findings if finding.entry in each["entries"]]
        row = {
            "kinds": dict(Counter(finding.kind for finding in own)),
            "first": own[0].sentence if own else "",
            "launch": endings.get(each["name"], "it did not end"),
        }
        rows.append((each["name"], row))
    return rows


def summary(rows: list[Row]) -> Row:
    return {
        "what": "summary",
        **{
            "right" if right else "wrong": {
                "kernels": len(of_kind),
                "with_a_report": {
                    tool: [
                        sum(bool(row["tools"][tool]["kinds"]) for row in judged),
                        len(judged),
                    ]
                    for tool in TOOLS
                    for judged in [[row for row in of_kind if tool in row["tools"]]]
                },
                "by_any_tool": sum(
                    any(each["kinds"] for each in row["tools"].values()) for row in of_kind
                ),
            }
            for right in (True, False)
            for of_kind in [[row for row in rows if row.get("right") is right]]
        },
    }


if __name__ == "__main__":
    raise SystemExit(main())
