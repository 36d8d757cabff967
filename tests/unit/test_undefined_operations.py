"""Operations whose result CUDA C++ leaves open are findings; their twins are right."""

from __future__ import annotations

import numpy as np
import pytest
from checked_runs import checked
from emulator_harness import only_right, prepared

HEAD = """
extern "C" __global__ void k(const float* a, float* c) {
    const int t = threadIdx.x, n = int(a[t]);
"""
# Each works on n = 1 .. 32.
UNDEFINED = {
    "left": ("c[t] = 1u << n;", "c[t] = 1u << (n & 31);"),
    "right": ("c[t] = 0xffffffffu >> n;", "c[t] = n < 32 ? 0xffffffffu >> n : 0u;"),
    "arithmetic": ("c[t] = -5 >> n;", "c[t] = -5 >> min(n, 31);"),
    "assigned": ("int x = 3; x <<= n; c[t] = x;", "int x = 3; x <<= n - 1; c[t] = x;"),
    "wide": ("c[t] = 1ull << n * 2;", "c[t] = 1ull << n;"),
    "negative": ("c[t] = 1 << (n - 2);", "c[t] = 1 << (n - 1);"),
    "to_int": ("c[t] = int(n * 1e8f);", "c[t] = __float2int_rz(n * 1e8f);"),
    "to_unsigned": ("c[t] = unsigned(1 - n - 0.5f);", "c[t] = __float2uint_rz(1 - n - 0.5f);"),
    "not_a_number": (
        "c[t] = int(n < 32 ? 1.0f : __int_as_float(0x7fc00000));",
        "c[t] = __float2int_rn(n < 32 ? 1.0f : __int_as_float(0x7fc00000));",
    ),
    "double": ("c[t] = int(n * 1e9);", "c[t] = int(fmin(n * 1e9, 2e9));"),
    "narrow": ("c[t] = (signed char)(n * 10.0f);", "c[t] = (signed char)min(n * 10.0f, 127.0f);"),
    "wide_cast": ("c[t] = (long long)(n * 1e18f);", "c[t] = (long long)(n * 1e17f);"),
}


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("left", "to_int") else pytest.param(name, marks=pytest.mark.slow)
        for name in UNDEFINED
    ],
)
def test_an_operation_without_a_value_is_a_finding_and_its_twin_is_not(emulator, name):
    body, twin = UNDEFINED[name]
    numbers = {"a": np.arange(1, 33, dtype=np.float32)}
    (result,) = checked(emulator, f"{HEAD}{body}\n}}", numbers, orders=("forward",))
    fault = result.faults[0]
    assert (fault.kind, fault.where) == ("undefined_operation", ("test.cu", 4)), result.faults
    assert "no value in CUDA C++" in fault.sentence
    only_right(checked(emulator, f"{HEAD}{twin}\n}}", numbers, orders=("forward",)))


def test_the_count_of_a_shift_is_named(emulator):
    numbers = {"a": np.full(32, -3, np.float32)}
    (result,) = checked(emulator, HEAD + "c[t] = 1 << n;\n}", numbers, orders=("forward",))
    assert "a shift of 32 bits by -3 " in result.faults[0].sentence
