"""The same random candidates through the emulator's gates and a GPU's, on one machine.

    python -m bench.correctness.emulator_against_gpu [--count 300] [--seconds 120] [--save]
                                                     [--out OUT.json]

Templates and workloads of attention take turns. A candidate that passes the emulator and fails on
the GPU would be a failure of the emulator. Those that only the emulator rejects are listed with its
report.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.results import Row, write_json, write_result
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import Device
from greenfast.search.gates import Gate, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.evaluate import prepare
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.verdict import Failed

WORKLOADS = ("mission", "mission_bf16", "mission_causal", "mission_gqa", "d32", "d128")
SEED = 2026


def draws(kernel: KernelSpec, device: Device, count: int) -> Iterator[tuple[Workload, Candidate]]:
    """Workloads and candidates, each template as often as the others."""
    rng, spaces = random.Random(SEED), {}
    while count:
        for template in kernel.templates:
            workload = kernel.workload(rng.choice(WORKLOADS))
            compiled = workload.compile_time(kernel)
            if dict(compiled)["D"] not in dict(template.supports)["D"] or not count:
                continue
            key = (template.name, compiled)
            if key not in spaces:
                spaces[key] = Space(template, compiled, device).points
            points = spaces[key]
            point = points[rng.randrange(len(points))]
            count -= 1
            yield workload, Candidate(kernel.name, template.name, point, Origin(OriginKind.SAMPLED))


def verdict(gates: Sequence[Gate], subject: Subject) -> tuple[str, str]:
    """The outcome and sentence of the first gate that does not pass; else `passed`."""
    for gate in gates:
        result = gate.judge(subject)
        if result.outcome != "passed":
            reason = f" ({result.reason})" if isinstance(result, Failed) else ""
            return f"{result.outcome}: {gate.name}{reason}", result.sentence
    return "passed", ""


def judged(session: Session, emulator: Target, workload: Workload, candidate: Candidate) -> Row:
    """Both targets' verdicts on a candidate; only ptxas's where it rejects it."""
    kernel = session.catalogue.kernel("attention")
    context = session.context(kernel, workload, limits=GateLimits(), seed=SEED)
    subject = prepare(candidate, context)
    assert isinstance(subject, Subject), subject
    row = {
        "what": "candidate",
        "workload": workload.name,
        "template": candidate.template,
        "source": subject.source.digest,
        "parameters": candidate.values(),
    }
    row["ptxas"], _ = verdict((PtxasGate(),), subject)
    if row["ptxas"] != "passed":
        return row
    row["gpu"], row["gpu_sentence"] = verdict((CorrectnessGate(),), subject)
    emulated = replace(context, target=emulator).subject(candidate, subject.source, subject.cubin)
    gates = (CorrectnessGate(), SafetyGate())
    row["emulator"], row["emulator_sentence"] = verdict(gates, emulated)
    return row


def tally_of(rows: list[Row]) -> Row:
    pairs = [(row["gpu"] == "passed", row["emulator"] == "passed") for row in rows if "gpu" in row]
    return {
        "what": "tally",
        "drawn": len(rows),
        "spills": len(rows) - len(pairs),
        "right_on_both": pairs.count((True, True)),
        "only_the_gpu_refuses": pairs.count((False, True)),
        "only_the_emulator_refuses": pairs.count((True, False)),
        "both_refuse": pairs.count((False, False)),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, metavar="OUT.json")
    options = parser.parse_args()
    with open_session("cuda:0", prefix="against") as session:
        settings = TargetSettings(session.folder, session.catalogue.include_dirs, usable_cores())
        emulator = open_target("emulator:h200", settings)
        emulator.prepare()
        end = time.monotonic() + options.seconds

        def judge(drawn: tuple[Workload, Candidate]) -> Row | None:
            return judged(session, emulator, *drawn) if time.monotonic() < end else None

        kernel = session.catalogue.kernel("attention")
        with ThreadPoolExecutor(usable_cores()) as pool:
            verdicts = pool.map(judge, draws(kernel, session.target.device, options.count))
            rows = [row for row in verdicts if row]
        environment = session.environment()
        emulator.close()
    tally = tally_of(rows)
    print(json.dumps(tally))
    for row in rows:
        if row.get("gpu") != row.get("emulator"):
            print(json.dumps(row))
    result = {"environment": environment, "rows": [tally, *rows]}
    if options.out:
        write_json(options.out, result)
    if options.save:
        write_result("h200/emulator_against_gpu", result)


if __name__ == "__main__":
    main()
