"""`greenfast import`: constant memory that a host program fills becomes a parameter."""

from __future__ import annotations

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


def test_a_constant_without_values_or_in_a_function_is_refused():
    source, names = with_constants(of(CONSTANTS + KERNEL), None, "k.cu", ["shift"])
    assert names == ("shift",)
    with pytest.raises(UsageError, match=r"k\.cu:1: taps is constant memory") as refused:
        read_entry(source, None, "k.cu")
    assert "--arg taps:float32[25]" in refused.value.mend
    inner = "__device__ float moved(int i) {\n    return i + shift;\n}\n"
    with pytest.raises(UsageError, match=r"k\.cu:5: moved reads shift"):
        with_constants(of(CONSTANTS + inner + KERNEL), None, "k.cu", ["shift"])


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
