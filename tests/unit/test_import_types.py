"""`greenfast import`: arguments of bytes, doubles and flags, structs, constant memory."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import numpy as np
import pytest

from greenfast.app.bundle.download import example_programs
from greenfast.app.bundle.launch_header import launch_header
from greenfast.app.cli import main
from greenfast.app.cli.new import ELEMENT
from greenfast.app.views.writers import CTYPES
from greenfast.runtime.frameworks import numpy_dtype
from greenfast.runtime.operation import ELEMENT_BYTES, SCALAR_FORMATS
from greenfast.search.gates.correctness import _unwritten
from greenfast.search.kernels.argument_specs import SCALAR_DTYPES, STORAGE_DTYPES
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.oracle.expected import Expected
from greenfast.search.oracle.problem import WHOLE_POISON
from greenfast.search.oracle.storage import DTYPES

TYPES = """#define threads 64
#include <cstdint>
#include <cfloat>
#include <stdio.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void mixed(const int8_t* a, const unsigned char* b, const short* c, const bool* keep,
                      const double* d, const half* e, const __nv_bfloat16* f, double factor,
                      double* sum, signed char* low, int n) {
    const int i = blockIdx.x * threads + threadIdx.x;
    if (i >= n || d[i] > FLT_MAX) return;
    sum[i] = keep[i] ? factor * (a[i] + b[i] + c[i] + d[i]) : __half2float(e[i]) + (float)f[i];
    low[i] = (signed char)(a[i] - 50);
}
"""
ARGUMENTS = tuple(
    word
    for argument in (
        "a:int8[n]", "b:uint8[n]", "c:int16[n]", "keep:bool[n]", "d:double[n]", "e:half[n]",
        "f:bf16[n]", "factor:float64=1e9", "sum:float64[n]:out", "low:int8[n]:out", "n:int=100",
    )
    for word in ("--arg", argument)
)  # fmt: skip
LAUNCH = ("--tune", "threads=32,64", "--block", "threads", "--grid", "ceil_div(n, threads)")


@pytest.fixture
def run(tmp_path, monkeypatch, artifacts, capsys):
    """`run(text, ...)` imports a file of that text: (exit code, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GREENFAST_TEMPLATE_PATH", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cache").symlink_to(artifacts)

    def command(text: str, *arguments: str):
        Path("mixed.cu").write_text(text)
        code = main.run(("import", "mixed.cu", *arguments))
        return code, capsys.readouterr().err

    return command


def test_every_place_knows_every_type_of_a_tensor():
    tables = (DTYPES, CTYPES, ELEMENT, ELEMENT_BYTES)
    assert all(set(table) == set(STORAGE_DTYPES) for table in tables)
    assert all(numpy_dtype(name) == DTYPES[name] for name in STORAGE_DTYPES)
    assert {name: DTYPES[name].itemsize for name in DTYPES} == ELEMENT_BYTES
    assert set(SCALAR_DTYPES) <= set(SCALAR_FORMATS)
    head = launch_header({"arch": "sm_90", "workloads": []})
    (types,) = (line for line in head.split("\n") if line.startswith("enum class Type"))
    assert all(f" {name}" in types for name in STORAGE_DTYPES)
    program = ast.parse(example_programs()["run_cupy.py"])
    of_program = {
        each.targets[0].id: {key.value for key in each.value.keys}
        for each in program.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict)
    }
    assert of_program == {"DTYPES": set(STORAGE_DTYPES), "MAP_TYPES": set(STORAGE_DTYPES)}


@pytest.mark.slow
def test_the_truth_of_bytes_flags_and_doubles_is_what_numpy_computes(run):
    code, err = run(TYPES, *ARGUMENTS, *LAUNCH)
    assert code == 0, err
    kernel = load_kernel(Path("kernels/mixed"))
    dtypes = {argument.name: argument.dtype for argument in kernel.arguments}
    assert dtypes["keep"] == "uint8" and dtypes["d"] == dtypes["factor"] == "float64"
    reference = runpy.run_path("kernels/mixed/reference.py")
    data = reference["make_inputs"]({"n": 100}, {}, "normal", 1, {})
    assert set(np.unique(data["keep"])) == {0, 1} and data["a"].dtype == np.int8
    outputs = reference["reference"]({"n": 100}, {}, data)
    wide = {name: array.astype(np.float64) for name, array in data.items()}
    scaled = 1e9 * (wide["a"] + wide["b"] + wide["c"] + wide["d"])
    expected = np.where(data["keep"], scaled, wide["e"] + wide["f"])
    np.testing.assert_allclose(outputs["sum"]["value"], expected, 1e-12)
    assert (outputs["low"]["value"] == wide["a"] - 50).all()


@pytest.mark.slow
def test_a_kernel_of_bytes_flags_and_doubles_is_right_on_the_emulator(run):
    run(TYPES, *ARGUMENTS, *LAUNCH)
    assert main.run(("lint", "mixed")) == 0
    assert main.run(("trial", "mixed", "--template", "plain", "--set", "threads=32")) == 0


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "#define",
            "__constant__ float weights[9];\n#define first weights[0]\n#define",
            "weights is constant",
        ),
        ("#define", "typedef struct { int x; } Sizes;\n#define", ""),
        ("", "int main() { return 0; }\n", ""),
        ("", "int first = cudaMallocHost(0);\n", "mixed.cu:1: this is host code"),
        ("", "#ifndef __CUDACC_RTC__\nint main() { return 0; }\n#endif\n", ""),
        ("double factor", "Sizes factor", "'Sizes factor' is a struct"),
        ("double factor", "float4 factor", "'float4 factor' is a struct"),
        ("double factor", "cudaTextureObject_t factor", "is a texture or a surface"),
    ],
)
def test_what_a_launch_cannot_pass_is_refused(run, old, new, sentence):
    text = "struct Sizes { int x; };\n" if "Sizes" in new and sentence else ""
    code, err = run(text + TYPES.replace(old, new, 1), *ARGUMENTS, *LAUNCH)
    assert code == (2 if sentence else 0) and sentence in err
    assert Path("kernels").exists() is not bool(sentence)


def test_a_line_behind_an_include_is_named_as_its_own_file_counts_it(run):
    Path("sizes.h").write_text("#pragma once\n\n\n#include <cfloat>\n")
    host = "int first = cudaMallocHost(0);\n"
    _, err = run(f'#include "sizes.h"\n#include <climits>\n{host}{TYPES}', *ARGUMENTS, *LAUNCH)
    assert "mixed.cu:3: this is host code" in err
    Path("sizes.h").write_text(f"#pragma once\n#include <cfloat>\n{host}")
    _, err = run(f'#include "sizes.h"\n{TYPES}', *ARGUMENTS, *LAUNCH)
    assert "sizes.h:3: this is host code" in err


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("factor:bool=1", "a scalar cannot be bool"),
        ("factor:int8=1", "a scalar cannot be int8"),
        ("factor:float64=inf", "must be below 2**63"),
        ("n:int32=4294967296", "must be below 2**31"),
        ("a:complex64[n]", "types are float32"),
    ],
)
def test_an_argument_that_no_launch_passes_is_refused(run, argument, sentence):
    name = argument.partition(":")[0]
    rest = [a for a in ARGUMENTS if a != "--arg" and not a.startswith(f"{name}:")]
    given = [word for each in (*rest, argument) for word in ("--arg", each)]
    code, err = run(TYPES, *given, *LAUNCH)
    assert code == 2 and sentence in err and not Path("kernels").exists()


def test_constant_memory_with_values_is_taken(run):
    code, err = run("__constant__ float w[2] = {1.0f, 2.0f};\n" + TYPES, *ARGUMENTS, *LAUNCH)
    assert code == 0, err


def test_the_types_are_those_of_the_file(run):
    code, err = run(TYPES, *ARGUMENTS, *LAUNCH)
    assert code == 0, err
    kernel = load_kernel(Path("kernels/mixed"))
    dtypes = {argument.name: argument.dtype for argument in kernel.arguments}
    assert dtypes == {
        "a": "int8", "b": "uint8", "c": "int16", "keep": "uint8", "d": "float64", "e": "fp16",
        "f": "bf16", "factor": "float64", "sum": "float64", "low": "int8", "n": "int32",
    }  # fmt: skip
    reference = runpy.run_path("kernels/mixed/reference.py")
    assert (reference["WHOLE_TOLERANCE"], reference["TOLERANCE"]) == (0, 1e-4)
    data = reference["make_inputs"]({"n": 9}, {}, "", 1, {})
    assert {name: array.dtype for name, array in data.items()} == {
        name: DTYPES[dtypes[name]] for name in data
    }


def test_an_integer_may_be_the_poison_where_that_is_correct():
    def unwritten(written: list[int], correct: list[float], dtype: str, bound: float = 0.0) -> int:
        value, values = np.array(correct), np.array(written).astype(dtype)
        expected = Expected(value, np.full_like(value, bound), None)
        return _unwritten(values, lambda: abs(values - value) <= bound, expected)

    poison = int.from_bytes(bytes([WHOLE_POISON]) * 4, "little", signed=True)
    assert unwritten([WHOLE_POISON, 3], [WHOLE_POISON, 3], "uint8") == 0
    assert unwritten([poison, poison], [poison, -1], "int32") == 1
    assert unwritten([WHOLE_POISON, 3], [WHOLE_POISON + 1, 3], "uint8", 1.0) == 0
    assert unwritten([WHOLE_POISON, 3], [0, 3], "uint8", 1.0) == 1
    assert unwritten([WHOLE_POISON, 4, 5], [0, 0, 0], "uint8", 1.0) == 0, "others are wrong, too"
