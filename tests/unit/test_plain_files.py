"""`greenfast check` on plain CUDA files: the code taken out of them, and its refusals."""

from __future__ import annotations

import pytest

from greenfast.search.diagnose.check import check_brought
from greenfast.search.diagnose.device_extract import DeviceCode
from greenfast.search.diagnose.plain import GivenLaunch, PlainOptions, read_plain
from greenfast.search.diagnose.plain_arguments import read_argument_text
from greenfast.search.diagnose.plain_messages import refusal
from greenfast.search.diagnose.plain_text import read_plain_text
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator.target import CannotCompile, EmulatorTarget

PUBLIC = r"""
#include <stdio.h>
#include <vector>
#include <cassert>
#include <float.h>
#include <cublas_v2.h>
#include "helper_of_theirs.h"
#include "device.cuh"
#define CHECK(call) do { if ((call) != cudaSuccess) { exit(EXIT_FAILURE); } } while (0)
static std::vector<float> on_the_host(1 << 20);
typedef float real;
struct Scale { real factor; int shift; Scale(FILE* from) { fread(this, 1, 8, from); } };
__constant__ float weights[4];
namespace deep { namespace er {
template <typename T, int N = 4>
__global__ void __launch_bounds__(64) blur(T* __restrict__ out, const T* in, int n, Scale by = {}) {
    extern __shared__ __align__(16) T tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : T(FLT_MAX * 0);
    __syncthreads();
    assert(n > 0);
    if (i == 0) printf("%d\n", n);
    if (i < n) out[i] = helped(tile, threadIdx.x) * weights[i % N] * by.factor;
}
}}
__global__ void twice(int* x) { x[threadIdx.x] *= 2; }
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
template <class T> void run(T* d) { deep::er::blur<T><<<1, 64, 256>>>(d, d, 64); }
int main(int argc, char** argv) {
    std::vector<std::pair<int, float>> all; float* d; CHECK(cudaMalloc(&d, 256));
    run(d); for (auto& each : all) { printf("%d", each.first); } return 0;
}
"""
DEVICE = """#pragma once
template <class T>
__device__ T helped(T* tile, int lane) { return tile[lane + 1 < 64 ? lane + 1 : lane]; }
"""


@pytest.fixture
def public(tmp_path):
    (tmp_path / "public.cu").write_text(PUBLIC)
    (tmp_path / "device.cuh").write_text(DEVICE)
    return tmp_path / "public.cu"


@pytest.fixture(scope="module")
def target(artifacts, catalogue):
    return EmulatorTarget("h200", artifacts, catalogue.include_dirs, 1, 20.0)


def launch(entry, *arguments, block=(64, 1, 1), smem=256, data=()):
    return GivenLaunch(entry, (1, 1, 1), block, (1, 1, 1), smem, arguments, data)


BLUR = ("out[64]:out", "in[64]", "n=64", "by:float2={2,0}")
DATA = ("weights={1, 2, 3, 4}",)


def test_a_public_file_runs_as_it_is_and_is_clean(target, public):
    text = launch("blur<float>", *BLUR, data=DATA)
    plain = read_plain(public, text, PlainOptions(), target)
    assert [each.name for each in plain.missing if each.is_local] == ["helper_of_theirs.h"]
    assert "main" not in plain.brought.source.text and "FILE" not in plain.brought.source.text
    report = check_brought(target, plain.brought)
    assert report.findings == ()


@pytest.mark.parametrize(
    ("entry", "arguments", "words"),
    [
        ("blurr", BLUR, "did you mean 'deep::er::blur'? known: deep::er::blur, twice"),
        ("blur", BLUR, "is a template <typename T, int N = 4>"),
        ("twice", ("x[64]",), "twice(int* x) at public.cu:"),
        ("twice<int>", ("x[64]",), "several kernels"),
        ("blur<float>", (), "--arg out"),
        ("blur<float>", ("out:float[64]", "in:float[64]"), "--arg n:int32=VALUE"),
        ("blur<float>", ("out:float[64]", "in", "n=1"), "is a scalar without a value"),
    ],
)
def test_an_entry_that_cannot_be_launched_is_refused_with_what_can(
    target, public, entry, arguments, words
):
    with pytest.raises(UsageError) as refused:
        read_plain(public, launch(entry, *arguments), PlainOptions(), target)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("out:float[64]", "in:float[64]", "n:int64=4", BLUR[3]), "(8 bytes), but the parameter"),
        (("out:float[64]", "in:float[64]", "n:float=4", BLUR[3]), "is `int n`"),
        (
            ("out:float[64]", "n:int=4", "n2:int=4", BLUR[3]),
            "argument 2 of blur<float> is a scalar",
        ),
        (("out:float[64]", "in:float[64]", "n=4", "by:float4={1,2,3,4}"), "a value of 16 bytes"),
        (("out:float[64]", "in:float[64]", "n=4", BLUR[3], "m:int=1"), "has 5 arguments"),
    ],
)
def test_arguments_are_compared_with_the_compiled_parameters(target, public, arguments, words):
    plain = read_plain(public, launch("blur<float>", *arguments, data=DATA), PlainOptions(), target)
    with pytest.raises(CannotCompile) as failed:
        check_brought(target, plain.brought)
    error = refusal(failed.value.log, plain.missing)
    assert error.code == "bad_arguments" and words in str(error), str(error)


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (
            "#include <thrust/sort.h>",
            "'thrust' has not been declared",
            "have <thrust/sort.h> (s.cu:1)",
        ),
        (
            "#include <curand_kernel.h>",
            "'curandState' was not declared",
            "have <curand_kernel.h> (",
        ),
        ("#include <cute/tensor.hpp>", "'make_tensor' was not declared", "which may declare it"),
        (
            "#include <cub/cub.cuh>",
            "'ThreadLoad' is not a member of 'cub'",
            "`greenfast docs emulator`",
        ),
        ("#include <vector>", "'f' was not declared in this scope", "scope"),
        ('#include "cute/tensor.hpp"', "'f' was not declared in this scope", "-I FOLDER"),
    ],
)
def test_a_library_that_the_emulator_does_not_have_is_named(target, tmp_path, line, error, words):
    (tmp_path / "s.cu").write_text(line + "\n")
    missing = read_plain_text((tmp_path / "s.cu",), (), (), target.headers).missing
    assert words in str(refusal(f"s.cu:2:3: error: {error}", missing))


def test_a_launch_in_a_kernel_and_a_struct_are_refused_in_plain_words(target, tmp_path):
    text = tmp_path / "s.cu"
    text.write_text(
        "__global__ void child(float* x) { x[0] = 1; }\n"
        "__global__ void parent(float* x) {\n    child<<<1, 32>>>(x);\n}\n"
        "struct Sizes { int n; float eps; };\n"
        "__global__ void sized(__half2* x, Sizes s) { x[0] = __float2half2_rn(s.eps); }\n"
    )
    plain = read_plain(text, launch("parent", "x:float[64]"), PlainOptions(), target)
    with pytest.raises(CannotCompile) as failed:
        check_brought(target, plain.brought)
    error = refusal(failed.value.log, plain.missing)
    assert "s.cu:3: a kernel launches another one (dynamic parallelism)" in str(error)
    with pytest.raises(UsageError, match="parameter `Sizes s` its value; a launch file can"):
        read_plain(text, launch("sized", "x[64]", "s={1, 2}"), PlainOptions(), target)


def test_one_of_several_overloads_is_named_by_its_parameters(target, public):
    plain = read_plain(public, launch("twice(float*)", "x:float[64]"), PlainOptions(), target)
    assert check_brought(target, plain.brought).findings == ()


def test_dynamic_shared_memory_of_any_type_in_functions_and_among_namespaces(target, tmp_path):
    (tmp_path / "s.cu").write_text(
        "extern __shared__ float everywhere[];\n"
        "struct __align__(8) Pair { int a, b; };\n"
        "template <class T> __device__ T last(int n) {\n"
        "  extern __shared__ unsigned char raw[]; return ((T*)raw)[n - 1]; }\n"
        "__global__ void k(float* out) {\n"
        "  extern volatile __shared__ Pair pairs[];\n"
        "  everywhere[threadIdx.x] = threadIdx.x; float* p = everywhere + 1;\n"
        "  __syncthreads(); out[threadIdx.x] = p[-1] + last<float>(32) + everywhere[40]; }\n"
    )
    given = launch("k", "out[32]:out", block=(32, 1, 1), smem=128)
    plain = read_plain(tmp_path / "s.cu", given, PlainOptions(), target)
    (finding,) = check_brought(target, plain.brought).findings
    assert finding.kind == "out_of_bounds" and finding.where[1] == 8


@pytest.mark.parametrize(
    ("text", "shape", "value", "role"),
    [
        ("x:float32[4096]", (4096,), None, ""),
        ("y:float[4*8, 3]=zeros:out", (32, 3), "zeros", "out"),
        ("i:int=range(0, 5)", None, "range(0, 5)", ""),
        ("y[64]:inout", (64,), None, "inout"),
        ("y:float32[2]:output", (2,), None, "out"),
        ("x:unsigned int[2]", (2,), None, ""),
    ],
)
def test_arguments_are_read(text, shape, value, role):
    argument = read_argument_text(text)
    assert (argument.sizes, argument.value, argument.role) == (shape, value, role)


def test_declarations_end_where_they_end():
    code = DeviceCode(
        'extern "C" { __attribute__((global)) void a(int* x) { if (*x) { *x = 1; } } }\n'
        "namespace n { template <> __attribute__((global)) void b<int>(int) {} }\n"
        "template <class T, int = (3 > 2)> struct S { T t; void host(FILE* f); }; int host = 4;\n"
        "Foo::Foo(int x) : a{x}, b(x) { }\n"
        "static const int table[] = {1, 2}, more = 3;\n"
        "enum : unsigned { EMPTY, FULL };\n"
        "__attribute__((device)) float (*chosen(int i))(float) { return 0; }\n"
        "struct P { float (*f)(float); int (P::*g)(int); int (&h)[2]; Host list() const; };\n"
    )
    assert [kernel.name for kernel in code.kernels] == ["a", "n::b"]
    assert [each.kind for each in code.declarations] == [
        "function", "function", "class", "variable", "function", "variable", "enum", "function",
        "class",
    ]  # fmt: skip
    enumeration, function, pointers = code.declarations[-3:]
    assert {"EMPTY", "FULL"} <= set(enumeration.names) and "chosen" in function.names
    members = code.mentions(pointers)
    assert {"f", "g", "h"} <= members and not {"Host", "list"} & members  # its host's stay out
