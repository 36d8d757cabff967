"""The winners of the searches beside other people's kernels, on a GPU.

    python bench/gpu_peers.py OUT.json [WORKLOAD ...]

Each winner of bench/results/h200/attention_winners.json (or of the workloads named) is taken through the gates on cuda:0 once more
and timed in turns with every peer that is installed, L2 hot, in three fresh processes. Each row is written as soon as it is
there, with all samples.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from search.candidate import Candidate, Origin, OriginKind, complete_parameters
from search.catalogue import Catalogue
from search.cores import usable_cores
from search.evaluate import Bench, evaluate
from search.gates import GateLimits
from search.peers import compare_peers
from search.targets import TargetSettings, open_target
from search.toolchain import Toolchain
from search.verdict import Accepted, Green, performance_of

KERNEL, MODE = "attention", "hot"
WINNERS = ROOT / "bench" / "results" / "h200" / "attention_winners.json"
PROCESSES = 3


def main(out: Path, workloads: list[str]) -> None:
    won = [one for one in json.loads(WINNERS.read_text())["rows"] if not workloads or one["workload"] in workloads]
    catalogue = Catalogue.from_environment()
    folder = Path(tempfile.mkdtemp(prefix="greenfast-bench-"))
    toolchain = Toolchain(folder, usable_cores())
    target = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    target.prepare()
    environment = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": usable_cores(),
                   "python": platform.python_version(), **dict(toolchain.identity), **dict(target.identity())}
    rows: list[dict] = []
    try:
        for one in won:
            rows += beside(one, catalogue, target, toolchain)
            out.write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
    finally:
        target.close()
        toolchain.close()


def beside(won: dict[str, Any], catalogue, target, toolchain) -> list[dict[str, Any]]:
    """One winner and what came of each peer; nothing when the winner does not pass the gates any more, which is said."""
    kernel = catalogue.kernel(KERNEL)
    workload, template = kernel.workload(won["workload"]), kernel.template(won["template"])
    compiled = workload.compile_time(kernel)
    candidate = Candidate(KERNEL, template.name, complete_parameters(template, won["parameters"], compiled), Origin(OriginKind.SEEDED))
    bench = Bench(kernel, compiled, (workload,), target, toolchain, catalogue.include_dirs, GateLimits(max_spill_bytes=None), 0, mode=MODE)
    verdict, began = evaluate(candidate, bench, None).verdict, time.perf_counter()
    if not isinstance(verdict, (Accepted, Green)):
        print(f"{workload.name}: its winner is no longer right: {verdict}", flush=True)
        return []
    source = bench.render(candidate)
    subject = bench.subject(candidate, source, toolchain.compile(source, target.device.arch), None)
    peers = compare_peers(subject, PROCESSES)
    for one in peers:
        print(f"  {one.outcome:15} {one.workload} {one.sentence}", flush=True)
    return [{"what": "winner", "workload": workload.name, "template": template.name, "parameters": dict(candidate.parameters),
             "source_digest": source.digest, "us": performance_of(verdict).timings[0].time_median_us,
             "comparing_s": round(time.perf_counter() - began, 2)},
            *({"what": "peer", **finite(asdict(one))} for one in peers)]


def finite(value: Any) -> Any:
    """Without infinities, which JSON has no word for: the end of an interval that too few blocks leave open is null."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
