"""Ways to touch memory that a compiler does not load or store by one plain instruction.

Each attack races, reads what nobody wrote, or leaves its buffer; a checked run must say so. The
right twins use the same features, and nothing may be reported. All of them are one library.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulator_harness import Kernel, kinds, prepared, raw

from greenfast.search.targets.emulator.runs import Buffer, PointerArgument, ScalarArgument

THREADS = 64
CASES = tomllib.loads((Path(__file__).parents[1] / "data/hook_bypasses.toml").read_text())
ATTACKS, RIGHT = CASES["attack"], CASES["right"]


def library() -> str:
    """A function for each attack and twin, which `which` selects."""
    parts = ["#include <array>", *(attack.get("declares", "") for attack in ATTACKS)]
    cases = [*ATTACKS, *RIGHT]
    for number, case in enumerate(cases):
        parts.append(f"__device__ void case_{number}(float* c, int n, int t) {{ {case['body']} }}")
    parts.append('extern "C" __global__ void k(float* c, int n, int which) { switch (which) {')
    parts += [f"case {n}: case_{n}(c, n, threadIdx.x); break;" for n in range(len(cases))]
    return "\n".join((*parts, "} }"))


@pytest.fixture(scope="module")
def results(artifacts):
    # Unexamined: what hides an algorithm of std behind an alias is refused before it is compiled.
    kernel = Kernel(prepared(artifacts), library(), flavour="checked", is_examined=False)
    job = kernel.job({}, {}, grid=1, block=THREADS, check=True)
    zeros = (Buffer("c", "output", raw(np.zeros(THREADS, np.float32)), "zero"),)
    jobs = []
    for number in range(len(ATTACKS) + len(RIGHT)):
        scalars = (ScalarArgument("int32", THREADS), ScalarArgument("int32", number))
        arguments = (PointerArgument("c"), *scalars)
        jobs.append(replace(job, name=str(number), buffers=zeros, arguments=arguments))
    return kernel.run(*jobs)


def test_every_attack_is_found(results):
    missed = {}
    for attack, result in zip(ATTACKS, results, strict=False):
        reported = {finding.kind for finding in result.findings} | set(kinds(result))
        if attack["finds"] not in reported:
            missed[attack["name"]] = reported
    assert not missed


def test_no_right_twin_is_refused(results):
    wrong = {
        right["name"]: (result.faults, result.findings)
        for right, result in zip(RIGHT, results[len(ATTACKS) :], strict=True)
        if result.status != "finished" or result.findings
    }
    assert not wrong


def test_the_hosts_own_algorithms_are_refused(artifacts):
    emulator = prepared(artifacts)
    for name in ("std::__copy_move_a<false>", "__copy_move_a2<false>", "__fill_n_a"):
        text = f'namespace s = std;\nextern "C" __global__ void k(float* c) {{ {name}(c, c, c); }}'
        refused = emulator.examined(f'#line 1 "test.cu"\n{text}\n', arch="sm_90", deadline_s=20)
        assert not isinstance(refused, str) and "test.cu:2" in refused.sentence, refused
