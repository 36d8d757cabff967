"""Where dynamic shared memory begins behind the static arrays: where ptxas 13.0 places it."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import Kernel, prepared, values
from slow_cases import quick_first

TEXT = """
constexpr int wide = 512;
%s
extern "C" __global__ void k(unsigned* y, int n) {
    %s
    __shared__ unsigned char fixed[9];
    fixed[n] = 1;
    tile[n] = 2;
    y[0] = unsigned(__cvta_generic_to_shared(tile));
    y[1] = fixed[n] + int(tile[n]);
}
"""


@pytest.mark.parametrize(
    ("outside", "inside", "offset"),
    [
        ("", "extern __shared__ unsigned char tile[];", 16),
        ("", "extern __shared__ float4 whole[]; auto* tile = (float*)whole;", 16),
        ("", "extern __shared__ __align__(1024) unsigned char tile[];", 1024),
        ("alignas(256) extern __shared__ unsigned char tile[];", "", 256),
        (
            "extern __shared__ unsigned char whole[];",
            "auto* tile = reinterpret_cast<float*>(whole);",
            16,
        ),
        ("extern __attribute__((aligned(32))) __shared__ float tile[];", "", 32),
        # The largest of the text's.
        (
            "extern __shared__ __align__(64) unsigned char other[];",
            "extern __shared__ float tile[];",
            64,
        ),
        # No plain number: the emulator's own.
        ("", "extern __shared__ __align__(wide) unsigned char tile[];", 128),
    ],
)
@pytest.mark.parametrize("smem", quick_first([4096, 64], 2))
def test_dynamic_shared_memory_begins_at_its_alignment(artifacts, outside, inside, offset, smem):
    kernel = Kernel(prepared(artifacts), TEXT % (outside, inside), flavour="checked")
    result = kernel({}, {"y": np.zeros(2, np.uint32)}, 3, block=1, smem=smem, check=True)
    assert not result.findings
    assert values(result, "y", np.uint32).tolist() == [offset, 3]
