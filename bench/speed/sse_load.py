"""Milliseconds that the list of searches takes while many clients follow one running search.

    python -m bench.speed.sse_load [--clients 50] [--label now] [--save]

Run it on two commits to compare them. --label names the row; --save keeps rows of other labels.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import httpx

from bench.command_line import add_save, script_parser
from bench.environment import environment
from bench.results import ROOT, Row, find_result, write_result
from greenfast.db.store import Store
from greenfast.search.strategies.base import Proposal
from tests import store_values as values

TRIALS = 100
RECORD_EVERY_S = 0.2
MEASURED_S = 8.0


def record(store: Store, claim: Any, number: int) -> None:
    trial = values.trial(number, values.green(number, 100.0 + number % 37))
    store.begin(claim, number, Proposal(trial.candidate, trial.sampler))
    store.record(claim, trial, values.source(number))


def follow(url: str, done: threading.Event) -> None:
    try:
        with httpx.stream("GET", url, timeout=None, trust_env=False) as response:
            for _ in response.iter_raw():
                if done.is_set():
                    return
    except httpx.HTTPError:
        return


def measure(clients: int) -> Row:
    """Times of GET /api/v1/searches while trials are recorded and `clients` follow."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/greenfast.sqlite3")
        row = store.submit(values.plan(trials=100_000))
        claim = store.claim("bench", 600.0)
        for number in range(TRIALS):
            record(store, claim, number)
        server = subprocess.Popen(
            [sys.executable, "-m", "greenfast", "serve", "--port", "0", "--workers", "0"],
            cwd=ROOT,
            env={**os.environ, "GREENFAST_DATA": folder},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            url = server.stdout.readline().split()[-1]
            return _measure(store, claim, url, row.id, clients)
        finally:
            server.terminate()
            server.wait(30)
            store.close()


def _measure(store: Store, claim: Any, url: str, search_id: str, clients: int) -> Row:
    done, took = threading.Event(), []
    events = f"{url}/api/v1/searches/{search_id}/events"
    for _ in range(clients):
        threading.Thread(target=follow, args=(events, done), daemon=True).start()
    time.sleep(3)
    end, number, due = time.monotonic() + MEASURED_S, TRIALS, 0.0
    with httpx.Client(trust_env=False, timeout=60) as http:
        while time.monotonic() < end:
            if time.monotonic() >= due:
                record(store, claim, number)
                number, due = number + 1, time.monotonic() + RECORD_EVERY_S
            started = time.perf_counter()
            http.get(f"{url}/api/v1/searches").raise_for_status()
            took.append((time.perf_counter() - started) * 1e3)
            time.sleep(0.02)
    done.set()
    return {
        "clients": clients,
        "requests": len(took),
        "p50_ms": round(statistics.median(took), 1),
        "p95_ms": round(sorted(took)[int(len(took) * 0.95)], 1),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--label", default="now")
    options = parser.parse_args()
    rows = [
        {"label": options.label, **measure(clients), "environment": environment()}
        for clients in (0, options.clients)
    ]
    print(json.dumps(rows, indent=1))
    if options.save:
        stored = find_result("sse_load").get("rows", [])
        others = [row for row in stored if row["label"] != options.label]
        write_result("sse_load", {"environment": environment(), "rows": others + rows})


if __name__ == "__main__":
    main()
