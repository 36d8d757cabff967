"""The demo search's trials a minute on this machine: a fresh data folder, then a second search with warm caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from bench.environment import ROOT, publish

TRIALS = 48


def search(folder: str, seed: int) -> dict:
    started = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "greenfast",
            "search",
            "attention",
            "--workload",
            "mission",
            "--trials",
            str(TRIALS),
            "--seed",
            str(seed),
            "--strategy",
            "tpe",
            "--json",
        ],
        cwd=ROOT,
        env={**os.environ, "GREENFAST_DATA": folder},
        stdout=subprocess.PIPE,
        check=True,
    )
    wall_s = time.perf_counter() - started
    found = json.loads(done.stdout)
    return {
        "trials": TRIALS,
        "seed": seed,
        "wall_s": round(wall_s, 1),
        "trials_per_minute": round(TRIALS / wall_s * 60, 1),
        "by_verdict": found["counts"]["by_verdict"]
        if "counts" in found
        else found.get("by_verdict"),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"what": "fresh data folder, the emulator is built first", **search(folder, 1)},
            {"what": "emulator built, other candidates", **search(folder, 2)},
        ]
    publish("demo", rows)
