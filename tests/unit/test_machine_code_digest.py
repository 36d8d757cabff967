"""The digest of machine code, on real cubins: equal where a GPU executes the same."""

from __future__ import annotations

import pytest

from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.toolchain.machine_code import machine_code_digest

KERNEL = """extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + VALUE;
}
"""
TABLE = "constexpr float table[4] = {1, 2, 3, 4};\n"
LOOKED_UP = KERNEL.replace("VALUE", "table[i & 3]")
COUNTER = "__device__ int counter = 3;\n" + KERNEL.replace("VALUE", "float(atomicAdd(&counter, 1))")
FUNCTION = "__device__ __noinline__ float f(float a) { return a * a; }\n"
CALLING = FUNCTION + KERNEL.replace("VALUE", "f(x[i])")
POINTER = "__device__ float first[2] = {1, 2};\n__device__ float* to = first;\n"
POINTING = POINTER + KERNEL.replace("VALUE", "to[i & 1]")
TWO = "__device__ float some[2] = {1, 1}, others[2] = {1, 1};\n"
TWO += "__device__ float *to = some, *from = others;\n"
TWO += KERNEL.replace("VALUE", "(to[i & 1] = x[i] + from[i & 1])")
PLAIN = KERNEL.replace("VALUE", "3.0f")
SHARED = KERNEL.replace("VALUE", "0.0f;\n __shared__ float s[64]; s[threadIdx.x] = x[i]; "
                        "__syncthreads(); if (i == 0) y[0] = s[threadIdx.x ^ 1]")  # fmt: skip


@pytest.fixture
def compiled(toolchain):
    def cubin(text):
        lines = tuple(Line("k.cu.j2", at + 1) for at in range(text.rstrip("\n").count("\n") + 1))
        source = RenderedSource(text, text_digest(text), lines, text, ("k",), False)
        return toolchain.compile(source, "sm_90")

    return cubin


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (PLAIN, "constexpr float value = 3;\n" + KERNEL.replace("VALUE", "value")),
        ("constexpr int a = 1;\n" + PLAIN, "constexpr int bcd[3] = {7, 8, 9};\n" + PLAIN),
        (TABLE + LOOKED_UP, TABLE + "constexpr int unread = 5;\n" + LOOKED_UP),
        (TABLE + LOOKED_UP, (TABLE + LOOKED_UP).replace("table", "row")),
        (CALLING, "constexpr int unread = 5;\n" + CALLING),
        (PLAIN, PLAIN.replace("int n", "int count").replace("< n", "< count")),
    ],
)
def test_what_no_instruction_reads_does_not_count(compiled, text, other):
    one, two = compiled(text), compiled(other)
    assert one.source_digest != two.source_digest and one.machine_code == two.machine_code != ""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (PLAIN, "3.0f", "4.0f"),
        (TWO, "*from = others", "*from = some"),
        (PLAIN, "void k", "void __launch_bounds__(128) k"),
        (PLAIN, "void k", "void __cluster_dims__(2, 1, 1) k"),
        (TABLE + LOOKED_UP, "3, 4}", "3, 5}"),
        ("__constant__ " + TABLE[10:] + LOOKED_UP, "3, 4}", "3, 5}"),
        (COUNTER, "= 3", "= 4"),
        (CALLING, "a * a", "a + a"),
        (POINTING, "{1, 2}", "{1, 3}"),
        (SHARED, "s[64]", "s[128]"),
    ],
)
def test_what_an_instruction_reads_counts(compiled, text, before, after):
    assert before in text
    assert compiled(text).machine_code != compiled(text.replace(before, after, 1)).machine_code


def test_an_image_of_another_kind_counts_as_a_whole():
    assert machine_code_digest(b"text", b"") == machine_code_digest(b"text", b"")
    assert machine_code_digest(b"text", b"") != machine_code_digest(b"texts", b"")
