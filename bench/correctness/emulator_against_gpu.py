"""The same random candidates through the emulator's gates and a GPU's, on one machine: who says no to what?

    python bench/correctness/emulator_against_gpu.py [--count 300] [--seconds 120] [--save] [OUT.json]

Templates and workloads of attention in turn. A GPU that refuses what the emulator lets pass would be the emulator's
failure; what only the emulator refuses is listed with its report.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from greenfast.search.cores import usable_cores
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Cubin, Toolchain

WORKLOADS = ("mission", "mission_bf16", "mission_causal", "mission_gqa", "d32", "d128")
OUT = Path(__file__).resolve().parents[1] / "results" / "h200" / "emulator_against_gpu.json"
SEED = 2026


def draws(kernel, device, count):
    """(workload, candidate), each template as often as the others."""
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


def said(gates, subject):
    """(outcome, sentence) of the first gate that says no, or of all."""
    for gate in gates:
        result = gate.judge(subject)
        if result.outcome != "passed":
            return (
                f"{result.outcome}: {gate.name}{f' ({result.reason})' if result.outcome == 'failed' else ''}",
                result.sentence,
            )
    return "passed", ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    chosen = parser.parse_args()
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel, cores, folder = catalogue.kernel("attention"), usable_cores(), Path(tempfile.mkdtemp())
    toolchain = Toolchain(folder, cores)
    gpu = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    emulator = open_target("emulator:h200", TargetSettings(folder, catalogue.include_dirs, cores))
    for one in (gpu, emulator):
        one.prepare()
    end = time.monotonic() + chosen.seconds

    def judge(drawn):
        workload, candidate = drawn
        if time.monotonic() > end:
            return None
        compiled = workload.compile_time(kernel)
        context = EvaluationContext(
            kernel,
            compiled,
            (workload,),
            gpu,
            toolchain,
            catalogue.include_dirs,
            GateLimits(),
            SEED,
        )
        source = context.render(candidate)
        cubin = toolchain.compile(source, gpu.device.arch)
        assert isinstance(source, RenderedSource) and isinstance(cubin, Cubin), candidate
        subject = context.subject(candidate, source, cubin)
        row = {
            "what": "candidate",
            "workload": workload.name,
            "template": candidate.template,
            "source": source.digest,
            "parameters": candidate.values(),
        }
        row["ptxas"], _ = said((PtxasGate(),), subject)
        if row["ptxas"] != "passed":
            return row
        row["gpu"], row["gpu_sentence"] = said((CorrectnessGate(),), subject)
        there = EvaluationContext(
            kernel,
            compiled,
            (workload,),
            emulator,
            toolchain,
            catalogue.include_dirs,
            GateLimits(),
            SEED,
        )
        row["emulator"], row["emulator_sentence"] = said(
            (CorrectnessGate(), SafetyGate()), there.subject(candidate, source, cubin)
        )
        return row

    with ThreadPoolExecutor(cores) as pool:
        rows = [row for row in pool.map(judge, draws(kernel, gpu.device, chosen.count)) if row]
    judged = [row for row in rows if "gpu" in row]
    tally = {
        "what": "tally",
        "drawn": len(rows),
        "spills": len(rows) - len(judged),
        "right_on_both": sum(row["gpu"] == row["emulator"] == "passed" for row in judged),
        "only_the_gpu_refuses": sum(row["gpu"] != "passed" == row["emulator"] for row in judged),
        "only_the_emulator_refuses": sum(
            row["gpu"] == "passed" != row["emulator"] for row in judged
        ),
        "both_refuse": sum(row["gpu"] != "passed" != row["emulator"] for row in judged),
    }
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": cores,
        "python": platform.python_version(),
        **dict(toolchain.identity),
        **dict(gpu.identity()),
    }
    print(json.dumps(tally))
    for row in judged:
        if row["gpu"] != row["emulator"]:
            print(json.dumps(row))
    if chosen.save or chosen.out != OUT:
        chosen.out.write_text(
            json.dumps({"environment": environment, "rows": [tally, *rows]}, indent=1) + "\n"
        )
    for one in (toolchain, gpu, emulator):
        one.close()


if __name__ == "__main__":
    main()
