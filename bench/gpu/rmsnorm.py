"""Searches of the second kernel, rmsnorm, on a GPU: is anything here attention-shaped, and what does it win there?

    python -m bench.gpu.rmsnorm OUT.json [--target cuda:0] [--trials 60] [--workload NAME ...]

A row a workload, as issue tables have them: the confirmed winner, and its peers timed in turns with it. PyTorch has no
fused residual add: torch-rms-norm is two operations, and both of their times are in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from bench.environment import environment
from greenfast.db.store import Store

# The mode that DESIGN.md's default gives each workload, said aloud.
MODES = {
    "decode": "hot",
    "one_row": "hot",
    "narrow": "cold",
    "wide": "cold",
    "prompt": "cold",
    "prompt_bf16": "cold",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--workload", action="append", choices=MODES)
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in chosen.workload or ("prompt", "one_row", "decode"):
            found = search(workload, chosen, folder)
            rows.append({**row(found, workload), "presets": presets(found["id"], Path(folder))})
            chosen.out.write_text(
                json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n"
            )
            print(json.dumps(rows[-1]), flush=True)


def search(workload: str, chosen: argparse.Namespace, folder: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "greenfast",
        "search",
        "rmsnorm",
        "--target",
        chosen.target,
        "--workload",
        workload,
        "--mode",
        MODES[workload],
        "--trials",
        str(chosen.trials),
        "--seed",
        "1",
        "--json",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "GREENFAST_DATA": folder},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode or not done.stdout:
        sys.exit(f"{workload}: the search ended with {done.returncode}")
    return json.loads(done.stdout)


def presets(search_id: str, folder: Path) -> list[dict[str, Any]]:
    """The documented designs, which every search begins with: what each took beside the baseline."""
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


def row(found: dict[str, Any], workload: str) -> dict[str, Any]:
    best, confirmation = found["best"] or {}, found["confirmation"] or {}
    against = next(
        (one for one in confirmation.get("comparisons", ()) if one["against"] == "baseline"), None
    )
    return {
        "workload": workload,
        "l2": MODES[workload],
        "counts": found["counts"],
        "template": best.get("template"),
        "parameters": best.get("parameters"),
        "time_median_us": best.get("time_median_us"),
        "baseline": found["baseline"],
        "baseline_us": (found["baseline_trial"] or {}).get("time_median_us"),
        "confirmed": confirmation.get("confirmed"),
        "ratio_to_baseline": against and against["ratio"],
        "interval": against and [against["ratio_low"], against["ratio_high"]],
        "why": found["why"],
        "peers": [
            {
                "name": peer["name"],
                "version": peer["version"],
                "outcome": peer["outcome"],
                "sentence": peer["sentence"],
                "time_median_us": peer["time_median_us"],
                "ratio": peer["comparison"] and peer["comparison"]["ratio"],
                "interval": peer["comparison"]
                and [peer["comparison"]["ratio_low"], peer["comparison"]["ratio_high"]],
            }
            for peer in found["peers"]
        ],
    }


if __name__ == "__main__":
    main()
