"""cuda::atomic_ref with its orders and scopes, cuda::std, cuda_pipeline.h."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import Kernel, kinds, prepared, values

from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator.runs import Buffer, PointerArgument
from greenfast.search.toolchain import Cubin

TEXT = """
#include <cuda/atomic>
#include <cuda/std/limits>
#include <cuda_pipeline.h>
using device = cuda::atomic_ref<int, cuda::thread_scope_device>;
using block = cuda::atomic_ref<int, cuda::thread_scope_block>;
extern "C" __global__ void k(const int* which, int* out) {
    const int kind = which[0], t = threadIdx.x;
    int* flag = out + 64;
    if (kind == 3) {
        __shared__ alignas(16) int copied[32];
        __shared__ cuda::atomic<int, cuda::thread_scope_block> count;
        if (t == 0) count.store(5);
        __pipeline_memcpy_async(copied + t, which, 4);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        count.fetch_add(copied[(t + 1) % 32], cuda::memory_order_relaxed);
        __syncthreads();
        if (blockIdx.x) return;
        float largest = 1.0f;
        cuda::atomic_ref<float, cuda::thread_scope_thread> own(largest);
        int expected = 7;
        if (t == 0) {
            device word(out[8]);
            out[2] = count.load(cuda::memory_order_relaxed);
            out[3] = word.compare_exchange_strong(expected, 9);
            out[4] = expected;
            out[5] = word.exchange(11);
            out[5] += word.fetch_sub(1) * 100;
            out[5] += (word |= 4) * 10000;
            out[6] = ++word;
            out[7] = cuda::std::numeric_limits<int>::max();
        }
        return;
    }
    if (blockIdx.x == 0 && t == 0) {
        out[0] = 42;
        if (kind == 0) device(*flag).store(1, cuda::memory_order_release);
        if (kind == 1) device(*flag).store(1, cuda::memory_order_relaxed);
        if (kind == 2) block(*flag).fetch_add(1, cuda::memory_order_release);
    }
    if (blockIdx.x == 1 && t == 0) {
        while (!device(*flag).load(cuda::memory_order_acquire)) { }
        out[1] = out[0];
    }
}
"""


def test_atomics_have_orders_and_scopes(artifacts):
    kernel = Kernel(prepared(artifacts), TEXT, flavour="checked")
    zeros = Buffer("out", "output", np.zeros(512, np.uint8), "zero")
    for kind in range(4):
        job = kernel.job({"which": np.array([kind], np.int32)}, {}, grid=2, check=True)
        job = replace(
            job,
            buffers=(*job.buffers, zeros),
            arguments=(*job.arguments, PointerArgument("out")),
        )
        (result,) = kernel.run(job)
        found = {finding.kind for finding in result.findings} | set(kinds(result))
        assert found == ({"race"} if kind in (1, 2) else set()), (kind, result)
        if kind == 0:
            assert values(result, "out", np.int32)[1] == 42
        if kind == 3:
            want = [5 + 3 * 32, 0, 0, 11 * 100 + 14 * 10000, 15, 2**31 - 1]
            assert values(result, "out", np.int32)[2:8].tolist() == want


@pytest.mark.slow
def test_the_text_is_cuda(toolchain):
    lines = tuple(Line("k.cu", number) for number in range(1, TEXT.count("\n") + 1))
    source = RenderedSource(TEXT, text_digest(TEXT), lines, TEXT, ("k",), False)
    assert isinstance(toolchain.compile(source, "sm_90"), Cubin)
