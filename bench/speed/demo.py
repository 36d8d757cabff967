"""Trials a minute of the demo's search on the emulator: in a fresh data folder, then warm.

python -m bench.speed.demo [--save]
"""

from __future__ import annotations

import tempfile
import time

from bench.command_line import add_save, greenfast_json, script_parser
from bench.environment import publish
from bench.results import Row

TRIALS = 48


def search(folder: str, seed: int) -> Row:
    """One search by the command line, as a user runs it."""
    started = time.perf_counter()
    arguments = ["search", "attention", "--workload", "mission", "--strategy", "tpe"]
    arguments += ["--trials", str(TRIALS), "--seed", str(seed)]
    detail = greenfast_json(*arguments, data=folder)
    wall_s = time.perf_counter() - started
    return {
        "trials": TRIALS,
        "seed": seed,
        "wall_s": round(wall_s, 1),
        "trials_per_minute": round(TRIALS / wall_s * 60, 1),
        "by_verdict": detail["counts"]["by_verdict"],
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"what": "fresh data folder, the emulator is built first", **search(folder, 1)},
            {"what": "emulator built, other candidates", **search(folder, 2)},
        ]
    publish("demo", rows, save=options.save)


if __name__ == "__main__":
    main()
