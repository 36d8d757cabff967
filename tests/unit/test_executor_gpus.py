"""GPUs of a cluster: an actor for each, stand-in boards, and one whose machine dies."""

from __future__ import annotations

import pytest
import standin_gpus
from standin_cluster import Machine, Opener, StandInCluster
from standin_search import axpy_search
from test_run import ListSink

from greenfast.search.errors import UsageError
from greenfast.search.executors import node
from greenfast.search.executors.on_cluster import OnCluster
from greenfast.search.gates import judges
from greenfast.search.loop.sink import Ended
from greenfast.search.loop.target_space import target_device
from greenfast.search.targets import TargetSettings
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.targets.elsewhere import note_device
from greenfast.search.verdict import Faulted, performance_of

TRIALS = 8


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """`cluster(gpus, **deaths)`: an executor with stand-in GPUs, by number."""
    monkeypatch.setenv(node.CACHE_VARIABLE, str(tmp_path / "cache"))
    executors = []

    def opened(gpus, dies_at=None):
        standin_gpus.install(monkeypatch, tmp_path / "tmp", gpus)

        def opener(number):
            return lambda cache, deadline_s: CudaTarget(str(number), cache, deadline_s)

        openers = [
            Opener(f"gpu{number}", opener(number), (dies_at or {}).get(number, 10**9))
            for number in gpus
        ]
        executors.append(OnCluster("stand-in", StandInCluster([Machine("a")], openers)))
        return executors[-1]

    yield opened
    for executor in executors:
        executor.close()


def searched(executor, album, toolchain, tmp_path, sink, which="all"):
    target = executor.target(
        f"cuda:{which}", TargetSettings(tmp_path / "cache", album.include_dirs, 1)
    )
    return axpy_search(target, sink, album, toolchain, trials=TRIALS).run()


def gpus_of(sink):
    return [
        timing.device_index
        for trial in sink.trials
        for timing in performance_of(trial.verdict).timings
    ]


@pytest.mark.slow
def test_a_search_uses_every_gpu_of_the_cluster(cluster, album, toolchain, tmp_path):
    sink, executor = ListSink(), cluster({0: {}, 1: {}})
    result = searched(executor, album, toolchain, tmp_path, sink)
    assert result.ended is Ended.COMPLETED
    assert [trial.number for trial in sink.trials] == list(range(TRIALS))
    assert set(gpus_of(sink)) == {0, 1}  # numbers in the cluster
    assert not any(isinstance(trial.verdict, Faulted) for trial in sink.trials)


def test_outputs_of_a_clusters_gpu_are_judged_where_there_are_workers_here(
    cluster, album, toolchain, tmp_path, monkeypatch
):
    """Workers describe problems in files of this machine, which an actor does not have."""
    workers = judges.Judges(1)
    monkeypatch.setattr(judges._Shared, "judges", workers)
    sink, executor = ListSink(), cluster({0: {}, 1: {}})
    try:
        result = searched(executor, album, toolchain, tmp_path, sink)
    finally:
        workers.close()
    assert result.ended is Ended.COMPLETED and not workers.pool.all
    assert [trial.number for trial in sink.trials] == list(range(TRIALS))


def test_a_gpu_whose_machine_dies_drops_out_and_loses_nothing(cluster, album, toolchain, tmp_path):
    sink, executor = ListSink(), cluster({0: {}, 1: {}}, dies_at={1: 4})
    result = searched(executor, album, toolchain, tmp_path, sink)
    assert result.ended is Ended.COMPLETED
    assert [trial.number for trial in sink.trials] == list(range(TRIALS))
    assert not any(isinstance(trial.verdict, Faulted) for trial in sink.trials)
    assert "cuda:1 dropped out (gpu_lost)" in result.closing


def test_a_plan_knows_the_model_of_a_gpu_that_this_machine_does_not_have(cluster):
    executor = cluster({0: {"model": "l4"}})
    actors = executor.work.cluster.opened_actors
    try:
        note_device("cuda:0", executor.device("cuda:0"))
        assert target_device("cuda:0").name == "l4"
        assert len(actors) == 1 and actors[0].has_ended  # another process may take the GPU
        assert executor.device("cuda:0").name == "l4" and len(actors) == 1
    finally:
        note_device("cuda:0", None)


def test_gpus_that_the_cluster_has_not_are_refused_and_models_are_not_mixed(cluster, tmp_path):
    executor = cluster({0: {}, 1: {"model": "l4"}})
    settings = TargetSettings(tmp_path / "cache", (), 1)
    with pytest.raises(UsageError, match="2 GPUs of the cluster are free") as refused:
        executor.target("cuda:2", settings)
    assert refused.value.code == "no_gpu"
    with pytest.raises(UsageError) as refused:
        executor.target("cuda:all", settings)
    assert refused.value.code == "mixed_gpus"
    assert executor.target("cuda:1", settings).device.name == "l4"
