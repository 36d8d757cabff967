"""The fastest preset of attention beside other people's kernels, on a GPU.

    python bench/gpu_peers.py OUT.json [WORKLOAD ...]

For each workload all presets are taken through the gates on cuda:0, and the fastest right one is timed in turns with
every peer in three fresh processes. Each row is written as soon as it is there, with all samples.
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

from search.candidate import preset_candidate
from search.catalogue import Catalogue
from search.cores import usable_cores
from search.errors import GreenfastError
from search.evaluate import Bench, evaluate
from search.gates import GateLimits
from search.peers import compare_peers
from search.space import Space
from search.targets import TargetSettings, open_target
from search.toolchain import Toolchain
from search.verdict import Accepted, Green, performance_of

WORKLOADS = ("mission", "long", "mission_causal", "d128", "mission_bf16", "mission_gqa", "mission_512")
PROCESSES = 3


def main(out: Path, workloads: tuple[str, ...]) -> None:
    catalogue = Catalogue.from_environment()
    folder = Path(tempfile.mkdtemp(prefix="greenfast-bench-"))
    toolchain = Toolchain(folder, usable_cores())
    target = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    target.prepare()
    environment = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": usable_cores(),
                   "python": platform.python_version(), **dict(toolchain.identity), **dict(target.identity())}
    rows: list[dict] = []
    try:
        for name in workloads:
            began = time.perf_counter()
            bench, candidate, time_us = fastest_preset(catalogue, target, toolchain, name)
            found_s, began = time.perf_counter() - began, time.perf_counter()
            source = bench.render(candidate)
            subject = bench.subject(candidate, source, toolchain.compile(source, target.device.arch), None)
            rows.append({"what": "winner", "workload": name, "template": candidate.template,
                         "preset": candidate.origin.preset, "us": time_us, "finding_s": round(found_s, 2)})
            peers = compare_peers(subject, PROCESSES)
            rows[-1]["comparing_s"] = round(time.perf_counter() - began, 2)
            rows += [{"what": "peer", **finite(asdict(one))} for one in peers]
            out.write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
            print(rows[-1 - len(peers)], flush=True)
            for one in peers:
                print(f"  {one.outcome:15} {one.workload} {one.sentence}", flush=True)
    finally:
        target.close()
        toolchain.close()


def finite(value: Any) -> Any:
    """Without infinities, which JSON has no word for: the end of an interval that too few blocks leave open is null."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fastest_preset(catalogue, target, toolchain, workload_name: str):
    """The right preset of any template that is fastest on the workload; what the space excludes is passed over."""
    kernel = catalogue.kernel("attention")
    workload = kernel.workload(workload_name)
    compiled = workload.compile_time(kernel)
    bench = Bench(kernel, compiled, (workload,), target, toolchain, catalogue.include_dirs,
                  GateLimits(max_spill_bytes=None), 0)
    found = []
    for template in kernel.templates:
        space = Space(template, compiled, target.device)
        for preset in template.presets:
            try:
                template.check_supports(workload)
                candidate = preset_candidate(template, preset.name, compiled, {})
                space.require(candidate.parameters)
            except GreenfastError as error:
                print(f"  {template.name}:{preset.name} is passed over: {error}")
                continue
            verdict = evaluate(candidate, bench, None).verdict
            if isinstance(verdict, (Accepted, Green)):
                found.append((performance_of(verdict).timings[0].time_median_us, preset.name, candidate))
    time_us, _, candidate = min(found, key=lambda one: one[:2])
    return bench, candidate, time_us


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or WORKLOADS)
