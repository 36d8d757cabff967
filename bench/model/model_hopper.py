"""The emulator's modelled times of wgmma templates beside the times in recordings of an H200.

    python -m bench.model.model_hopper [--count 24] [--seconds 900] [--progress FILE] [--share I/N]
                                       [--save]

A random sample of the timed candidates of each recording, on the recording's own workload. Only the
cost of a ring's refill was fitted, to half of those of `gemm`. A recording's row gives the rank
correlation, the median factor between measured and modelled, and, once that factor is known, the
median error and the error that 90 % of the candidates are within. `bench.correctness.shares` runs
it in many processes.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from bench.command_line import add_save, script_parser
from bench.correctness.random_candidates import share
from bench.environment import publish
from bench.model.agreement import misordered, spearman, spread
from bench.results import ROOT, Row
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.gates import Subject
from greenfast.search.loop.evaluate import prepare
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.oracle.reference import inputs_alone
from greenfast.search.recordings import file
from greenfast.search.recordings.contents import Recording
from greenfast.search.recordings.rules import time_us
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
)
from greenfast.search.verdict import Rejected

RECORDINGS = ("d128-causal-wgmma-h200", "m512-gemm-wgmma-h200", "d128-fp8-wgmma-h200")
DEADLINE_S = 300.0  # of an emulated run


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--count", type=int, default=24, help="candidates of each recording")
    parser.add_argument("--seconds", type=float, default=900.0, help="begin none after these")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="resume from these rows")
    parser.add_argument(
        "--share", type=share, default=(0, 1), metavar="I/N", help="every Nth candidate, from I on"
    )
    add_save(parser)
    options = parser.parse_args()
    log: Path | None = options.progress
    rows = [json.loads(line) for line in log.open()] if log and log.exists() else []
    known, begin = {row["key"] for row in rows}, time.monotonic()
    recordings = [
        file.read(ROOT / "recordings" / f"{name}.recording.jsonl.gz") for name in RECORDINGS
    ]
    with open_session(
        "emulator:h200", prefix="model", workers=usable_cores(), run_deadline_s=DEADLINE_S
    ) as session:
        index, of = options.share
        for recording, row in islice(in_turns(recordings, options.count), index, None, of):
            if row["key"] in known or time.monotonic() - begin > options.seconds:
                continue
            rows.append({**row, **modelled(session, recording, row)})
            print(json.dumps(rows[-1])[:200], flush=True)
            if log:
                with log.open("a") as opened:
                    opened.write(json.dumps(rows[-1]) + "\n")
    if options.share == (0, 1):  # a share's rows are joined with the others
        publish("model_hopper", [*map(summary, by_recording(rows)), *rows], save=options.save)


def in_turns(recordings: list[Recording], count: int) -> Iterator[tuple[Recording, Row]]:
    """Samples of the recordings in turns, so that a run that is cut short has some of each."""
    samples = [sample(recording, count) for recording in recordings]
    for number in range(count):
        for recording, rows in zip(recordings, samples, strict=True):
            if number < len(rows):
                yield recording, rows[number]


def sample(recording: Recording, count: int) -> list[Row]:
    timed = [row for row in recording.rows if row.times]
    return [
        {
            "key": f"{recording.heading.name} {row.source_digest[:16]}",
            "recording": recording.heading.name,
            "template": row.template,
            "source": row.source_digest,
            "parameters": dict(recording.parameters(row)),
            "measured_us": round(time_us(row.times[0]), 3),
        }
        for row in random.Random(7).sample(timed, min(count, len(timed)))
    ]


def modelled(session: Session, recording: Recording, row: Row) -> Row:
    """The modelled time and its limits; SystemExit where the candidate's source has changed."""
    kernel = session.catalogue.kernel(recording.heading.kernel)
    (workload,) = recording.heading.workloads
    # A parameter that came after the recording has its default.
    template, compiled = kernel.template(row["template"]), workload.compile_time(kernel)
    parameters = complete_parameters(template, row["parameters"], compiled)
    candidate = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SAMPLED))
    subject = prepare(candidate, session.context(kernel, workload))
    if isinstance(subject, Rejected):
        raise SystemExit(f"{row['key']}: {subject.sentence}")
    if not subject.source.digest.startswith(row["source"]):
        raise SystemExit(f"the source of {row['key']} has changed: record it again")
    timings = session.target.measure(subject.program, subject.machine_code, (timed(subject),))
    if not isinstance(timings, tuple):
        return {"modelled_us": None, "why": timings.sentence}
    limits = {name: round(us, 2) for name, us in timings[0].limits}
    return {"modelled_us": round(timings[0].time_median_us, 3), "limits": limits}


def timed(subject: Subject) -> Problem:
    """The workload as it is timed. Outputs are not compared, so no reference is computed."""
    case = workload_case(subject.workloads[0], subject.seed)
    problem = lay_out(
        subject.kernel,
        subject.template,
        subject.point,
        case,
        inputs_alone(subject.kernel, case),
        optional_outputs=False,
    )
    return replace(problem, mode=subject.conditions.mode)


def by_recording(rows: list[Row]) -> list[list[Row]]:
    of_each = [[row for row in rows if row["recording"] == name] for name in RECORDINGS]
    return [each for each in of_each if each]


def summary(rows: list[Row]) -> Row:
    done = [row for row in rows if row["modelled_us"]]
    modelled_us, measured = ([row[name] for row in done] for name in ("modelled_us", "measured_us"))
    ratios = [time / model for time, model in zip(measured, modelled_us, strict=True)]
    middle = float(np.median(ratios))
    errors = [abs(math.log(ratio / middle)) for ratio in ratios]
    plain = [abs(math.log(ratio)) for ratio in ratios]
    return {
        "what": "recording",
        "name": rows[0]["recording"],
        "template": rows[0]["template"],
        "candidates": len(rows),
        "modelled": len(done),
        "spearman": round(spearman(modelled_us, measured), 3),
        **spread(ratios),
        "median_error": round(math.expm1(float(np.median(plain))), 3),
        "error_90": round(math.expm1(float(np.quantile(plain, 0.9))), 3),
        "median_error_scaled": round(math.expm1(float(np.median(errors))), 3),
        "error_90_scaled": round(math.expm1(float(np.quantile(errors, 0.9))), 3),
        "misordered": misordered(list(zip(modelled_us, measured, strict=True))),
    }


if __name__ == "__main__":
    main()
