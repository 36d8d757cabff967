"""The gate `safety` is available on a machine with a GPU: its emulator builds, and finds a race."""

from __future__ import annotations

import numpy as np

from greenfast.search.gates.safety import like
from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.execute import (
    Buffer,
    Launch,
    PointerArgument,
    Run,
    execute,
)

RACE = """
extern "C" __global__ void k(float* c) {
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    c[threadIdx.x] = s[63 - threadIdx.x];
}
"""


def test_the_checker_of_this_gpus_contenders_builds_and_finds_a_race(gpu, artifacts, catalogue):
    build = EmulatorBuild(artifacts, include_dirs=catalogue.include_dirs)
    arch = like(gpu.device).arch
    module = build.build_module(RACE, ("k",), flavour="checked", deadline_s=60, arch=arch)
    assert isinstance(module, Module), module.log
    buffer = Buffer("c", "output", np.zeros(256, np.uint8))
    launch = Launch("k", (1, 1, 1), (64, 1, 1), 0)
    run = Run("race", (launch,), (buffer,), (PointerArgument("c"),), check=True)
    (result,) = execute(build, module, (run,), workers=1, deadline_s=10.0, memory_bytes=2**31)
    assert "race" in {finding.kind for finding in result.findings}, (result.status, result.faults)
