"""Other people's work on the GPU is seen, waited for, and then said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from spins import spin

from greenfast.search.loop.evaluate import evaluate
from greenfast.search.targets.cuda import target as cuda
from greenfast.search.verdict import performance_of

WORK = """
import sys, time, cupy
array, end = cupy.ones({elements}, cupy.float32), time.time() + {seconds}
print("works", flush=True)
while time.time() < end:
    array *= 1.0000001
    cupy.cuda.Device().synchronize()
time.sleep(30)
"""
EVERY_MULTIPROCESSOR, ONE = 2**26, 32


@pytest.fixture
def foreign_work():
    """Keep the GPU busy from a process that is not our child: its parent is a shell."""
    shells = []

    def start(elements: int, seconds: float) -> None:
        work = WORK.format(elements=elements, seconds=seconds)
        shells.append(
            subprocess.Popen(
                ["sh", "-c", '"$0" -c "$1"; true', sys.executable, work],
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        assert shells[-1].stdout.readline() == b"works\n"
        time.sleep(1.0)  # NVML looks back on a second

    yield start
    for shell in shells:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.fixture
def timing_of(bench_of, monkeypatch):
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

    def timing(quiet_s: float):
        monkeypatch.setattr(cuda, "QUIET_S", quiet_s)
        (timing,) = performance_of(evaluate(spin(100000), bench_of()).verdict).timings
        if dict(timing.detail).get("gpu_processes", 0) > 1 and "foreign_busy_percent" not in dict(
            timing.detail
        ):
            pytest.skip(f"NVML does not tell processes apart here: {dict(timing.detail)}")
        return timing

    return timing


@pytest.mark.parametrize("elements", [EVERY_MULTIPROCESSOR, ONE])
def test_a_time_taken_beside_foreign_work_says_so(elements, foreign_work, gpu, timing_of):
    foreign_work(elements, 30.0)
    timing = timing_of(2.0)
    assert dict(timing.detail)["foreign_busy_percent"] >= (
        50 if elements == EVERY_MULTIPROCESSOR else 5
    )
    assert "other processes kept the GPU" in timing.note


def test_foreign_work_that_ends_is_waited_for_and_not_said(foreign_work, gpu, timing_of):
    foreign_work(EVERY_MULTIPROCESSOR, 6.0)  # then it only holds its memory
    timing = timing_of(30.0)
    assert (
        dict(timing.detail)["foreign_busy_percent"] < 5
        and dict(timing.detail)["gpu_processes"] == 2
    )
    assert "other processes" not in timing.note
