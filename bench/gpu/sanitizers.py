"""The album's kernels for Hopper under compute-sanitizer, beside the verdict that they must get.

    python -m bench.gpu.sanitizers OUT.json [--seconds 110] [--processes 12] [--words WORD ...]
                                   [--prepare-only]

Each kernel runs on up to three of its derived checks. memcheck, racecheck, synccheck and initcheck
look at all of them, several kernels in one process; each kernel's entry gets a name of its own, by
which a report names it. A process that loses its GPU context is followed by another for the rest.
Kernels that never end, by the album, are left out. Racecheck comes first, since the order of
accesses is what the emulator alone judges. --prepare-only needs no GPU.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.correctness.album_subject import album_subject
from bench.correctness.random_candidates import DEVICE, catalogue
from bench.environment import basic_environment
from bench.results import ROOT, Row, write_json
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

TOOLS = ("racecheck", "memcheck", "initcheck", "synccheck")
KERNELS = ("pipe", "product", "relay", "gemm", "gemm_fp8")
TEMPLATES = ("wgmma", "decode")
NEVER_END = ("deadlock", "timeout")
PROBLEMS = 3
PROCESS_S = 60.0


def main() -> int:
    options = _options()
    if not options.prepare_only:
        require_gpu()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="greenfast-sanitizers-") as name:
        folder = Path(name)
        jobs = prepared(folder, options.words)
        print(f"{len(jobs)} kernels prepared in {time.monotonic() - began:.0f} s", flush=True)
        if options.prepare_only:
            return 0
        found: dict[str, dict[str, Row]] = {job["name"]: {} for job in jobs}
        shares = [
            (tool, jobs[start :: options.processes])
            for tool in TOOLS
            for start in range(options.processes)
        ]

        def look(number: int) -> None:
            tool, share = shares[number]
            for kernel, row in looked_at(tool, share, folder / str(number), began, options.seconds):
                found[kernel][tool] = row

        with ThreadPoolExecutor(options.processes) as pool:
            for _ in pool.map(look, range(len(shares))):
                rows = [{**job["about"], "tools": found[job["name"]]} for job in jobs]
                environment = {**basic_environment(), "tool": version()}
                write_json(
                    options.out, {"environment": environment, "rows": [summary(rows), *rows]}
                )
    print(json.dumps(summary(rows), indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=110.0, help="begin no process after these")
    parser.add_argument("--processes", type=int, default=min(12, usable_cores()))
    parser.add_argument("--words", nargs="*", default=[""], help="of the entries' names")
    parser.add_argument("--prepare-only", action="store_true")
    return parser.parse_args()


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


def looked_at(
    tool: str, share: list[Row], folder: Path, began: float, seconds: float
) -> Iterator[tuple[str, Row]]:
    """(kernel, what the tool said) of each job, in as many processes as it takes."""
    folder.mkdir()
    round_number = 0
    while share and time.monotonic() - began < seconds:
        round_number += 1
        request, log = folder / f"{round_number}.json", folder / f"{round_number}.log"
        request.write_text(json.dumps(share))
        command = ["compute-sanitizer", "--tool", tool, "--log-file", str(log)]
        command += ["--show-backtrace", "no", "--print-limit", "1000"]
        command += [sys.executable, "-m", "bench.gpu.sanitized_launches", str(request)]
        with (folder / f"{round_number}.out").open("wb") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                process.wait(PROCESS_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                kill_group(process)
        said = told(share, folder / f"{round_number}.out", log)
        yield from said
        if not said:
            raise SystemExit((folder / f"{round_number}.out").read_text()[-2000:])
        share = share[len(said) :]


def told(share: list[Row], out: Path, log: Path) -> list[tuple[str, Row]]:
    """The rows of the jobs that were begun: findings by entry, and how the launch ended."""
    begun = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    endings = {row["end"]: row["error"] for row in begun if "end" in row}
    text = log.read_text(errors="replace") if log.is_file() else ""
    # A tool that was killed leaves no summary, and its reports count all the same.
    findings = parse_sanitizer(text + "\n========= ERROR SUMMARY: see above\n")
    rows = []
    for each in share[: sum("begin" in row for row in begun)]:
        own = [finding for finding in findings if finding.entry in each["entries"]]
        rows.append(
            (
                each["name"],
                {
                    "kinds": dict(Counter(finding.kind for finding in own)),
                    "first": own[0].sentence if own else "",
                    "launch": endings.get(each["name"], "it did not end"),
                },
            )
        )
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
