"""atomicAdd of float2 and float4: every element's sum, and the values before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, prepared, values
from slow_cases import quick_first

TEXT = """
extern "C" __global__ void k(const float{n}* x, float{n}* before, float{n}* sums) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    before[i] = atomicAdd(sums + i % 3, x[i]);
}}
"""


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize("n", quick_first([2, 4], 2))
@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_vectors_are_added_element_by_element(emulator, n, flavour):
    x = np.arange(192 * n, dtype=np.float32).reshape(192, n)
    for order in ORDERS:
        kernel = Kernel(emulator, TEXT.format(n=n), flavour=flavour)
        job = kernel.job(
            {"x": x},
            {"before": np.zeros_like(x), "sums": np.zeros((3, n), np.float32)},
            grid=3,
            block=64,
            order=order,
            check=flavour == "checked",
        )
        filled = tuple(
            replace(buffer, fill="zero") if buffer.name == "sums" else buffer
            for buffer in job.buffers
        )
        (result,) = kernel.run(replace(job, buffers=filled))
        sums, before = (
            values(result, "sums").reshape(3, n),
            values(result, "before").reshape(192, n),
        )
        assert not result.findings
        np.testing.assert_array_equal(sums, [x[first::3].sum(axis=0) for first in range(3)])
        for first in range(3):  # some order of additions gave each value before
            assert np.isin(
                before[first::3, 0] + x[first::3, 0], [*before[first::3, 0], sums[first, 0]]
            ).all()
