"""Other people's work on the GPU is seen, waited for, and then said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from search.evaluate import evaluate
from search.targets.cuda import target as cuda
from search.verdict import performance_of
from spins import spin

WORK = """
import sys, time, cupy
array, end = cupy.ones(2**26, cupy.float32), time.time() + 30
print("works", flush=True)
while time.time() < end:
    array *= 1.0000001
    cupy.cuda.Device().synchronize()
"""


@pytest.fixture
def foreign_work():
    """A process that keeps the GPU busy and is no child of this one: its parent is a shell."""
    shell = subprocess.Popen(["sh", "-c", '"$0" -c "$1"; true', sys.executable, WORK], stdout=subprocess.PIPE,
                             start_new_session=True)
    assert shell.stdout.readline() == b"works\n"
    yield
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def test_a_time_taken_beside_foreign_work_says_so(foreign_work, gpu, bench_of, monkeypatch):
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    monkeypatch.setattr(cuda, "QUIET_S", 2.0)
    (timing,) = performance_of(evaluate(spin(100000), bench_of(), None).verdict).timings
    if "foreign_busy_percent" not in dict(timing.detail):
        pytest.skip(f"NVML does not tell processes apart here: {dict(timing.detail)}")
    seen = dict(timing.detail)["foreign_busy_percent"]
    if seen < 5:
        pytest.skip(f"NVML says that a process which never pauses keeps the GPU {seen:g} % busy")
    assert "other processes kept the GPU" in timing.note
