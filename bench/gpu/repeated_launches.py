"""Ratios of times that show work left out of repeated launches, for correct kernels.

    python -m bench.gpu.repeated_launches OUT.json [--seconds 240]

The default of each kernel is timed on each of its workloads in both modes, and then repeated as a
candidate that was faster is: on other inputs, and with outputs of their own. These ratios, and
those of the shortest launches, must stay far below the bounds CHANGED and SEPARATE of
greenfast.search.targets.cuda.work_left_out; games that exceed them are in
tests/gpu/test_gpu_games.py. OUT.json is written after each repetition; after `--seconds` none
begins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.command_line import script_parser
from bench.results import Row, finite, write_json
from bench.session import Session, open_session
from greenfast.search.errors import GreenfastError
from greenfast.search.gates import Subject
from greenfast.search.gates.after_timing import wrong_after_timing
from greenfast.search.gates.performance import timed_problems
from greenfast.search.loop.evaluate import prepare
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets.base import Failure, runner
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.timing import median_interval

KERNELS = ("rmsnorm", "gemm", "attention", "attention_fp8")
MODES = ("hot", "cold")
DIGITS = 4


def subjects(session: Session, kernels: Iterable[str] = KERNELS) -> Iterator[tuple[str, Subject]]:
    """Each kernel's default on each workload in each mode, where it compiles."""
    for kernel in map(session.catalogue.kernel, kernels):
        design, _, preset = kernel.baseline.partition(":")
        for workload in kernel.workloads:
            for mode in MODES:
                context = session.context(kernel, workload, mode=mode)
                try:
                    template = kernel.template(design)
                    candidate = preset_candidate(template, preset, context.compiled)
                    subject = prepare(candidate, context)
                except GreenfastError:
                    continue
                if isinstance(subject, Subject):
                    yield f"{kernel.name} {workload.name} {mode}", subject


def row_of(name: str, subject: Subject, target: CudaTarget) -> Row:
    """The time, the ratios with their intervals, and what is wrong, if anything."""
    timings = runner(subject.target).measure(
        subject.program, subject.machine_code, timed_problems(subject)
    )
    if isinstance(timings, Failure):
        return {"name": name, "failure": timings.sentence}
    failure = wrong_after_timing(subject)
    return {
        "name": name,
        "time_us": timings[0].time_median_us,
        "note": timings[0].note,
        "ratios": {when: interval(*times) for when, times in target.repeated_us.items()},
        "shortest_us": {
            when: [min(slow), min(fast)] for when, (slow, fast) in target.repeated_us.items()
        },
        "failure": failure.sentence if failure is not None else "",
    }


def interval(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """(low, median, high) of the ratio."""
    ratios = [math.log(long / short) for long, short in zip(slow, fast, strict=True)]
    return list(median_interval(ratios).ratios)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    begun, rows = time.monotonic(), []
    with open_session("cuda:0", prefix="greenfast-repeated-") as session:
        assert isinstance(session.target, CudaTarget)
        for name, subject in subjects(session):
            if time.monotonic() - begun > options.seconds:
                break
            rows.append(row_of(name, subject, session.target))
            print(rows[-1], flush=True)
            result = {"environment": session.environment(), "rows": rows}
            write_json(options.out, finite(result, DIGITS))
    failures = [row for row in rows if row["failure"]]
    print(f"{len(rows)} repetitions, {len(failures)} with a failure")


if __name__ == "__main__":
    main()
