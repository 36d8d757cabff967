"""`greenfast import --entry 'k<float, block>'`: instances of C++ templates, and namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_import_kernel import outputs_of, run  # noqa: F401

from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve

HEADER = """#pragma once
namespace ops {
struct Two { float a, b; };
using real = float;
template <typename T> struct Plus { __device__ T operator()(T a, T b) const { return a + b; } };
}
"""
SUM = """#include "ops.cuh"
namespace own {
using ops::Plus;
template <typename T, int BLOCK, class Op = Plus<T>>
__global__ void __launch_bounds__(BLOCK, (1 + 0))
row_sum(const T* __restrict__ x, T* const __restrict__ y, const __grid_constant__ int n)
{
    __shared__ T part[BLOCK];
    part[threadIdx.x] = threadIdx.x < n ? x[blockIdx.x * n + threadIdx.x] : T(0);
    __syncthreads();
    if (threadIdx.x == 0) {
        T sum = 0;
        for (int i = 0; i < BLOCK; ++i) sum = Op()(sum, part[i]);
        y[blockIdx.x] = sum;
    }
}
__global__ static void twice(const ops::real x[], ops::real* y, int n = 4)
{
    if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x];
}
template <typename... Ts> __global__ void any(Ts... values) {}
__global__ void of_struct(ops::Two two, float* y) { y[0] = two.a; }
}
"""
SUM_ARGUMENTS = ("--arg", "x:float32[2,n]", "--arg", "y:float32[2]:out", "--arg", "n:int32=20")


@pytest.fixture
def files(run):  # noqa: F811
    Path("ops.cuh").write_text(HEADER)
    Path("sum.cu").write_text(SUM)
    return run


@pytest.mark.parametrize(
    ("parameter", "entry"),
    [
        ("block_size_x", "row_sum<float, block_size_x>"),
        ("block_size_x", "own::row_sum<float, (block_size_x / 1), ops::Plus<float>>"),
        ("BLOCK", "row_sum<ops::real, BLOCK>"),  # the template's own name for it
    ],
)
def test_an_instance_of_a_template_is_launched_by_a_name(files, parameter, entry):
    tune = ("--tune", f"{parameter}=32,64", "--block", parameter, "--grid", "2")
    code, _, err = files("import", "sum.cu", *tune, "--entry", entry, *SUM_ARGUMENTS)
    assert code == 0, err
    kernel = load_kernel(Path("kernels/sum"))
    (template,) = kernel.templates
    candidate = preset_candidate(template, "defaults", ())
    point = resolve(template, candidate.parameters, (), device("h200"))
    source = render(kernel, template, point, Catalogue.from_environment().include_dirs)
    assert isinstance(source, RenderedSource) and source.entries == ("row_sum_entry",)
    assert "__device__ void" in source.text and "__grid_constant__" not in source.text
    (size,) = (dim.name for dim in kernel.dims if dim.name != "n")
    dims = {**dict(kernel.workloads[0].dims), size: 2}
    assert outputs_of(kernel, dims)["y"]["value"].shape == (2,)


def test_a_kernel_in_a_namespace_has_an_entry_outside(files):
    arguments = ("--arg", "x:float32[n]", "--arg", "y:float32[n]:out", "--arg", "n:int32=20")
    tune = ("--tune", "block_size_x=32,64", "--grid", "1", "--entry", "twice")
    code, _, err = files("import", "sum.cu", *tune, *arguments)
    assert code == 0, err
    assert outputs_of(load_kernel(Path("kernels/sum")), {"n": 20})["y"]["value"].shape == (20,)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("row_sum", "and the entry gives no arguments (for example --entry 'row_sum<float, block_"),
        ("row_sum<float>", "and the entry gives 1 argument "),
        ("row_sum<float, 1, 2, 3>", "gives 4 arguments"),
        ("any<float>", "is a template <typename... Ts>"),
        ("twice<float>", "twice is not a template, so it takes no <float>"),
        ("of_struct", "the parameter 'ops::Two two' is a struct"),
    ],
)
def test_an_entry_that_cannot_be_made_is_refused_with_an_example(files, entry, sentence):
    tune = ("--tune", "block_size_x=32", "--grid", "1")
    code, _, err = files("import", "sum.cu", *tune, "--entry", entry, *SUM_ARGUMENTS)
    assert code == 2 and sentence in err and not Path("kernels").exists()
