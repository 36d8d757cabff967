"""A race's finding names the line and the thread of the other access, among several like it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, prepared
from slow_cases import quick_first

from greenfast.search.targets.emulator.runs import Buffer, PointerArgument

# Accesses of word 5 by lane 0 and by another thread, which then writes it: they alone are no race.
BODY = """
extern "C" __global__ void k(float* c, float* g) {
    __shared__ __align__(16) float s[64];
    int t = threadIdx.x;
    float a = 0;
    s[t] = t;
    __syncthreads();
    if (t == 0)
        FIRST
    if (t == OTHER)
        SECOND
    if (t == OTHER)
        THIRD
    c[t] = a;
}"""
FIRST, THIRD = 9, 13  # lines of test.cu
VECTOR = "{ float4 v = *(float4*)&s[4]; a += v.x + v.y + v.z + v.w; }"


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize("other", [1, 40])  # in the same warp, and in another one
@pytest.mark.parametrize(
    ("first", "second", "third"),
    quick_first(
        [
            ("a = s[5];", "a = s[5] * 2;", "s[5] = 9;"),
            ("a = g[5];", "a = g[5] * 2;", "g[5] = 9;"),
            ("for (int i = 4; i < 8; i++) a += s[i];", "a = s[5] * 2;", "s[5] = 9;"),
            (VECTOR, VECTOR.replace("=", "= "), "*(float4*)&s[4] = make_float4(9, 8, 7, 6);"),
            ("atomicAdd(&s[5], 1.0f);", "atomicExch(&s[5], 4.0f);", "s[5] = 9;"),
        ],
        4,
    ),
)
def test_a_race_names_the_line_and_the_thread_of_the_other_access(
    emulator, first, second, third, other
):
    text = BODY.replace("FIRST", first).replace("SECOND", second).replace("THIRD", third)
    kernel = Kernel(emulator, text.replace("OTHER", str(other)), flavour="checked")
    zeros = np.zeros(256, np.uint8)
    for order in ORDERS:
        job = replace(
            kernel.job({}, {}, block=64, order=order, check=True),
            buffers=tuple(Buffer(name, "output", zeros, "zero") for name in "cg"),
            arguments=(PointerArgument("c"), PointerArgument("g")),
        )
        (result,) = kernel.run(job)
        findings = result.findings
        assert findings
        for finding in findings:
            lines = {finding.where[1], finding.other_where[1]}
            threads = set(re.findall(r"thread (\d+)", finding.sentence))

            assert finding.kind == "race" and lines == {FIRST, THIRD}, order
            assert threads == {"0", str(other)}, finding.sentence
