"""The executor on a real Ray cluster of two machines, one of which is killed in mid-search."""

# ruff: noqa: F811 - fixtures of another file

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import ray_machines
import test_executor_gpus
from test_executors import TRIALS, figures, local_figures, search  # noqa: F401  fixtures
from test_run import ListSink

from greenfast.search.errors import Fault, UsageError
from greenfast.search.executors import node
from greenfast.search.executors.on_cluster import OnCluster
from greenfast.search.executors.ray_cluster import RayCluster
from greenfast.search.loop.sink import Ended
from greenfast.search.verdict import Faulted

HERE = Path(__file__).parent
DEADLINE_S = 120.0
STORE_BYTES = 80 * 2**20
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # a token would be written to the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
}


@pytest.mark.parametrize("address", ["", "localhost", "h:0", "h:x", "ray://h:1", "h:99999"])
def test_an_address_that_makes_no_sense_is_refused_at_once(address, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", object())
    with pytest.raises(UsageError) as refused:
        RayCluster(address)
    assert refused.value.code == "bad_address" and "HOST:PORT" in refused.value.mend


def test_an_address_at_which_nothing_listens_is_refused_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", object())
    with pytest.raises(UsageError) as refused:
        RayCluster("127.0.0.1:1")
    assert refused.value.code == "no_cluster"


def test_without_ray_the_user_is_told_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as refused:
        RayCluster("auto")
    assert refused.value.code == "no_ray" and "greenfast[ray]" in refused.value.mend


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Ray's folder, in which it looks for one named ray: its sockets' paths must be short."""
    folder = tempfile.mkdtemp(prefix="gf-ray-", dir="/tmp")
    Path(folder, "ray").mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machines(home, artifacts, tmp_path, monkeypatch):
    """`machines(gpus)`: a head and a second machine of one core each, and an executor on them."""
    pytest.importorskip("ray", reason="the package ray is not installed")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_TMPDIR", home)
    monkeypatch.setenv(node.CACHE_VARIABLE, str(artifacts))
    monkeypatch.setenv(ray_machines.FOLDER, str(tmp_path))
    from ray.cluster_utils import Cluster

    started, executors = [], []

    def start(gpus=0, opened=None):
        size = {"num_cpus": 1, "num_gpus": gpus, "object_store_memory": STORE_BYTES}
        head = {**size, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        started.append(cluster)
        second = cluster.add_node(**size)
        executors.append(OnCluster("ray", RayCluster(cluster.address), opened=opened))
        return executors[-1], lambda: cluster.remove_node(second, allow_graceful=False), second

    yield start
    for executor in executors:
        executor.close()
    for cluster in started:
        cluster.shutdown()


@pytest.mark.slow
def test_a_search_whose_second_machine_is_killed_finds_what_one_here_finds(
    machines,
    search,
    local_figures,
):
    executor, kill, _ = machines()

    class Killing(ListSink):
        def record(self, records):
            super().record(records)
            if len(self.trials) == 1:
                kill()

    sink = Killing()
    result = search(executor, sink).run()
    assert result.ended is Ended.COMPLETED
    assert figures(sink) == local_figures
    assert [number for number, _ in sink.begun] == list(range(TRIALS))
    assert not any(isinstance(trial.verdict, Faulted) for trial in sink.trials)


@pytest.mark.slow
def test_a_task_on_a_machine_that_is_killed_runs_on_another(machines, tmp_path):
    executor, kill, second = machines()
    cluster = executor.work.cluster
    name = second.node_id
    near = next(
        str(number)
        for number in range(100)
        if cluster._placed(str(number), ())["scheduling_strategy"].node_id == name
    )
    replies = []
    thread = threading.Thread(
        target=lambda: replies.append(executor.work.run(ray_machines.stays_on, name, near))
    )
    thread.start()
    end = time.monotonic() + DEADLINE_S
    while not (tmp_path / f"on-{name}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    kill()
    thread.join(DEADLINE_S)
    assert len(replies) == 1 and replies[0] != name
    assert executor.work.repeated == 1


@pytest.mark.slow
def test_an_interrupt_ends_what_is_under_way_and_later_tasks_run(machines, tmp_path):
    executor, _, second = machines()
    name, faults = second.node_id, []
    head = next(each for each in executor.work.cluster._usable(()) if each != name)

    def stay(doomed):
        try:
            executor.work.run(ray_machines.stays_on, doomed)
        except Fault as fault:
            faults.append(fault.code)

    # One of them runs on its own machine and stays; the others may wait behind it.
    threads = [threading.Thread(target=stay, args=(each,)) for each in (name, head, name, head)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + DEADLINE_S
    while not list(tmp_path.glob("on-*")) and time.monotonic() < end:
        time.sleep(0.05)
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
        executor.work.cluster.interrupt()
        time.sleep(1.0)
    assert not any(thread.is_alive() for thread in threads)
    assert set(faults) <= {"interrupted"}
    assert executor.work.run(ray_machines.stays_on, "nobody") in (name, head)


@pytest.mark.slow
def test_a_gpu_of_a_killed_machine_drops_out_and_loses_nothing(
    machines, album, toolchain, tmp_path
):
    executor, kill, _ = machines(gpus=1, opened=ray_machines.open_standin)

    class Killing(ListSink):
        def record(self, records):
            before = len(self.trials)
            super().record(records)
            if before < 2 <= len(self.trials):
                kill()

    sink = Killing()
    result = test_executor_gpus.searched(executor, album, toolchain, tmp_path, sink)
    assert result.ended is Ended.COMPLETED
    assert [trial.number for trial in sink.trials] == list(range(test_executor_gpus.TRIALS))
    assert not any(isinstance(trial.verdict, Faulted) for trial in sink.trials)
    assert "(gpu_lost)" in result.closing
