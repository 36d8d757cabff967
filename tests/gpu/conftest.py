"""Tests that need a GPU; without one each says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from spins import spin

from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.cuda import gpu_count

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "contracts"))  # subjects.py


def pytest_collection_modifyitems(items):
    here = f"{HERE}{os.sep}"
    mine = [item for item in items if str(item.path).startswith(here)]
    has_gpu = not mine or gpu_count() > 0
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        if not has_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device is visible on this machine"))


@pytest.fixture(scope="session")
def watches() -> Catalogue:
    """Kernels with known times."""
    return Catalogue([REPOSITORY_TEMPLATES, HERE / "kernels"])


@pytest.fixture(scope="session")
def gpu(artifacts, catalogue):
    target = open_target(
        "cuda:0", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=3.0)
    )
    target.prepare()
    yield target
    target.close()


@pytest.fixture(scope="session")
def bench_of(gpu, watches, toolchain):
    """A bench of the stopwatch kernel on a workload, with a spin as its baseline."""

    def make(workload="small", baseline_cycles=100000, min_gain=0.0, seed=0) -> EvaluationContext:
        kernel = watches.kernel("stopwatch")
        workload_spec = kernel.workload(workload)
        return EvaluationContext(
            kernel,
            workload_spec.compile_time(kernel),
            (workload_spec,),
            gpu,
            toolchain,
            watches.include_dirs,
            GateLimits(),
            seed,
            baseline=spin(baseline_cycles),
            min_gain=min_gain,
        )

    return make
