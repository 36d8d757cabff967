"""`greenfast import`: constant memory that a host program fills becomes a parameter."""

from __future__ import annotations

import runpy

import numpy as np
import pytest
from test_import_kernel import run  # noqa: F401

from greenfast.app.cli.import_constant_memory import with_constants
from greenfast.app.cli.import_source import CudaText, read_entry
from greenfast.search.errors import UsageError
from greenfast.search.kernels.kernel_file import load_kernel

CONSTANTS = """__constant__ float taps[2][3];
__constant__ int shift;
__constant__ float known[1] = {1.f};
"""
KERNEL = (
    "__global__ void blur(float *out, int n) {\n"
    "    int i = blockIdx.x * block_size_x + threadIdx.x;\n"
    "    if (i < n) out[i] = taps[1][i % 3] + shift + known[0];\n}\n"
)
SCRIPT = (
    'import numpy as np\ntext = """\n#include <cuda_fp16.h>\n' + CONSTANTS + KERNEL + '"""\n'
    "n = np.int32(300)\nout = np.zeros(n, np.float32)\n"
    "values = {'taps': np.random.randn(2, 3).astype(np.float32), 'shift': np.int32(4)}\n"
    "tune_kernel('blur', text, n, [out, n], {'block_size_x': [32, 64]}, cmem_args=values)\n"
)


def of(text):
    return CudaText(text, tuple(f"k.cu:{line + 1}" for line in range(text.count("\n") + 1)))


def test_given_constants_are_parameters_that_hide_them():
    source, names = with_constants(of(CONSTANTS + KERNEL), None, "k.cu", ["taps", "shift"])
    assert names == ("taps_values", "shift")
    entry = read_entry(source, None, "k.cu")
    assert [(each.name, each.is_pointer) for each in entry.parameters] == [
        ("out", True), ("n", False), ("taps_values", True), ("shift", False),
    ]  # fmt: skip
    assert "{ const float (*taps)[3] = (const float (*)[3])taps_values;\n" in source.text


def test_a_constant_without_values_is_refused():
    source, names = with_constants(of(CONSTANTS + KERNEL), None, "k.cu", ["shift"])
    assert names == ("shift",)
    with pytest.raises(UsageError, match=r"k\.cu:1: taps is constant memory") as refused:
        read_entry(source, None, "k.cu")
    assert "--arg taps:float32[2,3]" in refused.value.mend


READERS = """#define SHIFT(i) ((i) + shift)
#define FIRST taps[0][0]
template <int K> __device__ float row(int i);
__device__ int moved(int i) { return SHIFT(i); }
struct Box { float taps; __device__ float get() const { return taps; } };
__host__ __device__ float none(int shift, Box taps) { return shift; }
namespace deep {
template <typename T> static __device__ __forceinline__ auto first(void) -> T { return FIRST; }
}  // shift( is no call, nor is "moved(3)"
template <int K> __device__ float row(int i) {
    float sum = deep::first<float>() + none(1, Box{2.f});
    for (int k = 0; k < K; ++k) sum += taps[1][moved(i + k) % 3];
    return i > 9 ? row<(K)>(i - 1) : sum;
}
"""


def test_device_functions_get_the_constants_from_their_callers():
    kernel = KERNEL.replace("taps[1][i % 3] + shift", "row<2>(i) + moved(i)")
    source, _ = with_constants(of(CONSTANTS + READERS + kernel), None, "k.cu", ["taps", "shift"])
    both, shift = "const int shift, const float (*taps)[3]", "const int shift"
    for line in (
        f"template <int K> __device__ float row({both}, int i);",
        f"__device__ int moved({shift}, int i) {{ return SHIFT(i); }}",
        "float none(int shift, Box taps) { return shift; }",
        "auto first(const float (*taps)[3]) -> T { return FIRST; }",
        'shift( is no call, nor is "moved(3)"',
        "float sum = deep::first<float>(taps) + none(1, Box{2.f});",
        "sum += taps[1][moved(shift, i + k) % 3];",
        "return i > 9 ? row<(K)>(shift, taps, i - 1) : sum;",
        "out[i] = row<2>(shift, taps, i) + moved(shift, i) + known[0];",
    ):
        assert line in source.text
    assert source.text.count("\n") == (CONSTANTS + READERS + kernel).count("\n")


@pytest.mark.parametrize(
    ("reader", "sentence"),
    [
        ("struct S { __device__ int f() const { return shift; } };", "a function of a class"),
        ("__device__ int f() { return ::shift; }", "::shift would not mean the parameter"),
        ("__device__ int f() { return sizeof(shift); }", "sizeof(shift would not mean"),
        ("__device__ int *f = &shift;", "no function reads it here"),
        (
            "__device__ int f() { return shift; }\n__device__ int g(int shift) { return f(); }",
            "a parameter of g, which needs it, has the same name",
        ),
    ],
)
def test_a_place_that_no_parameter_reaches_is_refused(reader, sentence):
    with pytest.raises(UsageError, match=r"k\.cu:[45]: shift is constant memory") as refused:
        with_constants(of(CONSTANTS + reader + "\n" + KERNEL), None, "k.cu", ["shift"])
    assert sentence in str(refused.value)


def test_a_kernel_whose_functions_read_constants_computes_with_them(run, tmp_path):  # noqa: F811
    kernel = KERNEL.replace("taps[1][i % 3] + shift", "row<2>(i)")
    (tmp_path / "k.cu").write_text(CONSTANTS + READERS + kernel)
    given = ("out:float32[n]:out", "n:int32=70", "taps:float32[2,3]", "shift:int32=4")
    arguments = [word for each in given for word in ("--arg", each)]
    code, _, error = run("import", "k.cu", "--tune", "block_size_x=32,64", *arguments,
                         "--grid", "ceil_div(n, block_size_x)")  # fmt: skip
    assert code == 0, error
    reference = runpy.run_path(str(tmp_path / "kernels" / "k" / "reference.py"))
    dims = {"n": 5, "shift": 4}
    inputs = reference["make_inputs"](dims, {}, "normal", 1, {})
    found = reference["reference"](dims, {}, inputs)["out"]["value"]
    taps = inputs["taps_values"]
    expected = [taps[0, 0] + 1 + taps[1, (i + 4) % 3] + taps[1, (i + 5) % 3] + 1 for i in range(5)]
    np.testing.assert_allclose(found, expected, 1e-5)


def test_a_script_fills_constant_memory(run, tmp_path):  # noqa: F811
    (tmp_path / "s.py").write_text(SCRIPT)
    code, out, error = run("import", "s.py")
    assert code == 0, error
    assert "--arg taps_values:float32[2,3]:input --arg shift:int32=4" in out
    assert "shift is constant memory in s.py and a parameter here" in out
    kernel = load_kernel(tmp_path / "kernels" / "s")
    names = [argument.name for argument in kernel.arguments]
    assert names == ["out", "n", "taps_values", "shift"]
    (tmp_path / "s.py").write_text(SCRIPT.replace(", cmem_args=values", ""))
    code, _, error = run("import", "s.py", "--name", "other")
    assert code == 2 and "s.py:4: taps is constant memory" in error  # the script's own line
