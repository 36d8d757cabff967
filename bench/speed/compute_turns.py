"""How much computing threads delay each other and the search's loop, by how many compute at once.

    python -m bench.speed.compute_turns [--save]

Sixteen threads compute references of attention's checks, as a search's threads do, while one finds
nearest points in a space, as the search's loop does after each trial. Times depend on the machine;
only the ratios between the rows matter.
"""

from __future__ import annotations

import json
import random
import threading
import time

import numpy as np

from bench.command_line import add_save, script_parser
from bench.environment import basic_environment
from bench.results import Row, write_result
from greenfast.search import compute_turns
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.reference import compute_case_data
from greenfast.search.space.space import Space

THREADS, SECONDS = 16, 6.0
TILES = {"tile_q": 32, "tile_kv": 256, "depth": 1, "parts": 2, "blocks": 1}


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    rows = [measured(0, 1), *(measured(THREADS, at_once) for at_once in (16, 4, 2, 1))]
    if options.save:
        environment = {**basic_environment(), "numpy": np.__version__}
        write_result("compute_turns", {"environment": environment, "rows": rows})


def measured(threads: int, at_once: int) -> Row:
    """The rates with `threads` computing threads, of which `at_once` have a turn."""
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    compiled = kernel.workload("mission_bf16").compile_time(kernel)
    space, rng = Space(kernel.template("mma"), compiled, device("h200")), random.Random(1)
    point, allowed = space.points[len(space.points) // 3], np.ones(len(space.points), bool)
    cases = derived_cases(kernel, compiled, TILES, 7)
    compute_turns._turns = threading.BoundedSemaphore(at_once)
    stop, done = threading.Event(), [0] * threads

    def compute(number: int) -> None:
        while not stop.is_set():
            compute_case_data(kernel, cases[done[number] % len(cases)], None)
            done[number] += 1

    for number in range(threads):
        threading.Thread(target=compute, args=(number,), daemon=True).start()
    space.nearest(point, allowed, rng)
    before, searched, begin = sum(done), 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        space.nearest(point, allowed, rng)
        searched += 1
    spent = time.perf_counter() - begin
    stop.set()
    row = {
        "threads": threads,
        "at_once": min(at_once, threads),
        "nearest_ms": round(1e3 * spent / searched, 2),
        "references_per_s": round((sum(done) - before) / spent, 1),
    }
    print(json.dumps(row), flush=True)
    time.sleep(0.5)
    return row


if __name__ == "__main__":
    main()
