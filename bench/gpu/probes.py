"""The stages of every preset of a kernel, probed on a GPU.

    python -m bench.gpu.probes OUT.json [--kernel attention_fp8] [--seconds 60]
                               [--target cuda:0] [--only TEXT]

Each preset is probed on each workload that it supports and that differs from the others in what is
known at compile time. A preset is correct, so a stage that a probe calls wrong has a bound that is
too tight for this hardware. Rows hold, by stage, the outcome and the largest share of the bound
that is known: that of a wrong element. Exits 1 if a stage is wrong.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.command_line import script_parser
from bench.results import Row, write_json
from bench.session import Session, open_session
from greenfast.search.diagnose.probes import ProbeReport, first_wrong, probe_candidate
from greenfast.search.kernels.spec import KernelSpec, Preset, TemplateSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space

AT_ONCE = 4


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--kernel", default="attention_fp8")
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no probe after these")
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--only", default="", help="text that template:preset workload contains")
    options = parser.parse_args()
    rows: list[Row] = []
    with open_session(options.target, prefix="probes") as session:
        environment = session.environment()
        rows = probed_rows(session, options, environment)
    wrong = [row for row in rows if row["first_wrong"]]
    print(f"{len(rows)} presets and workloads probed, {len(wrong)} with a stage that is not right")
    return 1 if wrong else 0


def works(session: Session, kernel: KernelSpec) -> Iterator[tuple[TemplateSpec, Preset, Workload]]:
    """Presets with the workloads that they support, one for each set of compile-time values."""
    distinct: dict[Items, Workload] = {}
    for workload in kernel.workloads:
        distinct.setdefault(workload.compile_time(kernel), workload)
    for template in kernel.templates:
        for preset in template.presets:
            for compiled, workload in distinct.items():
                if any(dict(compiled)[name] not in have for name, have in template.supports):
                    continue
                parameters = preset_candidate(template, preset.name, compiled).parameters
                if Space(template, compiled, session.target.device).why_not(parameters) is None:
                    yield template, preset, workload


def probed_rows(session: Session, options: argparse.Namespace, environment: Row) -> list[Row]:
    kernel = session.catalogue.kernel(options.kernel)
    rows: list[Row] = []
    lock, begin = threading.Lock(), time.monotonic()

    def probe(work: tuple[TemplateSpec, Preset, Workload]) -> None:
        template, preset, workload = work
        name = f"{template.name}:{preset.name} {workload.name}"
        if options.only not in name or time.monotonic() - begin > options.seconds:
            return
        context = session.context(kernel, workload)
        reports = probe_candidate(
            context, preset_candidate(template, preset.name, context.compiled)
        )
        with lock:
            rows.append(probed_row(name, context.compiled, reports))
            print(json.dumps(rows[-1])[:300], flush=True)
            write_json(options.out, {"environment": environment, "rows": rows})

    # Workloads in turns, so that a run that is cut short has some of each preset.
    ordered = sorted(works(session, kernel), key=lambda work: work[2].name)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(probe, ordered))
    return rows


def probed_row(name: str, compiled: Items, reports: tuple[ProbeReport, ...]) -> Row:
    first = first_wrong(reports)
    return {
        "name": name,
        "compiled": compiled,
        "first_wrong": first.probe if first else "",
        "stages": {report.probe: report.outcome for report in reports},
        "sentence": first.sentence if first else "",
        "worst": [
            {
                "probe": report.probe,
                "case": case.case,
                "shape": case.shape,
                "wrong": case.wrong,
                "compared": case.compared,
                "index": case.worst_index,
                "value": case.worst_value,
                "expected": case.worst_expected,
                "bound": case.worst_bound,
            }
            for report in reports
            for case in report.cases
            if case.wrong
        ],
    }


if __name__ == "__main__":
    raise SystemExit(main())
