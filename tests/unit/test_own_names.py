"""A text's own variable with a name that the stand-in headers, or the host's, have as a macro.

A GPU reads that variable. So does the emulator, or it refuses the text: otherwise a kernel would
be checked as it is not.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import Kernel, prepared, values
from slow_cases import quick_first

HEAD = (
    "#include <cuda/std/cstdint>\n"
    "__device__ unsigned first(uint3 a) { return a.x; }\n"
    "__device__ unsigned second(uint3 a, uint3 b) { return b.x; }\n"
    "__device__ uint3 own() { return threadIdx; }\n"
    'extern "C" __global__ void k(const float* a, float* c) {\n'
)
INPUTS = {"a": np.arange(1, 65, dtype=np.float32)}
OUTPUTS = {"c": np.zeros(64, np.float32)}
HIDES = "const float& r = {0}; const_cast<float&>(r) = 7; c[0] = {0};"
READ = {  # each leaves 7
    "printf": 'auto printf = [](const char*) { return 7; }; c[0] = printf("");',
    "__expf": "auto __expf = [](float) { return 7.0f; }; c[0] = __expf(0.0f);",
    "__powf": "auto __powf = [](float, float) { return 7.0f; }; c[0] = __powf(1.0f, 1.0f);",
    "expf": "auto expf = [](float) { return 7.0f; }; c[0] = expf(0.0f);",
    "INFINITY": "float INFINITY; " + HIDES.format("INFINITY"),
    "NAN": "float NAN; " + HIDES.format("NAN"),
    "issubnormal": "auto issubnormal = [](float) { return 7; }; c[0] = issubnormal(1.0f);",
    "htobe16": "auto htobe16 = [](int) { return 7; }; c[0] = htobe16(1);",
}
REFUSED = {
    "threadIdx": "uint3 threadIdx; c[0] = threadIdx.x;",
    "blockDim": "dim3 blockDim; c[0] = blockDim.x;",
    "the second of a line": "uint3 mine, threadIdx; c[0] = threadIdx.x;",
    "a type by an expression": "decltype(uint3()) threadIdx; c[0] = threadIdx.x;",
    "a parameter": "auto f = [](uint3 threadIdx) { return threadIdx.x; }; c[0] = 0;",
    "a number's type": "struct L { int operator()(int) { return 7; } } l;\n"
    "#undef INT64_C\nL INT64_C(l);",
}
RIGHT = (
    "c[0] = isinf(INFINITY) && isnan(NAN) && isinf(-INFINITY) ? INT64_C(7) : 0;\n"
    "uint3 t = threadIdx; uint3 both[] = {blockIdx, threadIdx};\n"
    "c[1] = first(threadIdx) + second(blockIdx, threadIdx) + own().x + t.x + both[1].x\n"
    "    + (blockDim.x > threadIdx.x) + int(threadIdx.x) * blockDim.x;\n"
    'printf("%d %f", 1, 2.0); c[2] = __expf(0.0f) + __powf(2.0f, 3.0f) + warpSize * 1;\n'
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize("name", quick_first(READ, 3))
def test_the_texts_own_variable_is_read(emulator, name):
    result = Kernel(emulator, f"{HEAD}{READ[name]} }}")(INPUTS, OUTPUTS, block=1)
    assert values(result, "c")[0] == 7


@pytest.mark.parametrize("name", REFUSED)
def test_a_coordinate_is_not_declared(emulator, name):
    text = f'#line 1 "test.cu"\n{HEAD}{REFUSED[name]} }}'
    refused = emulator.examined(text, arch="sm_90", deadline_s=20)
    assert not isinstance(refused, str) and refused.place.line in (6, 8), refused


def test_the_names_mean_what_they_always_do(emulator):
    result = Kernel(emulator, f"{HEAD}{RIGHT} }}")(INPUTS, OUTPUTS, block=1)
    assert values(result, "c")[:3].tolist() == [7, 1, 41]
