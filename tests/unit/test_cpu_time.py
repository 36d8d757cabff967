"""Processor time ends a child, and wall time does not: a busy machine makes no negatives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulator_harness import ADD, Kernel, prepared, values

from greenfast.search.children import Child, ChildTimeout, Limits
from greenfast.search.cpu_time import Deadline, Starved, Watch, beside_others, group_s, process_s
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator import execute as native
from greenfast.search.targets.emulator.compiler_process import run_compiler

ROOT = Path(__file__).resolve().parents[2]

ENDLESS = """
extern "C" __global__ void k(float* out) {
    volatile int again = 1;
    while (again) {}
    out[0] = 1;
}
"""
CHILD = """
import sys, time
from greenfast.search.children import serve_requests

def answer(request):
    while True:
        time.sleep(request["sleep_s"]) if request["sleep_s"] else None

serve_requests(answer, int(sys.argv[1]), int(sys.argv[2]))
"""
LONG_S = 1000.0  # never reached
SHORT_S = 1.0
SHORTER_S = 0.1


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def run(kernel: Kernel, *jobs, deadline_s: float, wall_guard_s: float):
    return native.execute(
        kernel.emulator,
        kernel.module,
        jobs,
        workers=2,
        deadline_s=deadline_s,
        memory_bytes=2**31,
        wall_guard_s=wall_guard_s,
    )


@pytest.mark.slow
def test_a_kernel_that_spins_is_a_timeout_by_its_processor_time(emulator):
    kernel = Kernel(emulator, ENDLESS)
    job = kernel.job({}, {"out": np.zeros(1, np.float32)}, block=1)
    (result,) = run(kernel, job, deadline_s=SHORT_S, wall_guard_s=LONG_S)
    assert result.status == "timeout"


def test_a_run_that_only_wall_time_ends_is_a_fault_of_ours_and_no_timeout(emulator, monkeypatch):
    monkeypatch.setattr(native, "REPORTING_GRACE_S", SHORTER_S)
    kernel = Kernel(emulator, ENDLESS)
    job = kernel.job({}, {"out": np.zeros(1, np.float32)}, block=1)
    with pytest.raises(Fault) as refused:
        run(kernel, job, deadline_s=LONG_S, wall_guard_s=SHORTER_S)
    assert refused.value.code == "machine_busy" and refused.value.mend


ATTEMPTS = 20  # On a busy machine a run may end before the thread sees its process.


def test_a_run_that_was_kept_from_the_processor_is_repeated_and_comes_to_its_end(emulator):
    kernel = Kernel(emulator, ADD)
    a = np.arange(64, dtype=np.float32)
    job = kernel.job({"a": a, "b": a}, {"c": np.zeros(64, np.float32)}, (64,), grid=2)
    stopped, over = [], threading.Event()

    def stop_the_first() -> None:
        while not stopped and not over.is_set():
            for batch in tuple(native._live):
                os.kill(batch.process.pid, signal.SIGSTOP)
                stopped.append(batch.process.pid)
            time.sleep(0)

    stopping = threading.Thread(target=stop_the_first)
    stopping.start()
    try:
        for _ in range(ATTEMPTS):
            (result,) = run(kernel, job, deadline_s=0.5, wall_guard_s=6.0)
            if stopped:
                break
    finally:
        over.set()
        stopping.join()
    assert stopped and np.array_equal(values(result, "c"), 2 * a)


@pytest.mark.parametrize(
    ("sleep_s", "deadline", "ends"),
    [(0.0, Deadline(0.5, LONG_S), ChildTimeout), (0.2, Deadline(0.5, 1.5), Starved)],
)
def test_a_child_that_spins_is_late_and_one_that_waits_is_starved(
    tmp_path, monkeypatch, sleep_s, deadline, ends
):
    (tmp_path / "answers_never.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    child = Child("answers_never", Limits())
    with pytest.raises(ends):
        child.call({"sleep_s": sleep_s}, deadline)
    assert not child.alive


def test_a_compiler_that_spins_is_late_and_one_that_waits_is_starved(tmp_path, artifacts):
    own = prepared(artifacts).library_compiler.confinement("plain")
    allowed = replace(own, readable=(*own.readable, "/bin", "/usr/bin"))
    spin = ["/bin/sh", "-c", "while :; do :; done"]
    late = run_compiler(spin, tmp_path, Deadline(0.5, LONG_S), allowed)
    assert late is not None and late.reason == "timeout"
    with pytest.raises(Starved):
        run_compiler(["/bin/sleep", "1000"], tmp_path, Deadline(0.5, 1.0), allowed)


def test_the_time_of_a_group_is_that_of_all_its_processes():
    spin = "import os\nos.fork()\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", spin], start_new_session=True)
    watch = Watch(Deadline(1.0, LONG_S), lambda: group_s(process.pid))
    try:
        while not watch.is_over():
            time.sleep(0.05)
        assert group_s(process.pid) >= 1.0 > process_s(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_what_was_starved_runs_again_while_nothing_else_does():
    inside, beside, begun = [], threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        beside.wait()
        inside.append("other ended")

    def starved_once() -> str:
        begun.wait()
        if "first" not in inside:
            inside.append("first")
            threading.Timer(0.1, beside.set).start()
            raise Starved
        inside.append("second")
        return "done"

    thread = threading.Thread(target=lambda: beside_others(other, "the other"))
    thread.start()
    assert beside_others(starved_once, "this one") == "done"
    thread.join()
    assert inside == ["first", "other ended", "second"]
