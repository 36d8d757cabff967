"""`greenfast check` on programs: their own host code launches the kernels."""

from __future__ import annotations

import os

import pytest
from slow_cases import quick_first

from greenfast.app.cli import main
from greenfast.search.diagnose.host_program import check_host_program, program_parts
from greenfast.search.diagnose.plain import PlainOptions
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.targets.emulator.target import EmulatorTarget

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


@pytest.fixture(scope="module")
def target(artifacts, catalogue):
    emulator = EmulatorTarget("h200", artifacts, catalogue.include_dirs, 1, 20.0)
    yield emulator
    emulator.close()


@pytest.fixture
def command(tmp_path, monkeypatch, artifacts):
    """Runs a command, with the emulator that these tests share."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "cache").symlink_to(artifacts)
    monkeypatch.setenv("GREENFAST_DATA", str(data))
    return main.run


@pytest.fixture
def findings(tmp_path, target):
    def of(text: str, *words: str, **files: str) -> list[tuple[str, str | None]]:
        for name, content in files.items():
            (tmp_path / f"{name}.cuh").write_text(content)
        report = checked(text, *words).report
        return [(finding.kind, finding.where) for finding in report.findings]

    def checked(text: str, *words: str):
        file = tmp_path / "program.cu"
        file.write_text(text)
        return check_host_program(file, PlainOptions(words=words), target, is_strict=False)

    def program(file, *others):
        options = PlainOptions(others=others)
        return check_host_program(file, options, target, is_strict=False)

    of.checked, of.program = checked, program
    return of


@pytest.mark.parametrize(
    ("sign", "expected"), quick_first([("<=", ["out_of_bounds"]), ("<", [])], 1)
)
def test_a_program_s_own_data_are_checked(findings, sign, expected):
    assert [kind for kind, _ in findings(ADD, bound=BOUND.replace("SIGN", sign))] == expected
    assert [kind for kind, _ in findings(ADD, "77", bound=BOUND.replace("SIGN", sign))] == expected
    assert findings(ADD, "512", bound=BOUND.replace("SIGN", "<")) == []


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
                "which greenfast does not have): program.cu:4: 'no_such_function'",
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
