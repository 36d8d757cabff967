"""`greenfast check` on programs: their own host code launches the kernels."""

from __future__ import annotations

import os

import pytest
from program_checks import ProgramChecks
from slow_cases import quick_first

from greenfast.search.diagnose.host_program import program_parts
from greenfast.search.errors import GreenfastError, UsageError

ADD = r"""
#include <cstdio>
#include <vector>
#include "bound.cuh"
__host__ __device__ int up(int a, int b) { return (a + b - 1) / b; }
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (inside(i, n)) c[i] = a[i] + b[i];
}
int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 1000;
    std::vector<float> a(n, 1.f), b(n, 2.f), c(n);
    float *da, *db, *dc;
    if (cudaMalloc(&da, n * sizeof(float)) != cudaSuccess) return 1;
    cudaMalloc((void**)&db, n * sizeof(float)); cudaMallocManaged(&dc, n * sizeof(float));
    cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    add<<<up(n, 256), 256>>>(da, db, dc, n);
    cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost);
    for (float x : c) if (x != 3.f) { printf("wrong\n"); return 1; }
}
"""
BOUND = "#pragma once\n__device__ bool inside(int i, int n) { return i SIGN n; }\n"
REDUCE = r"""
#include <cuda_fp16.h>
__constant__ float scale[2];
struct Rows { const float* x; float* y; int n; };
template <typename T, int size> __global__ void __launch_bounds__(size)
reduce(const T* __restrict__ in, T* out, int n) {
    __shared__ T s[size];
    int i = blockIdx.x * size + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : T(0);
    __syncthreads();
    for (int k = size / 2; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        BARRIER
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
__global__ void scaled(Rows rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows.n) rows.y[i] = scale[1] * rows.x[i];
}
class Solver {
  public:
    explicit Solver(int n) : n_(n) {
        cudaMalloc(&x_, n * sizeof(float)); cudaMalloc(&y_, n * sizeof(float));
        cudaMalloc(&partial_, 64 * sizeof(float));
        cudaMemset(x_, 0, n * sizeof(float));
        float two[2] = {1, 2}; cudaMemcpyToSymbol(scale, two, sizeof two);
    }
    template <int size> void run(cudaStream_t stream) {
        scaled<<<dim3((n_ + 127) / 128), 128, 0, stream>>>(Rows{x_, y_, n_});
        reduce<float, size><<<(n_ + size - 1) / size, size, 0, stream>>>(y_ + OFFSET, partial_, n_);
        void* arguments[] = {&partial_, &x_, &few_};
        cudaLaunchKernel(reduce<float, size>, dim3(1), dim3(size), arguments, 0, stream);
    }
  private:
    int n_, few_ = 8; float *x_ = nullptr, *y_, *partial_;
};
int main() { cudaStream_t s; cudaStreamCreate(&s); Solver solver(1000); solver.run<128>(s); }
"""


@pytest.fixture
def findings(tmp_path, emulator_target):
    return ProgramChecks(emulator_target, tmp_path)


@pytest.mark.parametrize(
    ("sign", "expected"), quick_first([("<=", ["out_of_bounds"]), ("<", [])], 1)
)
def test_a_program_s_own_data_are_checked(findings, sign, expected):
    assert [kind for kind, _ in findings(ADD, bound=BOUND.replace("SIGN", sign))] == expected
    assert [kind for kind, _ in findings(ADD, "77", bound=BOUND.replace("SIGN", sign))] == expected
    assert findings(ADD, "512", bound=BOUND.replace("SIGN", "<")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("barrier", "offset", "expected"),
    quick_first(
        [
            ("__syncthreads();", "0", set()),
            ("", "0", {"race"}),
            ("__syncthreads();", "1", {"out_of_bounds"}),
        ],
        1,
    ),
)
def test_launches_in_a_row_get_each_other_s_results(findings, barrier, offset, expected):
    text = REDUCE.replace("BARRIER", barrier).replace("OFFSET", offset)
    assert {kind for kind, _ in findings(text)} == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "expected"), quick_first([("0", []), ("1", ["out_of_bounds"])], 1)
)
def test_results_reach_launches_after_the_host_has_written_in_between(findings, first, expected):
    """The host writes over the first index, and copies the others to another buffer."""
    text = """
    __global__ void fill(int* index) { index[threadIdx.x] = threadIdx.x + FIRST; }
    __global__ void use(const int* index, float* x) { x[index[threadIdx.x]] = 1; }
    int main() {
        int *index, *copied; float* x;
        cudaMalloc(&index, 128); cudaMalloc(&copied, 256); cudaMalloc(&x, 128);
        fill<<<1, 32>>>(index);
        cudaMemset(index, 0, 4);
        cudaMemcpy(copied + 32, index, 128, cudaMemcpyDeviceToDevice);
        use<<<1, 32>>>(copied + 32, x);
    }
    """
    report = findings.checked(text.replace("FIRST", first)).report
    assert {finding.kind for finding in report.findings} == set(expected) and not report.limits


@pytest.mark.slow
def test_a_large_launch_runs_in_part_and_that_is_said(findings):
    """Its first and last block; the next launch finds memory that was written."""
    text = """
    __global__ void wide(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i SIGN n) x[i] = 1;
    }
    __global__ void sum(const float* x, float* y) { atomicAdd(y, x[threadIdx.x * 1000]); }
    int main() {
        const int n = 1000000;
        float *x, *y; cudaMalloc(&x, n * 4); cudaMallocManaged(&y, 4);
        *y = 0;
        wide<<<(n + 255) / 256, 256>>>(x, n);
        sum<<<1, 32>>>(x, y);
    }
    """
    report = findings.checked(text.replace("SIGN", "<")).report
    assert not report.findings
    assert report.limits[0].startswith("launches with more than 131,072 threads, but for")
    assert [kind for kind, _ in findings(text.replace("SIGN", "<="))] == ["out_of_bounds"]


@pytest.mark.slow
def test_a_loop_that_waits_for_a_result_ends(findings):
    text = """
    __global__ void step(int* done) { if (threadIdx.x == 0) *done = 1; }
    int main() {
        int *done, d = 0; cudaMalloc(&done, 4);
        while (!d) { step<<<1, 32>>>(done); cudaMemcpy(&d, done, 4, cudaMemcpyDeviceToHost); }
    }
    """
    assert findings(text) == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    quick_first(
        [
            ("return 3;", "launched no kernel that can be checked; it ended with exit code 3"),
            ('fputs("no file", stderr); abort();', "signal 6 ended it and printed: no file"),
            ("k<<<0, 32>>>(p);", "launches k with a grid of 0 x 1 x 1 blocks"),
            (
                "k<<<1, 2048>>>(p);",
                "the program launches k: block = 2048 x 1 x 1; CUDA allows at most",
            ),
            ("float h[32]; k<<<1, 32>>>(h);", "passes k an address of the host's memory for x"),
            (
                "no_such_function();",
                "was not declared in this scope (name the folder of such a header with -I FOLDER;",
            ),
        ],
        1,
    ),
)
def test_a_program_that_cannot_be_checked_gets_one_sentence(findings, body, sentence):
    text = f"""#include <cstdio>
#include <no/such/header.h>
__global__ void k(float* x) {{ x[threadIdx.x] = 1; }}
int main() {{ float* p; cudaMalloc(&p, 4096); {body} }}
"""
    with pytest.raises(GreenfastError, match="program") as refused:
        findings(text)
    assert sentence in str(refused.value)


def test_the_host_s_code_reaches_no_file_network_or_process(findings, tmp_path):
    """It tries each, and launches with as many threads as attempts succeeded."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    text = f"""
    #include <cstdio>
    #include <csignal>
    #include <fcntl.h>
    #include <sys/socket.h>
    #include <unistd.h>
    __global__ void reached(int* x, int how_many) {{ x[how_many] = 1; }}
    int main() {{
        int reached_count = 0;
        if (std::fopen("{secret}", "r")) reached_count += 1;
        if (std::fopen("/etc/passwd", "r")) reached_count += 1;
        if (std::fopen("{tmp_path}/made", "w")) reached_count += 1;
        if (open("/proc/{os.getpid()}/environ", O_RDONLY) >= 0) reached_count += 1;
        if (socket(AF_INET, SOCK_STREAM, 0) >= 0) reached_count += 1;
        if (kill({os.getpid()}, 0) == 0) reached_count += 1;
        if (std::getenv("GREENFAST_TOKEN")) reached_count += 1;
        int* x; cudaMalloc(&x, 4);
        reached<<<1, 1>>>(x, reached_count);
    }}
    """
    os.environ["GREENFAST_TOKEN"] = "a-secret-of-the-service"
    try:
        assert findings(text) == []  # x[0] alone is inside
    finally:
        del os.environ["GREENFAST_TOKEN"]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k() {} int main() { k<<<1, 1>>>(); }", True),
        ("int main(int c, char** v) { cudaLaunchKernel(k, 1, 1, v, 0, 0); }", True),
        ("__global__ void k() {}", False),
        ("int main() { return 0; }", False),
    ],
)
def test_a_program_has_a_main_that_launches(text, expected):
    assert program_parts(text).is_program is expected


@pytest.mark.parametrize(
    "line",
    quick_first(
        [
            '{\\"event\\": \\"content\\", \\"number\\": 1, \\"file\\": \\"/etc/passwd\\"}',
            '{\\"event\\": \\"content\\", \\"number\\": 1, \\"file\\": \\"record\\"}',
            '{\\"event\\": \\"content\\", \\"number\\": 7, \\"file\\": \\"content1\\"}',
            '{\\"event\\": \\"write\\", \\"number\\": 1, \\"offset\\": 8, \\"bytes\\": 4}',
            '{\\"event\\": \\"write\\", \\"number\\": 1, \\"offset\\": -8, \\"bytes\\": 4}',
            '{\\"event\\": \\"symbol\\", \\"name\\": \\"x\\", \\"value\\": \\"1; int y = f()\\"}',
            '{\\"event\\": \\"launch\\", \\"function\\": \\"void k;\\", \\"names\\": \\"\\"}',
            '{\\"event\\": \\"explode\\"}',
            "[1, 2]",
        ],
        1,
    ),
)
def test_a_program_may_write_nonsense_into_its_record(findings, line):
    text = f"""#include <cstdio>
    __global__ void k(int* x) {{ *x = 1; }}
    int main() {{
        int* x; cudaMalloc(&x, 4); cudaMemset(x, 0, 4);
        k<<<1, 1>>>(x);
        std::FILE* record = std::fopen("record", "a");
        std::fputs("{line}\\n", record); std::fclose(record);
    }}
    """
    with pytest.raises(UsageError, match="damaged the record of its launches"):
        findings(text)


def test_a_program_cannot_claim_more_memory_than_there_is_room_for(findings):
    text = """
    __global__ void k(char* x) { *x = 1; }
    int main() { char* x; cudaMalloc(&x, 3000000000u); k<<<1, 1>>>(x); }
    """
    with pytest.raises(UsageError, match="more than 1 GiB of memory"):
        findings(text)
