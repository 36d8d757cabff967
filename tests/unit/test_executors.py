"""The contract of executors: the same cubins, outputs, verdicts and choices on any machines, and
nothing lost, doubled or told where a machine dies."""

from __future__ import annotations

import numpy as np
import pytest
from contexts import plan_context
from standin_cluster import Machine, StandInCluster
from test_run import NO_HISTORY, ListSink

from greenfast.search.errors import Fault, SpecError, UsageError
from greenfast.search.executors import node
from greenfast.search.executors.cluster import ATTEMPTS, Raised, Work, replied
from greenfast.search.executors.on_cluster import OnCluster
from greenfast.search.executors.parcel import packed, unpacked
from greenfast.search.executors.this_machine import ThisMachine
from greenfast.search.kernels.template_text import Line
from greenfast.search.loop import evaluate
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended
from greenfast.search.render import RenderedSource
from greenfast.search.targets import TargetSettings
from greenfast.search.targets.base import SourceRefused
from greenfast.search.targets.emulator.target import CannotCompile
from greenfast.search.toolchain import CompileFailed
from greenfast.search.verdict import Faulted, verdict_name

TRIALS = 4


@pytest.fixture(autouse=True)
def nodes_cache(monkeypatch, artifacts):
    """The stand-in's machines share the tests' cache, so that nothing is built twice."""
    monkeypatch.setenv(node.CACHE_VARIABLE, str(artifacts))


@pytest.fixture(scope="module")
def search(artifacts, album):
    """`search(executor, sink)`: a search of axpy on the executor's machines, ready to run."""

    def prepared(executor, sink, history=NO_HISTORY, **request):
        target = executor.target(
            "emulator:h200", TargetSettings(artifacts, album.include_dirs, 1, 8.0)
        )
        request = {"trials": TRIALS, "strategy": "random", "seed": 3, **request}
        plan = make_plan(SearchRequest("axpy", templates=("right",), **request), album, window=3)
        context = plan_context(album, plan, target, executor.toolchain(artifacts, 1, None))
        return SearchRun(plan, context, sink, history)

    return prepared


def on_machines(*machines):
    return OnCluster("stand-in", StandInCluster(machines))


def figures(sink):
    """What a trial says, apart from how long it took."""
    return [
        (
            trial.number,
            trial.candidate.digest,
            verdict_name(trial.verdict),
            [(gate.gate, type(gate).__name__) for gate in trial.verdict.gates],
            [timing.time_median_us for timing in evaluate.timings_of(trial.verdict) or ()],
        )
        for trial in sink.trials
    ]


@pytest.fixture(scope="module")
def local_figures(search):
    sink = ListSink()
    search(ThisMachine(), sink).run()
    return figures(sink)


def test_a_search_on_a_cluster_finds_what_one_here_finds(search, local_figures):
    sink, machines = ListSink(), [Machine("a"), Machine("b")]
    result = search(on_machines(*machines), sink).run()
    assert result.ended is Ended.COMPLETED and len(local_figures) == TRIALS
    assert figures(sink) == local_figures
    for machine in machines:  # the work was shared, and no emulated run was here
        assert {"examine", "emulate"} <= set(machine.tasks)


def test_a_machine_that_dies_loses_and_doubles_nothing(search, local_figures):
    sink = ListSink()
    executor = on_machines(Machine("a"), Machine("b", dies_at=5))
    result = search(executor, sink).run()
    assert result.ended is Ended.COMPLETED
    assert figures(sink) == local_figures
    assert [number for number, _ in sink.begun] == list(range(TRIALS))
    assert executor.work.repeated == 1


def test_a_search_whose_machines_all_die_fails_and_tells_the_strategy_nothing(search, monkeypatch):
    sink, told = ListSink(), []
    run = search(on_machines(Machine("a", dies_at=7)), sink, trials=9)
    tell = run.strategy.tell
    monkeypatch.setattr(run.strategy, "tell", lambda *words: (told.append(words), tell(*words)))
    result = run.run()
    assert result.ended is Ended.FAILED and "machine_lost" in result.why
    faults = [trial for trial in sink.trials if isinstance(trial.verdict, Faulted)]
    assert faults and {fault.verdict.code for fault in faults} == {"machine_lost"}
    candidates = {trial.candidate.digest for trial in faults}
    assert not candidates & {proposal.candidate.digest for proposal, _ in told}


def test_a_machine_of_another_version_is_not_used_and_the_search_says_so(search, local_figures):
    sink = ListSink()
    other = Machine("b", differs=True)
    run = search(on_machines(Machine("a"), other), sink)
    result = run.run()
    assert figures(sink) == local_figures
    assert result.closing.count("b differs; it is not used") == 1
    assert len(other.tasks) <= 3  # those that were under way together


def test_a_machine_with_another_toolkit_or_emulator_says_so(artifacts):
    wrong = node.CompileRequest((("nvidia-cuda-nvrtc", "1.2.3"),), {})
    reply = unpacked(node.compile_source(packed(wrong)[0]), {})
    assert "nvidia-cuda-nvrtc" in reply.sentence and "1.2.3" in reply.sentence
    setup = node.EmulatorSetup("h200", "{}", 8.0, "0.0.1")
    reply = unpacked(node.describe_emulator(packed(setup)[0]), {})
    assert "greenfast" in reply.sentence and "0.0.1" in reply.sentence


def test_a_source_that_nvrtc_refuses_is_refused_in_the_same_words(artifacts, tmp_path, toolchain):
    text = 'extern "C" __global__ void k() { undeclared = 1; }\n'
    source = RenderedSource(text, "ab" * 32, (Line("k.cu", 1),), text, ("k",), False)
    remote = on_machines(Machine("a")).toolchain(tmp_path, 1, None)
    here, there = toolchain.compile(source, "sm_90"), remote.compile(source, "sm_90")
    assert isinstance(there, CompileFailed) and there == here


@pytest.mark.parametrize(
    "error",
    [
        Fault("a disk is full", code="disk_full", mend="free some"),
        SpecError("a header is missing", code="unknown_header"),
        UsageError("no", code="no_gpu"),
        SourceRefused("line 3 is host code"),
        CannotCompile("the emulator cannot", "its log"),
    ],
)
def test_an_error_of_a_machine_is_the_same_here(error):
    def fails():
        raise error

    raised = unpacked(replied(fails), {})
    assert isinstance(raised, Raised)
    again = raised.error()
    assert type(again) is type(error)
    assert (again.message, again.code, again.mend) == (error.message, error.code, error.mend)
    assert getattr(again, "log", "") == getattr(error, "log", "")


def test_an_array_larger_than_its_memory_travels_as_its_elements():
    gap = np.broadcast_to(np.uint8(7), 3 * 2**30)  # between the parts of a tensor with far strides
    rows = np.broadcast_to(np.arange(5000, dtype=np.int64), (4000, 5000))
    parcel, arrays = packed({"gap": gap, "rows": rows})
    assert len(parcel.data) + sum(array.nbytes for array in arrays.values()) < 100_000
    again = unpacked(parcel, arrays)
    assert again["gap"].shape == gap.shape and again["gap"].dtype == gap.dtype
    assert again["gap"][-1] == 7
    assert np.array_equal(again["rows"], rows)


def test_a_large_array_or_text_is_beside_the_parcel_once_and_a_small_one_in_it():
    large, text = np.arange(2**15, dtype=np.int32), "x" * 2**15
    value = {"a": large, "b": (large, [text]), "small": np.ones(3), "code": b"\x00" * 2**15}
    parcel, arrays = packed(value)
    assert len(parcel.data) < 2000 and len(arrays) == 3
    assert parcel.digests == tuple(arrays)
    again = unpacked(parcel, arrays)
    assert np.array_equal(again["a"], large) and np.array_equal(again["b"][0], large)
    assert again["b"][1] == [text] and again["code"] == value["code"]
    assert np.array_equal(again["small"], np.ones(3))
    assert packed(large)[1].keys() != packed(large.view(np.float32))[1].keys()


def test_a_header_cannot_leave_its_folder(artifacts):
    setup = node.EmulatorSetup("h200", '{"../planted.cuh": ""}', 8.0, node.own_version())
    reply = unpacked(node.describe_emulator(packed(setup)[0]), {})
    assert isinstance(reply, Raised) and reply.code == "bad_header_name"
    assert not (artifacts / "headers" / "planted.cuh").exists()


def test_a_task_is_given_up_after_some_machines_died_with_it():
    cluster = StandInCluster([Machine(str(number), dies_at=1) for number in range(ATTEMPTS + 2)])
    setup = node.EmulatorSetup("h200", "{}", 8.0, "0.0.1")
    with pytest.raises(Fault) as lost:
        Work(cluster).run(node.describe_emulator, setup)
    assert lost.value.code == "machine_lost"
    assert sum(len(machine.tasks) for machine in cluster.machines) == ATTEMPTS
