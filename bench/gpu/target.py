"""The GPU target on a GPU: the truth of its times, its rate of trials, and the album.

    python -m bench.gpu.target OUT.json [--trials 120]
    python -m bench.gpu.target OUT.json --quick           only a search of 30 seconds
    python -m bench.gpu.target OUT.json --album [ENTRY ...]

Compares kernels of equal time and slightly slower twins a hundred times, runs a search for
attention, measures its best candidates again in fresh processes, times the recovery from a
hanging candidate, and runs the album. Each part is written as soon as it is done, with all
samples. --quick gives trials a minute and where the time goes. --album runs only the album, or
the entries named, and replaces their rows in OUT.json.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.command_line import script_parser
from bench.gpu.recorder import Recorder, trial_row, verdict_and_reason
from bench.results import ROOT, Row, read_json, write_json
from bench.session import Session, open_session
from bench.speed.thread_sampler import ThreadSampler
from greenfast.search.acceptance import measured_decision
from greenfast.search.cores import usable_cores
from greenfast.search.diagnose.album import Entry, catalogue_of, entries
from greenfast.search.gates.performance import timed_problems
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, prepare
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History, RunResult
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Rival
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Trial, performance_of, verdict_name
from tests.gpu.spins import spin

COMPARISONS, HANGS, REPEATED_BEST, PROCESSES = 100, 3, 5, 3
RUN_DEADLINE_S, QUICK_S = 3.0, 30.0
LARGE_BYTES = 8 * 2**24  # that the stopwatch's large workload moves
# (cycles, workload): an empty node, spins of known length, and a copy larger than the L2.
KNOWN_TIMES = ((0, "small"), (20000, "small"), (100000, "small"), (2000000, "small"), (0, "large"))
TWINS = ((100000, "equal"), (103000, "3 % slower"), (101000, "1 % slower"))


def main() -> None:
    options = _options()
    watches = Catalogue([REPOSITORY_TEMPLATES, ROOT / "tests" / "gpu" / "kernels"])
    opened = time.perf_counter()
    with open_session(
        "cuda:0", prefix="target", catalogue=watches, run_deadline_s=RUN_DEADLINE_S
    ) as session:
        if options.album is not None:
            replace_album(options.out, album_rows(session, options.album))
            return
        result = Result(options.out, session.environment())
        result.add({"what": "start", "seconds": round(time.perf_counter() - opened, 2)})
        if options.quick:
            result.add(Searched(session, options.trials, QUICK_S).row())
            return
        result.add(*known_times(session))
        for cycles, label in TWINS:
            result.add(comparisons(session, spin(cycles, twin=1), label))
        result.add(hang(session))
        search = Searched(session, options.trials)
        result.add(search.row())
        session.target.close()  # its child must not hold the GPU while others measure
        result.add(*again(search))
        session.target.prepare()
        result.add(album_summary(album_rows(session)))


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--trials", type=int, default=120)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--quick", action="store_true", help="only a short search")
    only.add_argument("--album", nargs="*", metavar="ENTRY", help="only the album")
    return parser.parse_args()


class Result:
    """A file that grows row by row, and a line on stdout for each."""

    def __init__(self, out: Path, environment: Row) -> None:
        self._out, self._environment = out, environment
        self._rows: list[Row] = []

    def add(self, *rows: Row) -> None:
        self._rows += rows
        write_json(self._out, {"environment": self._environment, "rows": self._rows})
        for row in rows:
            print(without_samples(row), flush=True)


def without_samples(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("samples", "trials")}


def _context(session: Session, kernel: str, workload: str) -> EvaluationContext:
    spec = session.catalogue.kernel(kernel)
    return session.context(spec, spec.workload(workload))


def known_times(session: Session) -> list[Row]:
    """Times that can be computed from clock rates, as the target measures them."""
    rows = []
    for cycles, workload in KNOWN_TIMES:
        context = _context(session, "stopwatch", workload)
        timing = performance_of(evaluate(spin(cycles), context).verdict).timings[0]
        row = {
            "what": "known time",
            "cycles": cycles,
            "workload": workload,
            "us": timing.time_median_us,
            "note": timing.note,
            **dict(timing.detail),
            "samples": timing.samples,
        }
        if workload == "large":
            row["tb_per_s"] = round(LARGE_BYTES / timing.time_median_us / 1e6, 3)
        rows.append(row)
    return rows


def comparisons(session: Session, candidate: Candidate, label: str) -> Row:
    """The decisions of many comparisons of a kernel with its twin."""
    context = _context(session, "stopwatch", "small")
    subject, other = (prepare(item, context) for item in (candidate, spin(100000)))
    rival = Rival(other.program, timed_problems(other))
    problems = timed_problems(subject)
    decisions, medians, widths = Counter[str](), [], []
    started = time.perf_counter()
    for number in range(COMPARISONS):
        # Another seed gives another order of blocks.
        varied = [replace(problem, case=replace(problem.case, seed=number)) for problem in problems]
        timings = session.target.measure(subject.program, subject.cubin, varied, rival)
        decision, interval = measured_decision(timings)
        decisions[decision.value] += 1
        medians.append(round(interval.median, 6))
        widths.append(round(interval.high - interval.low, 6))
    return {
        "what": "comparisons",
        "twin": label,
        "said": dict(decisions),
        "median_of_widths": sorted(widths)[len(widths) // 2],
        "seconds_each": round((time.perf_counter() - started) / COMPARISONS, 3),
        "samples": medians,
    }


def hang(session: Session) -> Row:
    """Seconds until an endless candidate is rejected, and from then to the next result."""
    context, target = _context(session, "stopwatch", "small"), session.target
    short, endless = (prepare(spin(cycles, context)) for cycles in (20000, 10**12))
    problems = list(timed_problems(short))
    list(target.execute(short.program, problems))
    rejected_s, recovered_s = [], []
    for _ in range(HANGS):
        begin = time.perf_counter()
        (hung,) = target.execute(endless.program, problems)
        middle = time.perf_counter()
        (after,) = target.execute(short.program, problems)
        assert hung.failure is not None and after.failure is None
        rejected_s.append(round(middle - begin, 3))
        recovered_s.append(round(time.perf_counter() - middle, 3))
    return {
        "what": "hang",
        "deadline_s": RUN_DEADLINE_S,
        "until_rejected_s": rejected_s,
        "rejected_to_next_result_s": recovered_s,
    }


class Searched:
    """A search for attention, run when this is made, with the time spent in each stage."""

    def __init__(self, session: Session, trials: int, seconds: float | None = None) -> None:
        request = SearchRequest(
            "attention",
            workloads=("mission",),
            target="cuda:0",
            strategy="tpe",
            trials=trials,
            seed=5,
            seconds=seconds,
            confirm=False,
        )
        # Trials are recorded in order: a wide window keeps a slow one from holding up the GPU.
        self.plan = make_plan(request, session.catalogue, window=2 * usable_cores())
        self.context, self.recorder = _context(session, "attention", "mission"), Recorder()
        self.compile_s, sampler = _timed_compiles(session.toolchain), ThreadSampler()
        self.session = session
        session.target.spans.clear()
        sampler.start()
        started = time.perf_counter()
        run = SearchRun(self.plan, self.context, self.recorder, History())
        self.result: RunResult = run.run()
        self.seconds = time.perf_counter() - started
        self.threads_in = sampler.result()

    def row(self) -> Row:
        trials, at_s = self.recorder.trials, self.recorder.at_s
        half = len(at_s) // 2
        later = (len(at_s) - half - 1) / (at_s[-1] - at_s[half]) * 60 if half else 0.0
        child_s = sorted(self.session.target.spans.items())
        return {
            "what": "search",
            "ended": self.result.ended,
            "window": self.plan.window,
            "seconds": round(self.seconds, 2),
            "count": len(trials),
            "trials_per_minute": round(len(trials) / self.seconds * 60, 1),
            "second_half_trials_per_minute": round(later, 1),
            "said": dict(Counter(map(verdict_and_reason, trials))),
            "thread_seconds": {"compile": round(sum(self.compile_s), 2)},
            "gpu_child_seconds": {name: round(seconds, 2) for name, seconds in child_s},
            "threads_in": self.threads_in,
            "trials": [detailed_row(trial) for trial in trials],
        }


def detailed_row(trial: Trial) -> Row:
    """A trial's row with its sentence and the target's details of the time."""
    evidence = performance_of(trial.verdict)
    return {
        **trial_row(trial),
        "sentence": getattr(trial.verdict, "sentence", "") or trial.verdict.gates[2].sentence,
        "detail": dict(evidence.timings[0].detail) if evidence else None,
    }


def _timed_compiles(toolchain: Toolchain) -> list[float]:
    """Seconds of each compile from now on; an instance attribute shadows the method."""
    spans: list[float] = []
    compile_source = toolchain.compile

    def timed_compile(source: Any, arch: str) -> Any:
        begin = time.perf_counter()
        try:
            return compile_source(source, arch)
        finally:
            spans.append(time.perf_counter() - begin)

    toolchain.compile = timed_compile
    return spans


def again(search: Searched) -> list[Row]:
    """The best of the search against its baseline once more, in several fresh processes."""
    session, (first, *others) = search.session, search.recorder.trials
    timed = [
        trial
        for trial in (first, *others)
        if (evidence := performance_of(trial.verdict)) and evidence.ratio_interval
    ]
    best = sorted(timed, key=lambda trial: performance_of(trial.verdict).ratio_to_baseline)
    baseline = performance_of(first.verdict).timings
    settings = TargetSettings(
        session.folder, session.catalogue.include_dirs, 1, run_deadline_s=RUN_DEADLINE_S
    )
    rows = []
    for process in range(PROCESSES):
        target = open_target("cuda:0", settings)
        target.prepare()
        fresh = replace(
            search.context, target=target, baseline=first.candidate, seed=1000 + process
        )
        for trial in best[:REPEATED_BEST]:
            verdict = evaluate(trial.candidate, fresh, lambda: baseline).verdict
            evidence, before = performance_of(verdict), performance_of(trial.verdict)
            rows.append(
                {
                    "what": "again",
                    "process": process,
                    "number": trial.number,
                    "parameters": trial.candidate.values(),
                    "first": before.ratio_to_baseline,
                    "first_interval": before.ratio_interval,
                    "ratio": evidence.ratio_to_baseline if evidence else None,
                    "interval": evidence.ratio_interval if evidence else None,
                    "us": evidence.timings[0].time_median_us if evidence else None,
                    "verdict": verdict_name(verdict),
                }
            )
        target.close()
    return rows


def album_rows(session: Session, named: Sequence[str] = ()) -> list[Row]:
    """Entries of the album on this GPU, all unless some are named, with the expected verdicts."""
    return [
        {
            "id": entry.id,
            "kind": entry.kind,
            "expected": entry.expected,
            **entry_outcome(session, entry, session.folder / str(number)),
        }
        for number, entry in enumerate(entries())
        if not named or entry.id in named
    ]


def entry_outcome(session: Session, entry: Entry, folder: Path) -> Row:
    """The verdict on an entry of the album. An entry that cannot be made does not end the run."""
    from greenfast.search.diagnose.album import _after_sibling, _candidate

    own = replace(session, catalogue=catalogue_of(entry, folder))
    try:
        context = _context(own, entry.kernel, entry.workload)
        candidate = _candidate(entry, context)
        judged_in = _after_sibling(entry, context) if entry.sibling else context
        verdict = evaluate(candidate, judged_in).verdict
    except Exception as error:
        return {"got": type(error).__name__, "sentence": str(error)[:300]}
    name = verdict_name(verdict)
    sentence = getattr(verdict, "sentence", "") or getattr(verdict, "message", "")
    return {
        "got": f"{verdict.stage}: {verdict.reason}" if name == "rejected" else name,
        "sentence": sentence[:300],
    }


def album_summary(rows: list[Row]) -> Row:
    """The album's row: entries whose verdict here is not the expected one, and all entries."""
    correct = [row for row in rows if row["expected"] == "green"]
    wrong = [row for row in rows if row["expected"] != "green"]
    return {
        "what": "album",
        "entries": len(rows),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "right_but_not_green_here": [row["id"] for row in correct if row["got"] != "green"],
        "wrong_but_green_here": [row["id"] for row in wrong if row["got"] == "green"],
        "said": dict(Counter(row["got"] for row in rows)),
        "trials": rows,
    }


def replace_album(out: Path, fresh: list[Row]) -> None:
    """Replace the entries that were run again in a stored result."""
    stored = read_json(out)
    albums = [row for row in stored["rows"] if row["what"] == "album"]
    by_id = {entry["id"]: entry for album in albums for entry in album["trials"]}
    by_id |= {entry["id"]: entry for entry in fresh}
    album = album_summary(list(by_id.values()))
    rows = [row for row in stored["rows"] if row["what"] != "album"]
    write_json(out, {**stored, "rows": [*rows, album]})
    print(without_samples(album), flush=True)


if __name__ == "__main__":
    main()
