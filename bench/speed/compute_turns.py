"""What threads that compute cost each other, and the loop of a search, when few or many of them do so at once.

    python bench/speed/compute_turns.py [--save]

Sixteen threads compute references of attention's checks, as a search's do, while one finds nearest points in a space, as
the search's loop does after each trial. Times depend on the machine; the ratio between the rows is what matters.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from greenfast.search import compute_turns
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.reference import compute_case_data
from greenfast.search.space.space import Space

OUT = Path(__file__).resolve().parents[1] / "results" / "compute_turns.json"
THREADS, SECONDS = 16, 6.0
TILES = {"tile_q": 32, "tile_kv": 256, "depth": 1, "parts": 2, "blocks": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    save = parser.parse_args().save
    rows = [measured(0, 1), *(measured(THREADS, at_once) for at_once in (16, 4, 2, 1))]
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if save:
        OUT.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")


def measured(threads: int, at_once: int) -> dict[str, float]:
    """With so many threads that compute, of which so many have a turn."""
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    compiled = kernel.workload("mission_bf16").compile_time(kernel)
    space, rng = Space(kernel.template("mma"), compiled, device("h200")), random.Random(1)
    point, allowed = space.points[len(space.points) // 3], np.ones(len(space.points), bool)
    cases = derived_cases(kernel, compiled, TILES, 7)
    compute_turns._turns, stop, done = (
        threading.BoundedSemaphore(at_once),
        threading.Event(),
        [0] * threads,
    )

    def compute(which: int) -> None:
        while not stop.is_set():
            compute_case_data(kernel, cases[done[which] % len(cases)], None)
            done[which] += 1

    for which in range(threads):
        threading.Thread(target=compute, args=(which,), daemon=True).start()
    space.nearest(point, allowed, rng)
    before, found, begin = sum(done), 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        space.nearest(point, allowed, rng)
        found += 1
    spent = time.perf_counter() - begin
    stop.set()
    row = {
        "threads": threads,
        "at_once": min(at_once, threads),
        "nearest_ms": round(1e3 * spent / found, 2),
        "references_per_s": round((sum(done) - before) / spent, 1),
    }
    print(json.dumps(row), flush=True)
    time.sleep(0.5)
    return row


if __name__ == "__main__":
    main()
