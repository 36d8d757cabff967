"""`greenfast check` of programs in several files, and with what templates and the runtime allow."""

from __future__ import annotations

import pytest
from program_checks import ProgramChecks
from slow_cases import quick_first

from greenfast.app.cli import main
from greenfast.search.errors import GreenfastError, UsageError


@pytest.fixture
def findings(tmp_path, emulator_target):
    return ProgramChecks(emulator_target, tmp_path)


@pytest.fixture
def command(tmp_path, monkeypatch, artifacts):
    """Runs a command, with the emulator that these tests share."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "cache").symlink_to(artifacts)
    monkeypatch.setenv("GREENFAST_DATA", str(data))
    return main.run


PARTS = {
    "main.cu": """#include <cstdio>
#include "shift.h"
int main(int, char** words) {
    std::FILE* file = std::fopen(words[1], "r");
    int n = 0;
    if (!file || std::fscanf(file, "%d", &n) != 1) return 1;
    shift(n);
}
""",
    "shift.h": "void shift(int n);\n",
    "shift.cu": """#include "shift.h"
__global__ void shifted(int* x, int n) {
    int i = threadIdx.x;
    if (i SIGN n) x[i] = i;
}
void shift(int n) {
    int* x;
    cudaMalloc(&x, n * sizeof(int));
    shifted<<<1, 64>>>(x, n);
}
""",
}


@pytest.mark.parametrize(("sign", "expected"), quick_first([("<=", 1), ("<", 0)], 1))
def test_a_program_of_several_files_reads_a_file(
    tmp_path, monkeypatch, capsys, command, sign, expected
):
    monkeypatch.chdir(tmp_path)
    for name, text in PARTS.items():
        (tmp_path / name).write_text(text.replace("SIGN", sign))
    (tmp_path / "size.txt").write_text("17")
    program = ("check", "main.cu", "shift.cu", "--args", "size.txt")
    assert command([*program, "--file", "size.txt"]) == expected
    assert ("shift.cu:4 this access" in capsys.readouterr().out) is bool(expected)
    if expected:
        assert command(program) == 2
        assert "name the files that it reads with --file" in capsys.readouterr().err
        assert command(["check", "main.cu"]) == 2
        error = capsys.readouterr().err
        assert "greenfast check main.cu KERNELS.cu" in error
        assert command([*program, "--file", "none.txt"]) == 2
        assert "--file none.txt cannot be read" in capsys.readouterr().err
        assert command([*program[:3], "--entry", "shifted", "--file", "size.txt"]) == 2
        assert "--file is for FILE.cu's main" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_is_missing_and_a_name_that_two_files_have_are_told(findings, tmp_path):
    file = tmp_path / "main.cu"
    file.write_text("__global__ void k() {}\nvoid other();\nint main() { k<<<1, 1>>>(); other(); }")
    with pytest.raises(UsageError, match="other\\(\\) is in none of its files") as raised:
        findings.program(file)
    assert f"greenfast check {file} OTHER.cu" in raised.value.mend
    again = tmp_path / "other.cu"
    again.write_text("void other() {}\nint main() {}\n")
    with pytest.raises(UsageError, match="redefinition of 'int main") as raised:
        findings.program(file, again)
    assert "two of them cannot define one name" in raised.value.mend


@pytest.mark.slow
def test_a_main_or_a_launch_in_an_included_file_makes_a_program(command, tmp_path, capsys):
    (tmp_path / "run.h").write_text("void run() { k<<<1, 1>>>(); }\nint main() { run(); }\n")
    (tmp_path / "p.cu").write_text('__global__ void k() {}\n#include "run.h"\n')
    assert command(["check", str(tmp_path / "p.cu")]) == 0
    assert "no findings" in capsys.readouterr().out


@pytest.mark.slow
def test_the_runtime_of_older_samples_is_known(findings):
    text = """
    __global__ void k(float* x, size_t pitch) { x[threadIdx.x + pitch / sizeof(float)] = 1; }
    void done(void* said) { *(bool*)said = true; }
    int main() {
        cudaDeviceProp p;
        cudaGetDeviceProperties(&p, 0);
        bool said = false;
        cudaPitchedPtr memory;
        cudaExtent extent = make_cudaExtent(64, 4, 2);
        cudaMalloc3D(&memory, extent);
        cudaMemset3D(memory, 0, extent);
        if (p.textureAlignment) k<<<1, 16>>>((float*)memory.ptr, memory.pitch);
        cudaLaunchHostFunc(0, done, &said);
        cudaThreadExit();
        return !said;
    }
    """
    assert findings(text) == []
    at_end = text.replace("pitch / sizeof(float)]", "8 * pitch / sizeof(float)]")
    assert [kind for kind, _ in findings(at_end)] == ["out_of_bounds"]


CONSTANTS = """
#include <vector>
struct Params { float scale; int count; float3 offset; float table[2]; };
__constant__ Params params;
__constant__ float4 planes[2];
__constant__ float largest;
__global__ void apply(float* out) {
    int i = threadIdx.x;
    if (i < params.count && planes[1].w < largest) out[i + int(planes[1].z)] = params.table[i % 2];
}
int main() {
    Params host = {2.0f, 30, make_float3(1, 2, 3), {1, 2}};
    std::vector<float4> corners(2, make_float4(0, 0, SHIFT, 1));
    float most = INFINITY;
    cudaMemcpyToSymbol(params, &host, sizeof host);
    cudaMemcpyToSymbol(planes, corners.data(), sizeof planes);
    cudaMemcpyToSymbol(largest, &most, sizeof most);
    float* out; cudaMalloc(&out, 30 * sizeof(float));
    apply<<<1, 64>>>(out);
}
"""


VALUES = """
__device__ int count = 7, other[2] = {1, 2}, third;
__constant__ float table[2][2], last
    = 3;
__device__ unsigned long long total{5};
__device__ int kept = 6;
__global__ void k(float* x) {
    bool is_right = count == 0 && other[1] == 9 && third == 4 && table[1][0] == 2.5f && last == 4
        && total == 11 && kept == 6;
    x[is_right ? threadIdx.x : 1000] = 1;
}
int main() {
    float* x; cudaMalloc(&x, 128);
    int zero = 0, o[2] = {8, 9}, t = 4;
    float f[4] = {1, 2, 2.5f, 3}, four = 4;
    unsigned long long eleven = 11;
    cudaMemcpyToSymbol(count, &zero, 4); cudaMemcpyToSymbol(other, o, 8);
    cudaMemcpyToSymbol(third, &t, 4); cudaMemcpyToSymbol(table, f, 16);
    cudaMemcpyToSymbol(last, &four, 4); cudaMemcpyToSymbol(total, &eleven, 8);
    k<<<1, 32>>>(x);
}
"""


@pytest.mark.slow
def test_the_host_may_write_variables_that_have_values_or_are_declared_together(findings):
    assert findings(VALUES) == []


# Two instances, a table of kernels, a trait that asks for a member, and a name of <climits>.
SPECIALISED = """
#include <iostream>
template <class F> struct has_twice {
    template <class C> static char test(decltype(&C::twice));
    template <class C> static long test(...);
    void save(std::ostream& out) const;
    enum { value = sizeof(test<F>(0)) == 1 };
};
struct One { __device__ int twice(int i) const { return 2 * i; } };
template <class T> __global__ void k(T* x, int n) { x[threadIdx.x + 1000] = 1; }
template <> __global__ void k(int* x, int n) { if (threadIdx.x LESS n) x[threadIdx.x] = INT_MAX; }
template <> __global__ void k<short>(short* x, int n) { x[threadIdx.x] = has_twice<One>::value; }
int main() {
    int* x; short* y; cudaMalloc(&x, 80); cudaMalloc(&y, 64);
    void (*table[1])(int*, int) = {k};
    cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte);
    table[0]<<<1, 32>>>(x, 20);
    k<<<1, 32>>>(y, 32);
}
"""


@pytest.mark.parametrize(
    ("less", "expected"), quick_first([("<=", {"out_of_bounds"}), ("<", set())], 1)
)
def test_kernels_may_be_specialised_and_launched_from_a_table(findings, less, expected):
    assert {kind for kind, _ in findings(SPECIALISED.replace("LESS", less))} == expected


@pytest.mark.slow
def test_a_program_may_change_its_device_variables_and_use_openmp_and_spaced_brackets(findings):
    text = """
    #include <nvtx3/nvToolsExt.h>
    #include <omp.h>
    __device__ float total; __device__ int calls = 1;
    __global__ void k(float* x) { total += x[threadIdx.x]; calls = calls + 1; }
    int main() {
        float *x, one = 1; cudaMalloc(&x, 4); cudaMemcpyToSymbol(total, &one, 4);
        nvtxRangePush("copy"); nvtxRangePop(); omp_set_num_threads(2);
        #pragma omp parallel
        if (omp_get_thread_num() == 0) cudaMemcpy(x, &one, 4, cudaMemcpyHostToDevice);
        k << <1, 1 >> > (x);
    }
    """
    assert findings(text) == []


def test_c_is_told_from_cpp(findings, tmp_path):
    (tmp_path / "old.c").write_text("int f(); int g() { return f(1); }\n")
    (tmp_path / "p.cu").write_text("__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    with pytest.raises(UsageError, match=r"old\.c:1: .*C files are compiled as C\+\+"):
        findings.program(tmp_path / "p.cu", tmp_path / "old.c")


def test_a_function_of_warps_that_cuda_has_no_more_is_told_with_its_successor(findings):
    with pytest.raises(GreenfastError, match=r"CUDA has __shfl_xor_sync in its place"):
        findings("""
        __global__ void k(int* x) { x[threadIdx.x] = __shfl_xor(x[threadIdx.x], 1); }
        int main() { int* x; cudaMalloc(&x, 128); k<<<1, 32>>>(x); }
        """)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shift", "expected"), quick_first([("1", ["out_of_bounds"]), ("0", [])], 1)
)
def test_constant_memory_may_hold_structs_and_vectors(findings, shift, expected):
    report = findings.checked(CONSTANTS.replace("SHIFT", shift)).report
    assert [finding.kind for finding in report.findings][:1] == expected and not report.limits


KERNELS = (
    "(void*)add<int>",
    "(const void *) &add<int>",
    "add<int>",
    "reinterpret_cast<void*>(add<int>)",
)
MEETINGS = (("", {"race", "uninitialised"}), ("cg::this_grid().sync();", set()))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", quick_first(KERNELS, 1))
@pytest.mark.parametrize(("barrier", "expected"), quick_first(MEETINGS, 1))
def test_a_cooperative_launch_may_lose_the_type_of_its_kernel(findings, kernel, barrier, expected):
    text = """
    #include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    template <typename T> __global__ void add(T* parts, T* sum) {
        if (threadIdx.x == 0) parts[blockIdx.x] = blockIdx.x;
        BARRIER
        if (blockIdx.x + threadIdx.x == 0) *sum = parts[0] + parts[1];
    }
    int main() {
        int *parts, *sum;
        cudaMalloc(&parts, 8); cudaMalloc(&sum, 4);
        void* arguments[] = {&parts, &sum};
        cudaLaunchCooperativeKernel(KERNEL, dim3(2), dim3(32), arguments, 0, 0);
    }
    """
    found = findings(text.replace("BARRIER", barrier).replace("KERNEL", kernel))
    assert {kind for kind, _ in found} == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", quick_first(["int bins, class U = float", "int bins", "int bins, int... more"], 1)
)
def test_an_alias_among_the_parameters_is_no_argument_of_the_template(findings, head):
    text = """
    #include <cstdint>
    typedef unsigned int word;
    template <HEAD> __global__ void count(word* counts, size_t n, std::uint8_t first) {
        if (threadIdx.x < n) counts[threadIdx.x * bins] = first;
    }
    int main() { word* x; cudaMalloc(&x, 4 * 40); count<2><<<1, 32>>>(x, 21, 1); }
    """
    assert {kind for kind, _ in findings(text.replace("HEAD", head))} == {"out_of_bounds"}
    assert findings(text.replace("HEAD", head).replace("(x, 21", "(x, 20")) == []


@pytest.mark.slow
def test_a_launch_with_a_lambda_is_told_and_the_others_are_checked(findings):
    text = """
    template <class F> __global__ void each(int n, F f) { if (threadIdx.x < n) f(threadIdx.x); }
    __global__ void read(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x + LAST]; }
    int main() {
        int *x, *y; cudaMalloc(&x, 400); cudaMalloc(&y, 400);
        each<<<1, 128>>>(100, [=] __device__(int i) { x[i] = i; });
        read<<<1, 64>>>(x, y);
    }
    """
    report = findings.checked(text.replace("LAST", "36")).report
    assert not report.findings and any("with a lambda" in limit for limit in report.limits)
    assert [kind for kind, _ in findings(text.replace("LAST", "37"))] == ["out_of_bounds"]


@pytest.mark.slow
def test_an_array_of_pointers_is_told_and_accuses_nobody(findings):
    text = """
    __global__ void fill(float** rows) { rows[threadIdx.x][0] = 1; }
    __global__ void read(const float* x, float* y) { y[0] = x[LAST]; }
    int main() {
        float *rows[2], **all, *y;
        for (auto& row : rows) cudaMalloc(&row, 16);
        cudaMalloc(&y, 4);
        cudaMalloc(&all, sizeof rows);
        cudaMemcpy(all, rows, sizeof rows, cudaMemcpyHostToDevice);
        fill<<<1, 2>>>(all);
        read<<<1, 1>>>(rows[1], y);
    }
    """
    report = findings.checked(text.replace("LAST", "3")).report
    assert not report.findings and any("an array of pointers" in it for it in report.limits)
    assert [kind for kind, _ in findings(text.replace("LAST", "4"))] == ["out_of_bounds"]
