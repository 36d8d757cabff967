"""Checked runs follow no call into the middle of a function, and no return that was overwritten.

Either would lead behind a hook, to an access that nobody checks.
"""

from __future__ import annotations

import platform
from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import Kernel, kinds, prepared, values

from greenfast.search.targets.emulator.control_edges import with_checked_edges

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="g++'s assembly for x86-64")

INPUTS = {"a": np.arange(1, 65, dtype=np.float32)}
OUTPUTS = {"c": np.zeros(64, np.float32)}
FARTHEST = 16  # bytes into a short function, and words above a short frame

# The constant is code: mov %esi,(%rdi); ret. One of the offsets is where it begins.
CALLS = """
__device__ __attribute__((noinline)) int constant(int x) { return x ? 0x00c33789 : 0; }
extern "C" __global__ void k(const float* a, float* c, int n) {
    typedef void (*F)(float*, int);
    F volatile f = (F)((char*)&constant + n);
    f(c + threadIdx.x % 2, 0x3f800000 + threadIdx.x);
    if (threadIdx.x == 99) c[1] = constant(threadIdx.x);
}
"""
# One of the words is the address to which the function returns.
RETURNS = """
__device__ int elsewhere(float* p) { return p[0] > 0; }
__device__ int (*const known)(float*) = elsewhere;
__device__ __attribute__((noinline)) void f(float* p, int v, long target, int n) {
    volatile long here[2];
    here[0] = v;
    volatile long place = (long)&here[0] + 8 * n;
    *(long*)place = target;
    if (v == 12345) p[0] = here[1];
}
extern "C" __global__ void k(const float* a, float* c, int n) {
    f(c, threadIdx.x, (long)known, n);
    c[threadIdx.x] = 3;
}
"""
RIGHT = """
struct Base { virtual __device__ float f(float x) const = 0; };
struct Adds : Base { __device__ float f(float x) const override { return x + 1; } };
struct Doubles : Base { __device__ float f(float x) const override { return x * 2; } };
__device__ __attribute__((noinline)) float total(const float* p, int n) {
    return n ? p[0] + total(p + 1, n - 1) : 0;
}
__device__ float same(float x) { return x; }
__device__ float (*const table[2])(float) = {same, floorf};
extern "C" __global__ void k(const float* a, float* c, int n) {
    Adds adds;
    Doubles doubles;
    const Base* base = threadIdx.x % 2 ? (const Base*)&adds : (const Base*)&doubles;
    float (*volatile none)(float) = [](float x) { return x - x; };
    const float x = a[threadIdx.x];
    c[threadIdx.x] = base->f(x) + total(a, n) + table[threadIdx.x & 1](x) + none(x);
}
"""


@pytest.fixture(scope="module")
def emulator(artifacts):
    emulator = prepared(artifacts)
    if emulator.compiler.kind != "g++":
        pytest.skip("clang++'s assembly is not edited")
    return emulator


def results(emulator, text, numbers):
    kernel = Kernel(emulator, text, flavour="checked")
    jobs = [
        replace(kernel.job(INPUTS, OUTPUTS, (number,), check=True), name=str(number))
        for number in numbers
    ]
    return kernel.run(*jobs)


def test_no_call_leads_into_a_function(emulator):
    for result in results(emulator, CALLS, range(1, FARTHEST)):
        assert kinds(result) == ["device_fault"], result
        assert "where no function begins that the text names" in result.faults[0].sentence


def test_no_function_returns_elsewhere(emulator):
    found = []
    for number, result in enumerate(results(emulator, RETURNS, range(FARTHEST))):
        if kinds(result):
            found.append(number)
            assert "out_of_bounds" in kinds(result), (number, result.faults)
        else:  # the word was another one, and nothing was left out
            assert (values(result, "c")[:32] == 3).all(), number
    assert found, "no word was the address to return to"


def test_functions_by_pointer_virtual_and_recursive_are_called_as_ever(emulator):
    (result,) = results(emulator, RIGHT, [4])
    assert result.status == "finished" and not result.findings, result.faults
    lanes = np.arange(32)
    x = INPUTS["a"][:32]
    expected = np.where(lanes % 2, x + 1, x * 2) + INPUTS["a"][:4].sum() + x
    np.testing.assert_array_equal(values(result, "c")[:32], expected)


def test_each_library_has_a_mark_of_its_own():
    lines = ["\t.type\tk, @function\n", "k:\n", "\tcall\tk\n", "\tret\n"]
    first, second = ("".join(with_checked_edges(lines)) for _ in range(2))
    assert first != second and first.count(".quad") == 1


def test_assembly_without_such_functions_stays():
    lines = ["\t.type\tk, %function\n", "k:\n", "\tret\n"]
    assert list(with_checked_edges(lines)) == lines


def test_names_of_thousands_of_letters_are_read_in_one_pass():
    """One such line took seconds, and a text of 20 kB has thousands of them."""
    access = f"\tmovl\t{'A' * 19_000}+4(%rip), %eax\n"
    lines = ["\t.type\tk, @function\n", "k:\n", *[access] * 500]
    assert list(with_checked_edges(lines))[: len(lines)] == lines


def test_a_constant_is_no_function_of_its_name():
    head = ["\t.type\tLC0, @function\n", "LC0:\n", "\tret\n"]
    rest = ["\tmovl\t.LC0(%rip), %eax\n", "\tcall\t*%rax\n"]
    assert "leaq\tLC0(%rip), %r10" not in "".join(with_checked_edges([*head, *rest]))


def test_a_call_leaves_no_value_in_a_register_that_a_checked_return_uses(emulator):
    text = """
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void k(int* y) { y[threadIdx.x] = fib(threadIdx.x % 12); }
"""
    outputs = {"y": np.zeros(32, np.int32)}
    result = Kernel(emulator, text, flavour="checked")({}, outputs, check=True)
    assert values(result, "y", np.int32)[:12].tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
