"""How often a fresh process picks another winner, and how often a stated tie covers it.

    python -m bench.gpu.flip_rate OUT.json [--processes 12] [--candidates 12] [--seconds 240]

For each workload, the fastest candidates of its stored search are compiled and checked once. Each
fresh process then draws a new seed, times all of them against the default baseline in a random
order, and picks the fastest. The cubins come from the compiler's cache. A pick comes with the
candidates that tie with it (greenfast.search.loop.ties).

Two processes *flip* when they pick differently. The flip is *stated* when each pick lies in the
other process's tie, and *unstated* otherwise. Groups of three processes, which is how a search
confirms its winner, are compared in the same way.

OUT.json is written after each process, with the intervals of all candidates. The next run adds the
processes that are missing. After `--seconds` no process begins.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from bench.command_line import script_parser
from bench.gpu.winner_ablations import MODE, SAME
from bench.results import Row, finite, read_json, read_result, write_json
from bench.session import Session, open_session
from greenfast.search.acceptance import measured_decision
from greenfast.search.cores import usable_cores
from greenfast.search.errors import Fault, GreenfastError
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.loop.confirmation import PROCESSES, prepared, timed_in_turns
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.loop.ties import tied_with_pick
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.targets.base import Failure, runner
from greenfast.search.timing import Interval, mean_of_processes
from greenfast.search.verdict import Outcome, Rejected

WORKLOADS = ("mission_bf16", "mission_512_causal_bf16", "small_bf16", "long_bf16", "d128_4096_bf16")
MOST_FAULTS = 3
DIGITS = 7
SPARE = 4  # candidates beside those that are needed, for wrong ones
GROUPINGS = 200  # random ways to form groups of three


@dataclass(frozen=True)
class Field:
    """The candidates among which the processes of one workload pick."""

    workload: str
    context: EvaluationContext
    baseline: Candidate
    candidates: tuple[tuple[str, Candidate], ...]  # by the first digits of their source's digest


def main() -> int:
    options = _options()
    with open_session("cuda:0", prefix="flips") as session:
        names = options.only or WORKLOADS
        searches = [read_result(f"h200/attention_searches/{name}")["rows"][0] for name in names]
        measured(session, options, searches)
    return 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--processes", type=int, default=12, help="for each workload")
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORKLOAD")
    return parser.parse_args()


def measured(
    session: Session,
    options: argparse.Namespace,
    searches: Sequence[Row],
    kernel: str = "attention",
) -> Row:
    """Processes in turns over the workloads, so that an early end leaves equal numbers."""
    begun, environment = time.monotonic(), session.environment()
    fields = [field_of(session, kernel, search, options.candidates) for search in searches]
    print(f"{len(fields)} workloads ready after {time.monotonic() - begun:.0f} s", flush=True)
    rows = _continued(options.out, environment, fields)
    faults = 0
    for process in range(options.processes):
        for field in fields:
            if _is_done(rows, field, process):
                continue
            if time.monotonic() - begun > options.seconds or faults == MOST_FAULTS:
                break
            started = time.monotonic()
            try:
                row = picked(field, process)
            except Fault as fault:
                faults += 1
                print(f"{field.workload}, process {process}: {fault}", flush=True)
                continue
            rows.append({**row, "seconds": round(time.monotonic() - started, 2)})
            result = {"environment": environment, "found": analysed(rows), "rows": rows}
            write_json(options.out, finite(result, DIGITS))
            print(_line(rows[-1]), flush=True)
    summary = analysed(rows)
    print(json.dumps(summary, indent=1), flush=True)
    return summary


def _continued(path: Path, environment: Row, fields: Sequence[Field]) -> list[Row]:
    """The stored rows of the same candidates; none that were measured under other conditions."""
    if not path.is_file():
        return []
    value = read_json(path)
    if any(value["environment"].get(name) != environment.get(name) for name in SAME):
        return []
    names = {field.workload: sorted(name for name, _ in field.candidates) for field in fields}
    return [row for row in value["rows"] if sorted(row["intervals"]) == names.get(row["workload"])]


def _is_done(rows: Sequence[Row], field: Field, process: int) -> bool:
    return any((row["workload"], row["process"]) == (field.workload, process) for row in rows)


def field_of(session: Session, kernel_name: str, search: Row, count: int) -> Field:
    """The fastest candidates of a stored search that are correct today."""
    kernel = session.catalogue.kernel(kernel_name)
    context = session.context(
        kernel,
        kernel.workload(search["workload"]),
        limits=GateLimits(),
        seed=secrets.randbelow(LARGEST_SEED),
        mode=MODE,
    )
    template, preset = kernel.preset(search["baseline"])
    baseline = preset_candidate(template, preset.name, context.compiled)
    drawn = fastest_of(search["trials"], context, count + SPARE)
    return Field(search["workload"], context, baseline, correct_of(drawn, context, count))


def fastest_of(trials: Sequence[Row], context: EvaluationContext, count: int) -> list[Candidate]:
    """Different candidates of stored trials, the fastest first."""
    candidates: dict[str, Candidate] = {}
    for trial in sorted(
        (trial for trial in trials if trial.get("us")), key=lambda trial: float(trial["us"])
    ):
        template = context.kernel.template(trial["template"])
        try:
            point = complete_parameters(template, trial["parameters"], context.compiled)
        except GreenfastError:  # a value that the template no longer has
            continue
        candidate = Candidate(context.kernel.name, template.name, point, Origin(OriginKind.SEEDED))
        if context.target.space(template, context.compiled).why_not(point) is None:
            candidates.setdefault(candidate.digest, candidate)
        if len(candidates) == count:
            break
    return list(candidates.values())


def correct_of(
    drawn: Sequence[Candidate], context: EvaluationContext, count: int
) -> tuple[tuple[str, Candidate], ...]:
    """The first `count` that compile and are correct, each under its source's digest."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        judged = list(pool.map(lambda candidate: _named(candidate, context), drawn))
    by_source = {name: (name, candidate) for name, candidate in judged if name}
    return tuple(list(by_source.values())[:count])


def _named(candidate: Candidate, context: EvaluationContext) -> tuple[str, Candidate]:
    """The source's first digits; empty if the candidate is not correct."""
    subject = prepare(candidate, context)
    if isinstance(subject, Rejected):
        return "", candidate
    gates = (PtxasGate(), CorrectnessGate())
    correct = all(gate.judge(subject).outcome is Outcome.PASSED for gate in gates)
    return subject.source.digest[:12] if correct else "", candidate


def picked(field: Field, process: int) -> Row:
    """One fresh process: every candidate against the baseline, and the pick with its ties."""
    runner(field.context.target).fresh()
    seed = secrets.randbelow(LARGEST_SEED)
    seeded = replace(field.context, seed=seed)
    against = prepared(seeded, field.baseline)
    order = random.Random(seed).sample(field.candidates, len(field.candidates))
    intervals: dict[str, Interval] = {}
    for name, candidate in order:
        timings = timed_in_turns(prepared(seeded, candidate), against)
        if isinstance(timings, Failure):
            raise Fault(f"{name} failed while timed: {timings.sentence}", code="contender_lost")
        intervals[name] = measured_decision(timings)[1]
    best, *ties = tied_with_pick(intervals)
    return {
        "workload": field.workload,
        "process": process,
        "seed": seed,
        "pick": best,
        "ties": ties,
        "intervals": {
            name: [interval.median, interval.low, interval.high]
            for name, interval in sorted(intervals.items())
        },
    }


def _line(row: Row) -> str:
    ties = f", which ties with {len(row['ties'])} others" if row["ties"] else ""
    return (
        f"{row['workload']}, process {row['process']}: {row['pick']}{ties} ({row['seconds']:.1f} s)"
    )


# ---- what follows from the rows ----


@dataclass(frozen=True)
class Choice:
    """A pick and the candidates that tie with it."""

    best: str
    ties: frozenset[str]


def analysed(rows: Sequence[Row]) -> Row:
    """Rates over all workloads, and for each; they follow from the stored intervals."""
    workloads = sorted({row["workload"] for row in rows})
    each = []
    for workload in workloads:
        own = [intervals_of(row) for row in rows if row["workload"] == workload]
        each.append({"workload": workload, **_figures(own)})
    return {"all": _sums(each), "each": each}


def intervals_of(row: Row) -> dict[str, Interval]:
    return {name: Interval(*values) for name, values in row["intervals"].items()}


def _figures(processes: Sequence[dict[str, Interval]]) -> Row:
    single = [choice_of([process]) for process in processes]
    rng = random.Random(7)
    grouped = [0, 0, 0]
    for _ in range(GROUPINGS if len(processes) >= 2 * PROCESSES else 0):
        mixed = rng.sample(list(processes), 2 * PROCESSES)
        first, second = choice_of(mixed[:PROCESSES]), choice_of(mixed[PROCESSES:])
        grouped = [a + b for a, b in zip(grouped, _pair(first, second), strict=True)]
    pairs = [0, 0, 0]
    for first, second in combinations(single, 2):
        pairs = [a + b for a, b in zip(pairs, _pair(first, second), strict=True)]
    counts = {name: sum(choice.best == name for choice in single) for name in _bests(single)}
    return {
        "processes": len(processes),
        "picks": counts,
        "median_ties": sorted(len(choice.ties) for choice in single)[len(single) // 2],
        "pairs": _rates(pairs),
        "groups_of_three": _rates(grouped),
        "largest_loss": _largest_loss(processes, set(counts)),
    }


def _bests(choices: Sequence[Choice]) -> list[str]:
    return sorted({choice.best for choice in choices})


def choice_of(processes: Sequence[dict[str, Interval]]) -> Choice:
    """The pick of one process, or of several by the mean of their medians."""
    names = set.intersection(*(set(process) for process in processes))
    if len(processes) == 1:
        intervals = dict(processes[0])
    else:
        intervals = {name: _mean([process[name] for process in processes]) for name in names}
    best, *ties = tied_with_pick(intervals, len(processes))
    return Choice(best, frozenset(ties))


def _mean(intervals: Sequence[Interval]) -> Interval:
    """The mean of the medians; the blocks' interval shrinks with the number of processes."""
    middle, _ = mean_of_processes([interval.median for interval in intervals])
    half = math.sqrt(sum((each.high - each.low) ** 2 for each in intervals)) / 2 / len(intervals)
    return Interval(middle, middle - half, middle + half)


def _pair(first: Choice, second: Choice) -> list[int]:
    """[pairs, flips, flips that a tie states]"""
    flip = first.best != second.best
    stated = flip and second.best in first.ties and first.best in second.ties
    return [1, int(flip), int(stated)]


def _rates(counts: Sequence[int]) -> Row:
    pairs, flips, stated = counts
    return {
        "pairs": pairs,
        "flips": flips,
        "stated": stated,
        "flip_percent": round(100 * flips / pairs, 2) if pairs else None,
        "unstated_percent": round(100 * (flips - stated) / pairs, 2) if pairs else None,
    }


def _largest_loss(processes: Sequence[dict[str, Interval]], picks: set[str]) -> float:
    """How much slower the worst pick is than the best, in percent, by the mean of all processes."""
    means = [
        mean_of_processes([process[name].median for process in processes if name in process])[0]
        for name in picks
    ]
    return round(100 * math.expm1(max(means) - min(means)), 3)


def _sums(each: Sequence[Row]) -> Row:
    return {
        "processes": sum(row["processes"] for row in each),
        **{
            kind: _rates(
                [sum(row[kind][count] for row in each) for count in ("pairs", "flips", "stated")]
            )
            for kind in ("pairs", "groups_of_three")
        },
    }


if __name__ == "__main__":
    raise SystemExit(main())
