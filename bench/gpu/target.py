"""The GPU target on a real GPU: can its times be trusted, and how many trials a minute does it take?

    python bench/gpu/target.py OUT.json [TRIALS] [--quick | --album [ENTRY ...]]

With --quick only a search of 30 seconds, for trials a minute and where the time goes; with --album only the album,
or the entries named, in place of what OUT.json holds of them.
Times equal kernels and slower twins against each other a hundred times, runs a search for attention, measures its
best candidates again in fresh processes, and the seconds from a hung candidate to the next, and runs the album. Each
part is written as soon as it is there, with all samples.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu")]

from spins import spin

from bench.speed.thread_sampler import Sampler
from greenfast.search.acceptance import measured_decision
from greenfast.search.cores import usable_cores
from greenfast.search.gates import GateLimits
from greenfast.search.gates.performance import timed_problems
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, prepare
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import Control, History, SearchRun
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Rival
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import performance_of, verdict_name

COMPARISONS = 100


class Recorder:
    """A sink in memory that notes when each trial came."""

    def __init__(self) -> None:
        self.trials, self.at_s = [], []

    def begin(self, number, proposal) -> None: ...

    def record(self, trial, source) -> None:
        self.trials.append(trial)
        self.at_s.append(time.perf_counter())

    def settle(self, number, result) -> None: ...
    def confirm(self, confirmation) -> None: ...
    def beside(self, peer) -> None: ...

    def control(self, spent_s) -> Control:
        return Control.RUN


def main(out: Path, trials: int, only: str, entries_named: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="greenfast-bench-"))
    watches = Catalogue([REPOSITORY_TEMPLATES, ROOT / "tests" / "gpu" / "kernels"])
    toolchain = Toolchain(folder, usable_cores())
    settings = TargetSettings(folder, watches.include_dirs, 1, run_deadline_s=3.0)
    if only == "--album":
        return replace_album(out, album_rows(settings, toolchain, folder, entries_named))
    opened = time.perf_counter()
    target = open_target("cuda:0", settings)
    target.prepare()
    rows = [{"what": "start", "seconds": round(time.perf_counter() - opened, 2)}]
    identity = {**dict(toolchain.identity), **dict(target.identity())}
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        **identity,
    }

    def save(*found: dict) -> None:
        rows.extend(found)
        out.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
        for one in found:
            print(
                {name: value for name, value in one.items() if name not in ("samples", "trials")},
                flush=True,
            )

    if only == "--quick":
        save(search(watches, target, toolchain, trials, seconds=30.0)[0])
        target.close()
        toolchain.close()
        return None
    save(*known_times(watches, target, toolchain))
    for other, label in ((100000, "equal"), (103000, "3 % slower"), (101000, "1 % slower")):
        save(comparisons(watches, target, toolchain, spin(other, twin=1), label))
    save(hang(watches, target, toolchain))
    found, context, sink = search(watches, target, toolchain, trials)
    save(found)
    target.close()
    save(*again(context, sink, settings))
    save(album_of(album_rows(settings, toolchain, folder)))
    toolchain.close()


def _context(watches, target, toolchain, kernel, workload, **more) -> EvaluationContext:
    chosen = watches.kernel(kernel)
    one = chosen.workload(workload)
    return EvaluationContext(
        chosen,
        one.compile_time(chosen),
        (one,),
        target,
        toolchain,
        watches.include_dirs,
        GateLimits(max_spill_bytes=None),
        0,
        **more,
    )


def _subject(context: EvaluationContext, candidate):
    return prepare(candidate, context)


def known_times(watches, target, toolchain) -> list[dict]:
    """Spins of known length, an empty node, and a copy that the L2 does not hold."""
    found = []
    for cycles, workload in (
        (0, "small"),
        (20000, "small"),
        (100000, "small"),
        (2000000, "small"),
        (0, "large"),
    ):
        verdict = evaluate(
            spin(cycles), _context(watches, target, toolchain, "stopwatch", workload)
        ).verdict
        timing = performance_of(verdict).timings[0]
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
            row["tb_per_s"] = round(8 * 2**24 / timing.time_median_us / 1e6, 3)
        found.append(row)
    return found


def comparisons(watches, target, toolchain, candidate, label: str) -> dict:
    context = _context(watches, target, toolchain, "stopwatch", "small")
    subject, other = _subject(context, candidate), _subject(context, spin(100000))
    rival = Rival(other.program, timed_problems(other))
    problems = timed_problems(subject)
    said, medians, widths, started = Counter(), [], [], time.perf_counter()
    for number in range(COMPARISONS):
        varied = [
            replace(problem, case=replace(problem.case, seed=number)) for problem in problems
        ]  # another block order
        decision, interval = measured_decision(
            target.measure(subject.program, subject.cubin, varied, rival)
        )
        said[decision.value] += 1
        medians.append(round(interval.median, 6))
        widths.append(round(interval.high - interval.low, 6))
    return {
        "what": "comparisons",
        "twin": label,
        "said": dict(said),
        "median_of_widths": sorted(widths)[len(widths) // 2],
        "seconds_each": round((time.perf_counter() - started) / COMPARISONS, 3),
        "samples": medians,
    }


def hang(watches, target, toolchain) -> dict:
    """Seconds from the start of a candidate that never ends, and from its end, to the next one's results."""
    context = _context(watches, target, toolchain, "stopwatch", "small")
    right, endless = (_subject(context, spin(cycles)) for cycles in (20000, 10**12))
    problems = list(timed_problems(right))
    list(target.execute(right.program, problems))
    spans = []
    for _ in range(3):
        begin = time.perf_counter()
        (one,) = target.execute(endless.program, problems)
        middle = time.perf_counter()
        (after,) = target.execute(right.program, problems)
        assert one.failure is not None and after.failure is None
        spans.append((round(middle - begin, 3), round(time.perf_counter() - middle, 3)))
    return {
        "what": "hang",
        "deadline_s": 3.0,
        "until_rejected_s": [one for one, _ in spans],
        "rejected_to_next_result_s": [one for _, one in spans],
    }


def search(watches, target, toolchain, trials: int, seconds: float | None = None):
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
    window = (
        2 * usable_cores()
    )  # trials are recorded in order: one that takes long must not hold up the GPU
    plan = make_plan(request, watches, window=window)
    context = _context(watches, target, toolchain, "attention", "mission")
    spans, sampler = _clocked(toolchain), Sampler()
    target.spans.clear()
    sampler.start()
    sink, started = Recorder(), time.perf_counter()
    result = SearchRun(plan, context, sink, History()).run()
    wall = time.perf_counter() - started
    rows = []
    for trial in sink.trials:
        evidence = performance_of(trial.verdict)
        timing = evidence.timings[0] if evidence else None
        rows.append(
            {
                "number": trial.number,
                "template": trial.candidate.template,
                "parameters": trial.candidate.values(),
                "verdict": verdict_name(trial.verdict),
                "reason": getattr(trial.verdict, "reason", None),
                "sentence": getattr(trial.verdict, "sentence", "")
                or trial.verdict.gates[2].sentence,
                "us": timing.time_median_us if timing else None,
                "detail": dict(timing.detail) if timing else None,
                "ratio": evidence.ratio_to_baseline if evidence else None,
                "interval": evidence.ratio_interval if evidence else None,
                "duration_s": round(trial.duration_s, 3),
                "samples": timing.samples if timing else (),
                "baseline_samples": timing.baseline_samples if timing else (),
            }
        )
    said = Counter(f"{row['verdict']} {row['reason'] or ''}".strip() for row in rows)
    half = len(sink.at_s) // 2
    later = (len(sink.at_s) - half - 1) / (sink.at_s[-1] - sink.at_s[half]) * 60 if half else 0.0
    return (
        {
            "what": "search",
            "ended": result.ended,
            "window": window,
            "seconds": round(wall, 2),
            "count": len(rows),
            "trials_per_minute": round(len(rows) / wall * 60, 1),
            "second_half_trials_per_minute": round(later, 1),
            "said": dict(said),
            "thread_seconds": {name: round(value, 2) for name, value in spans.items()},
            "gpu_child_seconds": {
                name: round(value, 2) for name, value in sorted(target.spans.items())
            },
            "threads_in": sampler.result(),
            "trials": rows,
        },
        context,
        (plan, sink),
    )


def _clocked(toolchain) -> dict[str, float]:
    """Seconds that threads spend in compiling; an instance attribute shadows the method."""
    spans, compile_ = {"compile": 0.0}, toolchain.compile

    def clocked_compile(source, arch):
        begin = time.perf_counter()
        try:
            return compile_(source, arch)
        finally:
            spans["compile"] += time.perf_counter() - begin

    toolchain.compile = clocked_compile
    return spans


def again(context: EvaluationContext, searched, settings: TargetSettings) -> list[dict]:
    """The five best of the search against its baseline, in three fresh processes each."""
    plan, sink = searched
    judged = [
        trial
        for trial in sink.trials
        if performance_of(trial.verdict) and performance_of(trial.verdict).ratio_interval
    ]
    best = sorted(judged, key=lambda one: performance_of(one.verdict).ratio_to_baseline)[:5]
    baseline = performance_of(sink.trials[0].verdict).timings
    found = []
    for process in range(3):
        target = open_target("cuda:0", settings)
        target.prepare()
        fresh = replace(
            context, target=target, baseline=sink.trials[0].candidate, seed=1000 + process
        )
        for one in best:
            verdict = evaluate(one.candidate, fresh, lambda: baseline).verdict
            evidence, first = performance_of(verdict), performance_of(one.verdict)
            found.append(
                {
                    "what": "again",
                    "process": process,
                    "number": one.number,
                    "parameters": one.candidate.values(),
                    "first": first.ratio_to_baseline,
                    "first_interval": first.ratio_interval,
                    "ratio": evidence.ratio_to_baseline if evidence else None,
                    "interval": evidence.ratio_interval if evidence else None,
                    "us": evidence.timings[0].time_median_us if evidence else None,
                    "verdict": verdict_name(verdict),
                }
            )
        target.close()
    return found


def album_rows(
    settings: TargetSettings, toolchain, folder: Path, named: Sequence[str] = ()
) -> list[dict]:
    """Kernels of the album on this GPU, all unless some are named, beside what the emulator's gates are held to."""
    from greenfast.search.diagnose.album import _after_sibling, _candidate, catalogue_of, entries

    target, rows = open_target("cuda:0", settings), []
    for number, entry in enumerate(entries()):
        if named and entry.id not in named:
            continue
        catalogue = catalogue_of(entry, folder / str(number))
        try:
            context = _context(catalogue, target, toolchain, entry.kernel, entry.workload)
            candidate = _candidate(entry, context)
            verdict = evaluate(
                candidate, _after_sibling(entry, context) if entry.sibling else context
            ).verdict
            got = (
                f"{verdict.stage}: {verdict.reason}"
                if verdict_name(verdict) == "rejected"
                else verdict_name(verdict)
            )
            sentence = getattr(verdict, "sentence", "") or getattr(verdict, "message", "")
        except Exception as error:  # one entry that cannot be made must not cost the others
            got, sentence = type(error).__name__, str(error)
        rows.append(
            {
                "id": entry.id,
                "kind": entry.kind,
                "expected": entry.expected,
                "got": got,
                "sentence": sentence[:300],
            }
        )
    target.close()
    return rows


def album_of(rows: list[dict]) -> dict:
    """What the entries came to."""
    wrong_here = [row["id"] for row in rows if row["expected"] == "green" and row["got"] != "green"]
    passes_here = [
        row["id"] for row in rows if row["expected"] != "green" and row["got"] == "green"
    ]
    return {
        "what": "album",
        "entries": len(rows),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "right_but_not_green_here": wrong_here,
        "wrong_but_green_here": passes_here,
        "said": dict(Counter(row["got"] for row in rows)),
        "trials": rows,
    }


def replace_album(out: Path, fresh: list[dict]) -> None:
    """Entries as they came out now, in the place of the same ones before."""
    kept = json.loads(out.read_text())
    before = [trial for row in kept["rows"] if row["what"] == "album" for trial in row["trials"]]
    row = album_of(
        list(({one["id"]: one for one in before} | {one["id"]: one for one in fresh}).values())
    )
    kept["rows"] = [one for one in kept["rows"] if one["what"] != "album"] + [row]
    out.write_text(json.dumps(kept, indent=1) + "\n")
    print({name: value for name, value in row.items() if name != "trials"}, flush=True)


if __name__ == "__main__":
    words = [one for one in sys.argv[1:] if not one.startswith("--")]
    flags = [one for one in sys.argv[1:] if one.startswith("--")]
    count = int(words[1]) if len(words) > 1 and words[1].isdigit() else 120
    main(Path(words[0]), count, flags[0] if flags else "", words[1:] if "--album" in flags else [])
