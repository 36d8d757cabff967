"""How many trials a minute a search on a recording makes, store included, and how near it comes to the recorded best.

    python -m bench.speed.replay [--save] [TRIALS]

One search for each shipped recording and strategy, as `greenfast search` runs it, each on a fresh SQLite database.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.environment import publish
from greenfast.app.service.worker import Stop, run_claim, worker_name
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.recordings.rules import time_us
from greenfast.search.recordings.shelf import find_recording, recording_names
from greenfast.search.strategies import STRATEGIES

TRIALS, SEED = 300, 1


def searched(name: str, strategy: str, trials: int, folder: Path) -> dict:
    """One search to its end."""
    heading = find_recording(name).heading
    services = Services(
        replace(Settings.from_environment({"GREENFAST_DATA": str(folder)}), drain_s=1.0)
    )
    try:
        row = services.store.submit(
            services.plan(
                SearchRequest(
                    kernel=heading.kernel,
                    target=f"replay:{name}",
                    strategy=strategy,
                    trials=trials,
                    seed=SEED,
                )
            )
        )
        begin = time.perf_counter()
        run_claim(services, services.store.claim(worker_name(), 30.0, row.id), Stop(1.0))
        took = time.perf_counter() - begin
        best = services.store.best(row.id).time_median_us
    finally:
        services.close()
    times = sorted(time_us(one.times[0]) for one in find_recording(name).rows if one.times)
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
    trials = next((int(one) for one in sys.argv[1:] if one.isdigit()), TRIALS)
    rows = []
    for name in recording_names():
        for strategy in sorted(STRATEGIES):
            with tempfile.TemporaryDirectory(prefix="greenfast-replay-") as folder:
                rows.append(searched(name, strategy, trials, Path(folder)))
            print(rows[-1], flush=True)
    publish("replay", rows)


if __name__ == "__main__":
    main()
