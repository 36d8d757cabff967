"""Outputs judged in a worker: the same results, and no verdict from a worker that fails."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest
import standin_gpus
from slow_cases import quick_first

from greenfast.search.errors import Fault
from greenfast.search.gates import judges
from greenfast.search.gates.base import Conditions, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.judges import Judges, workers_for
from greenfast.search.gates.promises import Siblings
from greenfast.search.render import render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import GateLimits
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.verdict import Failed, Green, Passed, Reason, Trial

GATE = CorrectnessGate()


@pytest.fixture
def subject(monkeypatch, tmp_path, toolchain, album):
    """`subject(catalogue, gpus, ...)`: axpy on a stand-in GPU."""
    opened = []

    def prepared(catalogue=album, gpus=None, which="0", threads=128, **conditions):
        standin_gpus.install(monkeypatch, tmp_path / "tmp", gpus or {0: {}})
        target = open_target(
            f"cuda:{which}", TargetSettings(tmp_path / "cache", catalogue.include_dirs, 1)
        )
        opened.append(target)
        kernel = catalogue.kernel("axpy")
        template, compiled = kernel.template("right"), kernel.workload("line").compile_time(kernel)
        candidate = preset_candidate(template, "plain", compiled)
        values = {**candidate.values(), "threads": threads}
        candidate = replace(candidate, parameters=tuple(values.items()))
        point = resolve(template, candidate.parameters, compiled, target.device)
        source = render(kernel, template, point, catalogue.include_dirs)
        cubin = toolchain.compile(source, target.device.compiled_arch(specific=False))
        workloads = (kernel.workload("line"),)
        given = {"limits": GateLimits(), "seed": 3, "sizes_secret": 11, **conditions}
        return Subject(
            Conditions(kernel, compiled, workloads, target, **given), candidate, source, cubin
        )

    yield prepared
    for target in opened:
        target.close()


@pytest.fixture(scope="module")
def one_worker():
    shared = Judges(1)
    yield shared
    shared.close()


@pytest.fixture
def worker(one_worker, monkeypatch):
    """The worker of this process."""
    monkeypatch.setattr(judges._Shared, "judges", one_worker)
    return one_worker


@pytest.fixture
def here(monkeypatch):
    """The candidates that this process judged."""
    seen, judged_here = [], CorrectnessGate.judged_here

    def counted(gate, subject):
        seen.append(subject.candidate)
        return judged_here(gate, subject)

    monkeypatch.setattr(CorrectnessGate, "judged_here", counted)
    return seen


def both(subject, worker):
    """The result of a worker, and of this process."""
    return worker.judged(subject), GATE.judged_here(subject)


@pytest.mark.parametrize(
    ("gpus", "which"), quick_first([({0: {}}, "0"), ({0: {}, 1: {}}, "0,1")], 1)
)
def test_a_worker_gives_the_result_of_this_process(subject, worker, here, gpus, which):
    ready = subject(gpus=gpus, which=which)
    elsewhere, own = both(ready, worker)
    assert isinstance(elsewhere, Passed) and elsewhere == own and len(own.evidence.checks) > 5
    assert GATE.judge(ready) == own and len(here) == 1


def test_wrong_outputs_are_refused_with_the_same_evidence(subject, worker, broken_kernel):
    ready = subject(broken_kernel("reference.py", "2.5", "2.25"))
    elsewhere, own = both(ready, worker)
    assert isinstance(elsewhere, Failed) and elsewhere.reason is Reason.WRONG_VALUES
    assert elsewhere == own


def test_an_error_of_the_gpu_in_one_run_is_that_runs(subject, worker):
    elsewhere, own = both(subject(gpus={0: {"illegal_at": 2}}), worker)
    assert isinstance(elsewhere, Failed) and elsewhere.reason is Reason.DEVICE_FAULT
    assert elsewhere == own


def test_a_broken_promise_to_a_sibling_is_seen_outside_the_worker(subject, worker, here):
    siblings = Siblings(subject().kernel)
    first = subject(threads=256, siblings=siblings)
    result = GATE.judge(first)
    checks = tuple(replace(check, output_digest="0") for check in result.evidence.checks)
    wrong = replace(result, evidence=replace(result.evidence, checks=checks))
    siblings.learn(Trial(1, first.candidate, Green((wrong,)), "a", 0.1))
    broken = GATE.judge(subject(siblings=siblings))
    assert isinstance(broken, Failed) and "trial 1 left" in broken.sentence and not here


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_worker_that_is_killed_is_no_verdict_and_is_replaced(subject, worker, here, number):
    ready, answered = subject(), CudaTarget.answered

    @contextmanager
    def killing(target, program, problems):
        with answered(target, program, problems) as answer:
            for child in worker.pool.all:  # in the middle of its conversation
                os.kill(child.process.pid, number)
                killed.append(child)
            yield answer

    killed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaTarget, "answered", killing)
        assert isinstance(GATE.judge(ready), Passed) and len(here) == 1
    assert isinstance(worker.judged(ready), Passed) and len(killed) == 1
    assert killed[0] not in worker.pool.all


@pytest.mark.slow
def test_a_worker_that_cannot_judge_leaves_it_to_this_process(subject, worker, here, monkeypatch):
    monkeypatch.setattr(judges, "_commission", lambda subject: None)
    assert isinstance(GATE.judge(subject()), Passed) and len(here) == 1
    worker.pool.close()
    monkeypatch.setattr(worker.pool, "_module", "greenfast.no_such_module")
    assert isinstance(GATE.judge(subject()), Passed) and len(here) == 2


def test_a_lost_gpu_is_a_fault_and_the_worker_does_not_answer_the_next_request(subject, worker):
    ready = subject(gpus={0: {"dies_at": 1}})
    with pytest.raises(Fault) as fault:
        GATE.judge(ready)
    assert fault.value.code == "child_lost"
    assert isinstance(GATE.judge(subject()), Passed)


def test_a_stopped_search_asks_no_gpu(subject, worker):
    ready = subject()
    ready.conditions.stop.set()
    with pytest.raises(Fault) as fault:
        worker.judged(ready)
    assert fault.value.code == "interrupted"


@pytest.mark.slow
def test_a_service_forgets_the_kernels_of_old_searches(subject, worker, here, monkeypatch):
    monkeypatch.setattr(judges, "KERNELS_KEPT", 1)
    ready = subject()
    first = replace(ready, conditions=replace(ready.conditions, kernel=replace(ready.kernel)))
    other = replace(ready.kernel, title="another")
    files = [worker._kernel_file(kernel) for kernel in (first.kernel, ready.kernel)]
    assert files[0] == files[1] and files[0].exists() and len(worker._kernels) == 1
    assert worker._kernel_file(other) != files[0] and not files[0].exists()
    assert isinstance(GATE.judge(first), Passed) and not here  # written again


def test_small_machines_have_no_workers(monkeypatch):
    assert [workers_for(cores) for cores in (1, 2, 7, 8, 16, 32)] == [0, 0, 0, 4, 8, 16]
    monkeypatch.setattr(judges._Shared, "judges", None)
    judges.use_judges(0)
    assert judges._Shared.judges is None
