"""The winners of the searches beside other people's kernels, on a GPU.

    python bench/gpu/peers.py OUT.json [WORKLOAD ...]
    python bench/gpu/peers.py --add           here: peers of bench/results/h200/peers.json, to the searches whose winners they met

Each winner of bench/results/h200/attention_winners.json (or of the workloads named) is taken through the gates on cuda:0 once more
and timed in turns with every peer that is installed, L2 hot, in three fresh processes. Each row is written as soon as it is
there, with all samples. --add gives a search's row the peers that were not installed when it ran, with the date when they were
timed, and names its best peer anew; what the search timed itself stays.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from greenfast.search.cores import usable_cores
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, prepare
from greenfast.search.peers.compare import compare_peers
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Accepted, Green, performance_of

KERNEL, MODE = "attention", "hot"
RESULTS = ROOT / "bench" / "results" / "h200"
WINNERS = RESULTS / "attention_winners.json"
PROCESSES = 3


def main(out: Path, workloads: list[str]) -> None:
    won = [
        row
        for row in json.loads(WINNERS.read_text())["rows"]
        if not workloads or row["workload"] in workloads
    ]
    catalogue = Catalogue.from_environment()
    folder = Path(tempfile.mkdtemp(prefix="greenfast-bench-"))
    toolchain = Toolchain(folder, usable_cores())
    target = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    target.prepare()
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        **dict(toolchain.identity),
        **dict(target.identity()),
    }
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
    candidate = Candidate(
        KERNEL,
        template.name,
        complete_parameters(template, won["parameters"], compiled),
        Origin(OriginKind.SEEDED),
    )
    context = EvaluationContext(
        kernel,
        compiled,
        (workload,),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(max_spill_bytes=None),
        0,
        mode=MODE,
    )
    verdict, began = evaluate(candidate, context).verdict, time.perf_counter()
    if not isinstance(verdict, (Accepted, Green)):
        print(f"{workload.name}: its winner is no longer right: {verdict}", flush=True)
        return []
    subject = prepare(candidate, context)
    peers = compare_peers(subject, PROCESSES)
    for peer in peers:
        print(f"  {peer.outcome:15} {peer.workload} {peer.sentence}", flush=True)
    return [
        {
            "what": "winner",
            "workload": workload.name,
            "template": template.name,
            "parameters": dict(candidate.parameters),
            "source_digest": subject.source.digest,
            "us": performance_of(verdict).timings[0].time_median_us,
            "comparing_s": round(time.perf_counter() - began, 2),
        },
        *({"what": "peer", **finite(asdict(peer))} for peer in peers),
    ]


def add_to_searches(folder: Path) -> None:
    """Later peers into the rows of the searches in `folder`."""
    later = json.loads((folder / "peers.json").read_text())
    for path in sorted((folder / "attention_searches").glob("*.json")):
        kept = json.loads(path.read_text())
        kept["rows"] = [
            with_later(row, later["rows"], later["environment"]["date"]) for row in kept["rows"]
        ]
        path.write_text(json.dumps(kept, allow_nan=False) + "\n")


def with_later(row: dict[str, Any], later: list[dict[str, Any]], date: str) -> dict[str, Any]:
    """The row of a search with the peers that met its winner, the very source, later; its best peer among all."""
    met = any(
        one["what"] == "winner" and one["source_digest"] == row["winner"]["source_digest"]
        for one in later
    )
    mine = [
        one for one in later if met and one["what"] == "peer" and one["workload"] == row["workload"]
    ]
    found = {peer["name"]: peer for peer in row["peers"]}
    for one in mine:
        if one["outcome"] == "timed" and found.get(one["name"], {}).get("outcome") != "timed":
            found[one["name"]] = _as_in_searches(one, date)
    timed = [one for one in found.values() if one["outcome"] == "timed"]
    best = min(timed, key=lambda one: one["time_median_us"], default=None)
    return {
        **row,
        "peers": list(found.values()),
        "best_peer": best and best["name"],
        "ratio_to_best_peer": best and best["ratio"],
        "interval": best and best["interval"],
    }


def _as_in_searches(one: dict[str, Any], date: str) -> dict[str, Any]:
    """A timed peer in the words of a search's row (bench/gpu/attention_searches.py)."""
    against = one["comparison"]
    return {
        **{
            name: one[name] for name in ("name", "version", "outcome", "sentence", "time_median_us")
        },
        "ratio": against["ratio"],
        "interval": [against["ratio_low"], against["ratio_high"]],
        "decision": against["decision"],
        "timed_later": date,
        "samples": [
            {
                "seed": process["seed"],
                "ours": process["timings"][0]["samples"],
                "theirs": process["timings"][0]["baseline_samples"],
            }
            for process in against["processes"]
        ],
    }


def finite(value: Any) -> Any:
    """Without infinities, which JSON has no word for: the end of an interval that too few blocks leave open is null."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    if sys.argv[1:] == ["--add"]:
        add_to_searches(RESULTS)
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
