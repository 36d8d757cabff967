"""Searches of the second kernel, rmsnorm, on a GPU: does the search work as well outside attention?

    python -m bench.gpu.rmsnorm OUT.json [--target cuda:0] [--trials 60] [--workload NAME ...]

Each workload gives a row with the confirmed winner and its peers, timed in turns with it. PyTorch
has no fused residual add: torch-rms-norm is two operations, and its time is the sum of both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from bench.command_line import greenfast_json, require_gpu, script_parser
from bench.environment import environment
from bench.results import Row, write_json
from greenfast.db.store import Store

# The mode that is each workload's default by its size, written out.
MODES = {
    "decode": "hot",
    "one_row": "hot",
    "narrow": "cold",
    "wide": "cold",
    "prompt": "cold",
    "prompt_bf16": "cold",
}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--workload", action="append", choices=MODES)
    options = parser.parse_args()
    if options.target.startswith("cuda"):
        require_gpu()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in options.workload or ("prompt", "one_row", "decode"):
            detail = search(workload, options, folder)
            presets = preset_trials(detail["id"], Path(folder))
            rows.append({**search_row(detail, workload), "presets": presets})
            write_json(options.out, {"environment": environment(), "rows": rows})
            print(json.dumps(rows[-1]), flush=True)


def search(workload: str, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Run `greenfast search` to its end and return its description."""
    arguments = ["search", "rmsnorm", "--target", options.target, "--workload", workload]
    arguments += ["--mode", MODES[workload], "--trials", str(options.trials), "--seed", "1"]
    return greenfast_json(*arguments, data=folder)


def preset_trials(search_id: str, folder: Path) -> list[Row]:
    """The presets, with which every search begins, beside the baseline."""
    store = Store.open(f"sqlite:///{folder / 'greenfast.sqlite3'}")
    try:
        return [
            {
                "preset": f"{item.template}:{item.preset}",
                "verdict": item.verdict,
                "reason": item.reason,
                "time_median_us": item.time_median_us,
                "ratio_to_baseline": item.ratio_to_baseline,
            }
            for item in store.trials(search_id, limit=20).items
            if item.preset
        ]
    finally:
        store.close()


def search_row(detail: dict[str, Any], workload: str) -> Row:
    best, confirmation = detail["best"] or {}, detail["confirmation"] or {}
    comparisons = confirmation.get("comparisons", ())
    against = next((item for item in comparisons if item["against"] == "baseline"), None)
    return {
        "workload": workload,
        "l2": MODES[workload],
        "counts": detail["counts"],
        "template": best.get("template"),
        "parameters": best.get("parameters"),
        "time_median_us": best.get("time_median_us"),
        "baseline": detail["baseline"],
        "baseline_us": (detail["baseline_trial"] or {}).get("time_median_us"),
        "confirmed": confirmation.get("confirmed"),
        "ratio_to_baseline": against and against["ratio"],
        "interval": against and [against["ratio_low"], against["ratio_high"]],
        "why": detail["why"],
        "peers": [peer_row(peer) for peer in detail["peers"]],
    }


def peer_row(peer: dict[str, Any]) -> Row:
    comparison = peer["comparison"]
    names = ("name", "version", "outcome", "sentence", "time_median_us")
    return {
        **{name: peer[name] for name in names},
        "ratio": comparison and comparison["ratio"],
        "interval": comparison and [comparison["ratio_low"], comparison["ratio_high"]],
    }


if __name__ == "__main__":
    main()
