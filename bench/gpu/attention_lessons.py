"""The seeds' lessons as paired comparisons on a GPU: what each feature does to time, with counters beside.

    python -m bench.gpu.attention_lessons OUT.json [--minutes 3] [--only LESSON ...] [--emulator]

Each pair differs in one feature of one template. Both are checked, then timed in turns in three fresh processes on new seeds, as
a search's winner is; the process is the unit. Beside: the assembler's figures of both, bank conflicts as Nsight Compute counts
them and, with --emulator or where there is no GPU, as the emulator does (wavefronts over those without conflicts). A name that
the template does not have, or a point that its constraints exclude, is said, not skipped in silence.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from bench.gpu.attention_floors import profiled
from greenfast.search.cores import usable_cores
from greenfast.search.errors import GreenfastError
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import timed_problems
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.comparison import ProcessTimes
from greenfast.search.loop.confirmation import (
    LARGEST_SEED,
    PROCESSES,
    compared,
    prepared,
    timed_in_turns,
)
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Failure
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Outcome

MODE = "hot"
WORKLOADS = ("mission", "long")
Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A preset with single parameters changed."""

    preset: str  # template:preset
    changes: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.preset + "".join(f" {name}={value}" for name, value in self.changes)


@dataclass(frozen=True)
class Pair:
    """`changed` against `base`: a ratio below 1 says that the change is faster."""

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
    chosen = _arguments()
    end, catalogue = time.monotonic() + 60.0 * chosen.minutes, Catalogue([REPOSITORY_TEMPLATES])
    cores = usable_cores()
    folder = Path(
        os.environ.get("GREENFAST_BENCH_CACHE") or tempfile.mkdtemp(prefix="greenfast-lessons-")
    )
    toolchain = Toolchain(folder, cores)
    settings = TargetSettings(folder, catalogue.include_dirs, max(1, cores // 4))
    target = open_target("emulator:h200" if chosen.emulator else "cuda:0", settings)
    found, counters = _kept(chosen.out), Counters()
    try:
        target.prepare()
        environment = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "cores": cores,
            "python": platform.python_version(),
            **dict(toolchain.identity),
            **dict(target.identity()),
        }
        for workload in WORKLOADS:
            for pair in PAIRS:
                if (chosen.only and pair.lesson not in chosen.only) or time.monotonic() > end:
                    continue
                key = (pair.lesson, workload)
                old = next((one for one in found if (one["lesson"], one["workload"]) == key), None)
                row = compared_pair(pair, workload, catalogue, toolchain, target, counters, old)
                found = [one for one in found if one is not old] + [row]
                print(said(row), flush=True)
                chosen.out.parent.mkdir(parents=True, exist_ok=True)
                chosen.out.write_text(
                    json.dumps({"environment": environment, "rows": found}) + "\n"
                )
    finally:
        target.close()
        toolchain.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--only", nargs="+", choices=sorted({pair.lesson for pair in PAIRS}))
    parser.add_argument(
        "--emulator", action="store_true", help="counters of the emulator, no times"
    )
    return parser.parse_args()


def _kept(path: Path) -> list[Row]:
    return json.loads(path.read_text())["rows"] if path.is_file() else []


def compared_pair(
    pair: Pair,
    workload_name: str,
    catalogue: Catalogue,
    toolchain: Toolchain,
    target,
    counters: Counters,
    old: Row | None,
) -> Row:
    """A new row, or the old one where it is of the same two sources."""
    kernel = catalogue.kernel("attention")
    workload = kernel.workload(workload_name)
    row: Row = {
        "lesson": pair.lesson,
        "workload": workload_name,
        "target": target.name,
        "base": str(pair.base),
        "changed": str(pair.changed),
    }
    context = EvaluationContext(
        kernel,
        workload.compile_time(kernel),
        (workload,),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(max_spill_bytes=None),
        1,
        mode=MODE,
    )
    try:
        both = {
            "base": candidate_of(pair.base, context),
            "changed": candidate_of(pair.changed, context),
        }
        if both["base"].digest == both["changed"].digest:
            return row | {"unavailable": "both are the same point"}
        if (
            old is not None
            and old["target"] == target.name
            and all(
                old.get(f"{name}_figures", {}).get("source_digest") == context.render(one).digest
                for name, one in both.items()
            )
        ):
            return old
        for name, one in both.items():
            row[f"{name}_parameters"], row[f"{name}_figures"] = (
                one.values(),
                figures(context, one, workload, counters),
            )
        if target.measures:
            row |= times(context, both)
    except GreenfastError as error:
        row["unavailable"] = str(error)
    return row


def candidate_of(point: Point, context: EvaluationContext) -> Candidate:
    """UsageError for names that the template does not have and points that it excludes."""
    template, preset = context.kernel.preset(point.preset)
    template.check_supports(context.workloads[0])
    found = preset_candidate(template, preset.name, context.compiled, dict(point.changes))
    context.target.space(template, context.compiled).require(found.parameters)
    return found


def figures(context: EvaluationContext, candidate: Candidate, workload, counters: Counters) -> Row:
    """What the assembler, and the profiler or the emulator, say of one side."""
    subject = prepared(context, candidate)
    ptxas = PtxasGate().judge(subject).evidence
    found: Row = {
        name: getattr(ptxas, name)
        for name in ("registers", "spill_bytes", "smem_dynamic_bytes", "blocks_per_sm")
    }
    found["source_digest"] = subject.source.digest
    if context.target.measures:
        return found | {"profile": counters.of(context, candidate, workload, subject.source.digest)}
    lines = context.target.line_costs(subject.program, timed_problems(subject)[0])
    if isinstance(lines, Failure):
        return found | {"error": lines.sentence}
    shared = [line for line in lines if line.is_shared]
    ideal = sum(one.wavefronts_ideal for one in shared)
    return found | {
        "wavefronts": sum(one.wavefronts for one in shared),
        "wavefronts_ideal": ideal,
        "conflict_factor": round(sum(one.wavefronts for one in shared) / ideal, 3)
        if ideal
        else None,
    }


class Counters:
    """Nsight Compute's counters, once for each source: a base stands in several pairs."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Any] = {}

    def of(
        self, context: EvaluationContext, candidate: Candidate, workload, source_digest: str
    ) -> Any:
        key = source_digest, workload.name
        if key not in self._found:
            self._found[key] = profiled(context, candidate, workload)
        return self._found[key]


def times(context: EvaluationContext, both: dict[str, Candidate]) -> Row:
    """Ratio of the change over fresh processes, with its interval; the first process also checks both."""
    processes = []
    for _ in range(PROCESSES):
        context.target.fresh()
        seeded = replace(context, seed=secrets.randbelow(LARGEST_SEED))
        subjects = {name: prepared(seeded, one) for name, one in both.items()}
        for name, one in subjects.items():
            result = CorrectnessGate().judge(one)
            if result.outcome is Outcome.FAILED:
                return {"wrong": f"{name}: {result.sentence}"}
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


def said(row: Row) -> str:
    name = f"{row['lesson']} on {row['workload']}: {row['changed']} against {row['base']}"
    if why := row.get("unavailable") or row.get("wrong"):
        return f"{name}: {why}"
    counters = {
        side: {
            key: value
            for key, value in row[f"{side}_figures"].items()
            if key in ("registers", "blocks_per_sm", "conflict_factor")
        }
        for side in ("base", "changed")
    }
    return f"{name}: {row.get('ratio')} {row.get('interval')} {row.get('decision', '')} {counters}"


if __name__ == "__main__":
    main()
