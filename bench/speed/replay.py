"""Trials a minute of searches on recordings, and how near they come to the best time.

    python -m bench.speed.replay [--save] [--trials 300] [--recording NAME ...]

One search for each shipped recording and strategy, as `greenfast search` runs it, each on a fresh
SQLite database.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from greenfast.app.service.worker import Stop, run_claim, worker_name
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.recordings.rules import time_us
from greenfast.search.recordings.shelf import find_recording, recording_names
from greenfast.search.strategies import STRATEGIES

TRIALS, SEED = 300, 1


def searched(name: str, strategy: str, trials: int, folder: Path) -> Row:
    """One search to its end."""
    recording = find_recording(name)
    settings = replace(Settings.from_environment({"GREENFAST_DATA": str(folder)}), drain_s=1.0)
    request = SearchRequest(
        kernel=recording.heading.kernel,
        target=f"replay:{name}",
        strategy=strategy,
        trials=trials,
        seed=SEED,
    )
    services = Services(settings)
    try:
        row = services.store.submit(services.plan(request))
        begin = time.perf_counter()
        run_claim(services, services.store.claim(worker_name(), 30.0, row.id), Stop(1.0))
        took = time.perf_counter() - begin
        best = services.store.best(row.id).time_median_us
    finally:
        services.close()
    times = sorted(time_us(row.times[0]) for row in recording.rows if row.times)
    return {
        "what": "search",
        "recording": name,
        "strategy": strategy,
        "trials": trials,
        "seconds": round(took, 2),
        "trials_per_minute": round(trials / took * 60),
        "best_us": best,
        "recorded_best_us": times[0],
        "rank_of_best": 1 + sum(time_ < best for time_ in times),
        "timed": len(times),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--recording", action="append", choices=recording_names())
    options = parser.parse_args()
    rows = []
    for name in options.recording or recording_names():
        for strategy in sorted(STRATEGIES):
            with tempfile.TemporaryDirectory(prefix="greenfast-replay-") as folder:
                rows.append(searched(name, strategy, options.trials, Path(folder)))
            print(rows[-1], flush=True)
    publish("replay", rows, save=options.save)


if __name__ == "__main__":
    main()
