"""The prototype's lessons as paired comparisons on a GPU: each feature's effect, and counters.

    python -m bench.gpu.attention_lessons OUT.json [--minutes 3] [--only LESSON ...] [--emulator]

The two candidates of a pair differ in one feature of one template. Both are checked, then timed
in turns in three fresh processes on new seeds, as a search's winner is; the process is the
unit. Beside them are the assembler's figures of both and their bank conflicts, as Nsight
Compute counts them or, with --emulator, as the emulator does (wavefronts over those without
conflicts). A pair that the template or its constraints exclude gets a row with the reason.
"""

from __future__ import annotations

import argparse
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.command_line import script_parser
from bench.gpu.attention_floors import profiled
from bench.results import Row, read_json, write_json
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.errors import GreenfastError
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import timed_problems
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.loop.comparison import ProcessTimes
from greenfast.search.loop.confirmation import PROCESSES, compared, prepared, timed_in_turns
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.targets.base import Failure
from greenfast.search.verdict import Outcome

MODE = "hot"
WORKLOADS = ("mission", "long")


@dataclass(frozen=True)
class Point:
    """A preset with single parameters changed."""

    preset: str  # template:preset
    changes: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.preset + "".join(f" {name}={value}" for name, value in self.changes)


@dataclass(frozen=True)
class Pair:
    """`changed` against `base`: below 1, the change is faster."""

    lesson: str
    base: Point
    changed: Point


def _set(preset: str, **changes: Any) -> Point:
    return Point(preset, tuple(changes.items()))


PAIRS = (
    Pair("swizzle: pad", _set("wmma:stage2", swizzle="none"), _set("wmma:stage2", swizzle="pad")),
    Pair("swizzle: xor", _set("wmma:stage2", swizzle="none"), _set("wmma:stage2", swizzle="xor")),
    Pair(
        "swizzle: xor instead of pad",
        _set("wmma:stage2", swizzle="pad"),
        _set("wmma:stage2", swizzle="xor"),
    ),
    Pair("softmax in registers", _set("wmma:stage2"), _set("wmma:stage3b")),
    Pair("three stages", _set("wmma:stage2"), _set("wmma:stage4")),
    Pair("P in S's buffer", _set("wmma:stage2"), _set("wmma:stage3a")),
    Pair("P V on tensor cores", _set("wmma:stage1"), _set("wmma:stage2")),
    Pair("phased softmax", _set("wmma:stage2"), _set("wmma:stage5")),
    Pair("atomic P V", _set("wmma:stage2"), _set("wmma:stage2", pv_accumulate="atomic")),
    Pair(
        "K transposed on its way", _set("wmma:stage2"), _set("wmma:stage2", k_layout="transposed")
    ),
    Pair("persistent blocks", _set("wmma:stage2"), _set("wmma:stage2", persistent=True)),
    Pair("one stage", _set("wmma:stage2"), _set("wmma:stage2", pipeline_depth=1)),
    Pair("mma: pad instead of xor", _set("mma:fa2"), _set("mma:fa2", swizzle="pad")),
    Pair("mma: three stages", _set("mma:fa2"), _set("mma:fa2", pipeline_depth=3)),
    Pair("mma instead of WMMA", _set("wmma:stage2"), _set("mma:fa2")),
)


def main() -> None:
    options = _options()
    end = time.monotonic() + 60.0 * options.minutes
    target = "emulator:h200" if options.emulator else "cuda:0"
    rows, counters = _stored(options.out), Counters()
    with open_session(target, prefix="lessons", workers=max(1, usable_cores() // 4)) as session:
        for workload in WORKLOADS:
            for pair in PAIRS:
                if (options.only and pair.lesson not in options.only) or time.monotonic() > end:
                    continue
                key = (pair.lesson, workload)
                old = next((row for row in rows if (row["lesson"], row["workload"]) == key), None)
                new = compared_pair(pair, workload, session, counters, old)
                rows = [row for row in rows if row is not old] + [new]
                print(line(new), flush=True)
                write_json(options.out, {"environment": session.environment(), "rows": rows})


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--only", nargs="+", choices=sorted({pair.lesson for pair in PAIRS}))
    parser.add_argument(
        "--emulator", action="store_true", help="counters of the emulator, no times"
    )
    return parser.parse_args()


def _stored(path: Path) -> list[Row]:
    return read_json(path)["rows"] if path.is_file() else []


def compared_pair(
    pair: Pair, workload_name: str, session: Session, counters: Counters, old: Row | None
) -> Row:
    """A new row, or the old one if it is of the same two sources."""
    kernel = session.catalogue.kernel("attention")
    context = session.context(kernel, kernel.workload(workload_name), seed=1, mode=MODE)
    row: Row = {
        "lesson": pair.lesson,
        "workload": workload_name,
        "target": context.target.name,
        "base": str(pair.base),
        "changed": str(pair.changed),
    }
    try:
        sides = {
            "base": candidate_of(pair.base, context),
            "changed": candidate_of(pair.changed, context),
        }
        if sides["base"].digest == sides["changed"].digest:
            return row | {"unavailable": "both are the same point"}
        if old is not None and _is_current(old, context, sides):
            return old
        for side, candidate in sides.items():
            row[f"{side}_parameters"] = candidate.values()
            row[f"{side}_figures"] = figures(context, candidate, counters)
        if context.target.measures:
            row |= times(context, sides)
    except GreenfastError as error:
        row["unavailable"] = str(error)
    return row


def _is_current(row: Row, context: EvaluationContext, sides: dict[str, Candidate]) -> bool:
    """Whether a stored row is of this target and of both candidates' present sources."""
    return row["target"] == context.target.name and all(
        row.get(f"{side}_figures", {}).get("source_digest") == context.render(candidate).digest
        for side, candidate in sides.items()
    )


def candidate_of(point: Point, context: EvaluationContext) -> Candidate:
    """UsageError for names that the template lacks and for points that it excludes."""
    template, preset = context.kernel.preset(point.preset)
    template.check_supports(context.workloads[0])
    candidate = preset_candidate(template, preset.name, context.compiled, dict(point.changes))
    context.target.space(template, context.compiled).require(candidate.parameters)
    return candidate


def figures(context: EvaluationContext, candidate: Candidate, counters: Counters) -> Row:
    """One side's figures from the assembler, and from the profiler or the emulator."""
    subject = prepared(context, candidate)
    ptxas = PtxasGate().judge(subject).evidence
    names = ("registers", "spill_bytes", "smem_dynamic_bytes", "blocks_per_sm")
    row: Row = {name: getattr(ptxas, name) for name in names}
    row["source_digest"] = subject.source.digest
    if context.target.measures:
        return row | {"profile": counters.of(context, candidate, subject.source.digest)}
    lines = context.target.line_costs(subject.program, timed_problems(subject)[0])
    if isinstance(lines, Failure):
        return row | {"error": lines.sentence}
    shared = [line for line in lines if line.is_shared]
    actual = sum(line.wavefronts for line in shared)
    ideal = sum(line.wavefronts_ideal for line in shared)
    return row | {
        "wavefronts": actual,
        "wavefronts_ideal": ideal,
        "conflict_factor": round(actual / ideal, 3) if ideal else None,
    }


class Counters:
    """Nsight Compute's counters, once for each source: a base belongs to several pairs."""

    def __init__(self) -> None:
        self._by_source: dict[tuple[str, str], list[Row] | Row] = {}

    def of(
        self, context: EvaluationContext, candidate: Candidate, source_digest: str
    ) -> list[Row] | Row:
        workload = context.workloads[0]
        key = source_digest, workload.name
        if key not in self._by_source:
            self._by_source[key] = profiled(context, candidate, workload)
        return self._by_source[key]


def times(context: EvaluationContext, sides: dict[str, Candidate]) -> Row:
    """The change's ratio over fresh processes, with its interval; the first process checks both."""
    processes = []
    for _ in range(PROCESSES):
        context.target.fresh()
        seeded = replace(context, seed=secrets.randbelow(LARGEST_SEED))
        subjects = {side: prepared(seeded, candidate) for side, candidate in sides.items()}
        for side, subject in subjects.items():
            result = CorrectnessGate().judge(subject)
            if result.outcome is Outcome.FAILED:
                return {"wrong": f"{side}: {result.sentence}"}
        timings = timed_in_turns(subjects["changed"], subjects["base"])
        if isinstance(timings, Failure):
            return {"wrong": timings.sentence}
        processes.append(ProcessTimes(seeded.seed, timings))
    decision, interval = compared(tuple(processes))
    low, ratio, high = interval.ratios
    return {
        "ratio": round(ratio, 5),
        "interval": [round(low, 5), round(high, 5)],
        "decision": decision.value,
        "changed_us": [round(process.timings[0].time_median_us, 4) for process in processes],
        "processes": [asdict(process) for process in processes],
    }


def line(row: Row) -> str:
    name = f"{row['lesson']} on {row['workload']}: {row['changed']} against {row['base']}"
    if why := row.get("unavailable") or row.get("wrong"):
        return f"{name}: {why}"
    shown = ("registers", "blocks_per_sm", "conflict_factor")
    counters = {
        side: {key: value for key, value in row[f"{side}_figures"].items() if key in shown}
        for side in ("base", "changed")
    }
    return f"{name}: {row.get('ratio')} {row.get('interval')} {row.get('decision', '')} {counters}"


if __name__ == "__main__":
    main()
