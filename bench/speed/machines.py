"""Bytes and tasks of a trial whose work is done on other machines, and what a task costs to send.

    python -m bench.speed.machines [--save]

A search of attention runs with the executor of a cluster, whose only machine is this process. Every
parcel is counted; an array that went out before does not go out again. Where Ray is installed, the
searching process's share of a task that does nothing is measured on a cluster of this machine.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from greenfast.app.service.worker import Stop, run_claim
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.executors import node
from greenfast.search.executors.cluster import Actor, Cluster, Task, Work
from greenfast.search.executors.on_cluster import OnCluster
from greenfast.search.executors.parcel import Parcel
from greenfast.search.loop.plan import SearchRequest

TRIALS = 4
EMPTY_TASKS, CALLERS = 600, 16


class Counting(Cluster):
    """This process as the only machine of a cluster, which counts what reaches it."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def cores(self) -> int:
        return 2

    def gpu_count(self) -> int:
        return 0

    def run(
        self,
        task: Task,
        parcel: Parcel,
        arrays: Mapping[str, np.ndarray],
        near: str,
        avoided: Sequence[str],
    ) -> Parcel:
        reply = task(parcel, *(arrays[digest] for digest in parcel.digests))
        with self._lock:
            new = [digest for digest in parcel.digests if digest not in self._seen]
            self._seen.update(new)
            counts = self.counts[task.__name__]
            counts["tasks"] += 1
            counts["parcel_bytes"] += len(parcel.data)
            counts["array_bytes"] += sum(arrays[digest].nbytes for digest in parcel.digests)
            counts["new_array_bytes"] += sum(arrays[digest].nbytes for digest in new)
            counts["reply_bytes"] += len(reply.data)
        return reply

    def actors(self, setup: object) -> list[Actor]:
        return []

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


def trial_rows(folder: Path) -> list[Row]:
    """What each task sends in a search, and their sum for a trial."""
    os.environ[node.CACHE_VARIABLE] = str(folder / "node")
    services, counting = Services(Settings(data=folder / "data")), Counting()
    services.__dict__["executor"] = OnCluster("counting", counting)
    search = SearchRequest(
        "attention",
        workloads=("mission",),
        templates=("mma",),
        trials=TRIALS,
        strategy="tpe",
        seed=1,
        baseline="none",
    )
    row = services.submit(search)
    claim = services.store.claim("bench", 3600.0, row.id)
    assert claim is not None
    report = run_claim(services, claim, Stop(10.0))
    assert report.ended == "completed", report
    services.close()
    rows: list[Row] = [
        {"what": "task", "task": name, **dict(counts)} for name, counts in counting.counts.items()
    ]
    keys = ("tasks", "parcel_bytes", "new_array_bytes", "reply_bytes")
    sums = {key: round(sum(row[key] for row in rows) / TRIALS, 1) for key in keys}
    return [*rows, {"what": "trial", "trials": TRIALS, "target": "emulator:h200", **sums}]


def ray_row() -> Row:
    """Processor time of the searching process for a task, with that of Ray's threads in it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster as LocalCluster

    from greenfast.search.executors.ray_cluster import RayCluster

    machine = LocalCluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    cluster = RayCluster(machine.address)
    work = Work(cluster)

    def ask(number: int) -> None:
        work.run(node.answer_nothing, None, str(number))

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(ask, range(2 * CALLERS)))
        begin_s, begin_wall_s = time.process_time(), time.perf_counter()
        list(pool.map(ask, range(EMPTY_TASKS)))
        cpu_s, wall_s = time.process_time() - begin_s, time.perf_counter() - begin_wall_s
    cluster.close()
    machine.shutdown()
    return {
        "what": "empty task",
        "tasks": EMPTY_TASKS,
        "callers": CALLERS,
        "searching_process_cpu_ms": round(1000 * cpu_s / EMPTY_TASKS, 3),
        "wall_ms": round(1000 * wall_s / EMPTY_TASKS, 3),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    save = parser.parse_args().save
    with tempfile.TemporaryDirectory() as folder:
        rows = trial_rows(Path(folder))
    publish("machines", [*rows, *([ray_row()] if find_spec("ray") else [])], save=save)


if __name__ == "__main__":
    main()
