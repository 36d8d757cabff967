"""Loads through the read-only path have a value only where nobody writes in the same launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, kinds, only_right, prepared

from greenfast.search.targets.emulator.execute import Launch, ScalarArgument

# Two launches of one text may write first and read then: bit 1 of `mode` writes, the others read.
TEXT = """
#include "gf/cache_hint.cuh"
__device__ int table[64];
extern "C" __global__ void k(const int* a, int* y, int* o, int mode) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    __shared__ int s[32];
    s[threadIdx.x] = 0;
    if (mode == 1) y[i] = a[i];                                           // write
    if (mode == 2) { y[i] = a[i]; o[i] = __ldg(y + i); }                  // own
    if (mode == 3) {
        y[i] = a[i];                                                      // neighbour's write
        __syncthreads();
        int v;
        asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(y + (i ^ 1)));  // nc
        o[i] = v;
    }
    if (mode == 4) o[i] = __ldg(y + i);
    if (mode == 5) y[i] = __ldg(y + i) + 1;                               // in place
    if (mode == 6) o[i] = __ldg(a + i) + __ldcs(y + i);
    if (mode == 7) { y[i] = a[i]; o[i] = __ldcs(y + i) + __ldcg(y + i); }
    if (mode == 8) { table[i] = a[i]; o[i] = __ldg(table + i); }          // device
    if (mode == 9) o[i] = __ldg(s + threadIdx.x);                         // shared
    if (mode == 10) { y[i] = a[i]; o[i] = gf::load_once((unsigned*)y + i); }
    if (mode == 11) { if (i < 32) y[i] = a[i]; else o[i] = __ldg(y + i - 32); }
    if (mode == 12 && i < 8) ((char*)y)[i * 4] = 1;
    if (mode == 12 && i >= 8) o[i] = __ldg((char*)y + 4 * (i % 8) + 1);
    if (mode == 13) {
        if (i == 3) atomicAdd(y + 5, 1);                                  // atomic
        __syncthreads();
        if (i == 4) o[i] = __ldg((const int4*)(y + 4)).x;                 // whole vector
    }
}
"""


@pytest.fixture(scope="module")
def kernel(artifacts):
    return Kernel(prepared(artifacts), TEXT, flavour="checked")


def results(kernel, mode, *, launches=1):
    """A run in each order, with zeros in both outputs; the launch of `mode` comes last."""
    inputs = {"a": np.arange(64, dtype=np.int32)}
    outputs = {name: np.zeros(64, np.int32) for name in ("y", "o")}
    jobs = []
    for order in ORDERS:
        job = kernel.job(inputs, outputs, (mode,), grid=2, check=True, order=order, name=order)
        buffers = tuple(replace(b, fill="zero") if b.role == "output" else b for b in job.buffers)
        writes = Launch(
            "k", (2, 1, 1), (32, 1, 1), arguments=(*job.arguments[:-1], ScalarArgument("int32", 1))
        )
        first = (writes,) * (launches - 1)
        jobs.append(replace(job, buffers=buffers, launches=(*first, *job.launches)))
    return kernel.run(*jobs)


def line_of(text):
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    "mode, where, other",
    [
        (2, "// own", "// own"),
        (3, "// nc", "// neighbour's write"),
        (5, "// in place", "// in place"),
        (8, "// device", "// device"),
        (10, "load_once", "load_once"),
        (13, "// whole vector", "// atomic"),
    ],
)
def test_bytes_that_the_launch_writes_are_a_finding(kernel, mode, where, other):
    for result in results(kernel, mode):
        findings = [one for one in result.findings if one.kind == "read_only_path"]
        lines = [
            (one.where and one.where[1], one.other_where and one.other_where[1]) for one in findings
        ]
        assert lines == [(line_of(where), line_of(other))], result
        assert "read-only path" in findings[0].sentence


@pytest.mark.parametrize("mode", [4, 6, 7, 12])
def test_bytes_that_nobody_writes_in_the_launch_are_none(kernel, mode):
    only_right(results(kernel, mode))


def test_an_earlier_launch_may_have_written_them(kernel):
    only_right(results(kernel, 4, launches=2))


def test_a_race_through_the_read_only_path_is_found_in_either_order(kernel):
    for result in results(kernel, 11):
        assert "read_only_path" in {finding.kind for finding in result.findings}, result


def test_shared_memory_has_no_read_only_path(kernel):
    for result in results(kernel, 9):
        assert kinds(result) == ["device_fault"], result
