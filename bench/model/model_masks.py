"""The model against times of an H200 by template and mask: do blocks that see fewer keys cost less?

    python -m bench.model.model_masks [--save]
    python -m bench.model.model_masks gpu OUT.json
    python -m bench.model.model_masks merge OUT.json [--save]

Without a command: modelled times beside those of the stored searches
(bench/results/h200/attention_searches). `gpu`, on a machine with a GPU, takes 3 minutes and times
random candidates of workloads without stored searches: causal, grouped heads, odd lengths, and odd
causal ones. `merge` puts both together. --save stores the result model_masks.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.command_line import add_save, require_gpu, script_parser
from bench.environment import publish
from bench.model.agreement import spearman
from bench.model.modelled import DEADLINE_S, sampled_candidate
from bench.results import Row, read_json, read_result, write_json
from bench.session import Session, open_session, workload_problem
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.errors import GreenfastError
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.evaluate import prepare
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.verdict import Rejected

KERNEL = "attention"
SEARCHED = {
    "mission_bf16": 8,
    "mission_causal_bf16": 8,
    "mission_512_causal_bf16": 8,
    "long_bf16": 4,
    "long_causal_bf16": 8,
}  # candidates of each template
# Workloads of this script alone: (heads of keys, length, mask), with B=2, H=8, D=64.
DRAWN = {
    "causal": (8, 512, "causal_top_left"),
    "grouped_causal": (2, 512, "causal_bottom_right"),
    "odd": (8, 501, "none"),
    "odd_causal": (8, 501, "causal_top_left"),
}
DRAWN_OF_EACH = 12
GPU_S = 170.0
SEED = 1024


def drawn_workload(kernel: KernelSpec, name: str) -> Workload:
    heads, length, mask = DRAWN[name]
    changed = {"B": 2, "H": 8, "H_kv": heads, "S_q": length, "S_kv": length, "D": 64}
    like = kernel.workload("mission")
    return replace(
        like,
        name=name,
        title=name,
        dims=tuple(changed.items()),
        options=tuple({**dict(like.options), "mask": mask}.items()),
    )


def drawn(kernel: KernelSpec) -> Iterator[tuple[Workload, Candidate]]:
    """Templates and workloads in turn, so that a run that ends early has some of each."""
    rng = random.Random(SEED)
    spaces: dict[tuple[str, str], list] = {}
    for _ in range(DRAWN_OF_EACH):
        for name in DRAWN:
            workload = drawn_workload(kernel, name)
            for template in kernel.templates:
                key = (template.name, dict(workload.options)["mask"])
                if key not in spaces:
                    spaces[key] = Space(
                        template, workload.compile_time(kernel), device("h200")
                    ).points
                point = rng.choice(spaces[key])
                yield (
                    workload,
                    Candidate(kernel.name, template.name, point, Origin(OriginKind.SAMPLED)),
                )


def masks_session(target: str) -> AbstractContextManager[Session]:
    return open_session(target, prefix="masks", workers=usable_cores(), run_deadline_s=DEADLINE_S)


def timed(session: Session, workload: Workload, candidate: Candidate) -> Row:
    """A row with the time that the target measures or models, or with the reason for none."""
    row: Row = {
        "workload": workload.name,
        "mask": dict(workload.options).get("mask", "none"),
        "template": candidate.template,
        "parameters": candidate.values(),
    }
    kernel, target = session.catalogue.kernel(KERNEL), session.target
    context = session.context(kernel, workload, limits=GateLimits(), seed=SEED)
    subject = prepare(candidate, context)
    if isinstance(subject, Rejected):
        return {**row, "failed": subject.sentence}
    row["source"] = subject.source.digest
    if any(entry.spill_bytes for entry in subject.cubin.entries):  # searches refuse them untimed
        return {**row, "failed": "spills"}
    case = workload_case(workload, SEED)
    reference = target.case_data(kernel, case) if target.measures else case_data(kernel, case)
    laid_out = workload_problem(context, candidate, reference, case)
    timings = target.measure(subject.program, subject.cubin, [laid_out])
    if not isinstance(timings, tuple):
        return {**row, "failed": timings.sentence}
    return {
        **row,
        "us": timings[0].time_median_us,
        "bound_us": timings[0].bound_us,
        "note": timings[0].note,
    }


def on_gpu(out: Path) -> None:
    """Times until `GPU_S` are over. Candidates that spill or fail have the reason in their row."""
    require_gpu()
    rows, end = [], time.monotonic() + GPU_S
    with masks_session("cuda:0") as session:
        for workload, candidate in drawn(session.catalogue.kernel(KERNEL)):
            if time.monotonic() > end:
                break
            try:
                row = timed(session, workload, candidate)
            except GreenfastError as error:
                row = {"workload": workload.name, "template": candidate.template}
                row["failed"] = str(error)
            rows.append(row)
            shown = row.get("us", row.get("failed"))
            print(len(rows), workload.name, candidate.template, shown, flush=True)
        identity = dict(session.target.identity())
    write_json(out, {"target": identity, "rows": rows})


def searched() -> Iterator[Row]:
    """A random sample of what searches timed."""
    rng = random.Random(SEED)
    for workload, count in SEARCHED.items():
        (search,) = read_result(f"h200/attention_searches/{workload}")["rows"]
        for template in ("mma", "wmma"):
            trials = [
                trial for trial in search["trials"] if trial["template"] == template and trial["us"]
            ]
            for trial in rng.sample(trials, min(count, len(trials))):
                yield {
                    "workload": workload,
                    "template": template,
                    "parameters": trial["parameters"],
                    "source": trial["source"],
                    "us": trial["us"],
                }


def compared(measured: list[Row]) -> list[Row]:
    """The rows with their modelled times; SystemExit where a source has changed."""
    rows = []
    with masks_session("emulator:h200") as session:
        kernel = session.catalogue.kernel(KERNEL)
        for row in measured:
            name = row["workload"]
            workload = drawn_workload(kernel, name) if name in DRAWN else kernel.workload(name)
            here = timed(session, workload, sampled_candidate(KERNEL, row))
            if "failed" in here or not here["source"].startswith(row["source"]):
                why = here.get("failed", "its source has changed")
                raise SystemExit(f"{name} {row['template']} {row['parameters']}: {why}")
            both = {"us": round(row["us"], 3), "modelled_us": round(here["us"], 3)}
            ratio = {"modelled_over_measured": round(here["us"] / row["us"], 3)}
            rows.append({**here, **both, **ratio})
            print(name, row["template"], *both.values(), file=sys.stderr, flush=True)
    return rows


def bands(rows: list[Row]) -> list[Row]:
    """The model's band by template and mask, and by template and workload."""
    summary = []
    for what in ("mask", "workload"):
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            groups.setdefault((row["template"], row[what]), []).append(row)
        for (template, group), members in sorted(groups.items()):
            summary.append(
                {
                    "what": f"modelled over measured, by {what}",
                    "template": template,
                    what: group,
                    **band(members),
                }
            )
    return summary


def band(rows: list[Row]) -> Mapping[str, Any]:
    ratios = [row["modelled_over_measured"] for row in rows]
    correlation = (
        spearman([row["modelled_us"] for row in rows], [row["us"] for row in rows])
        if len(rows) > 3
        else math.nan
    )
    return {
        "candidates": len(rows),
        "min": min(ratios),
        "median": round(statistics.median(ratios), 3),
        "max": max(ratios),
        "spearman": round(correlation, 3) if math.isfinite(correlation) else None,
        "below_bound": sum(row["modelled_us"] < row["bound_us"] for row in rows),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("command", nargs="?", choices=("gpu", "merge"))
    parser.add_argument("path", type=Path, nargs="?", metavar="OUT.json")
    options = parser.parse_args()
    if options.command and options.path is None:
        parser.error("OUT.json is missing")
    if options.command == "gpu":
        on_gpu(options.path)
        return
    measured = list(searched())
    if options.command == "merge":
        measured += [row for row in read_json(options.path)["rows"] if "us" in row]
    rows = compared(measured)
    publish("model_masks", bands(rows) + rows, save=options.save)


if __name__ == "__main__":
    main()
