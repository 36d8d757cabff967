"""README.md: its commands run in their order, with small budgets and without a GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from page_commands import Shell, commands_of
from service_home import Home

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
LINES = commands_of(README)
REPLAYED = "--target replay:mission-mma-h200"
SHORT = "--trials 2 --workload B=1,H=1,S_q=33,D=64,dtype=bf16"


@dataclass(frozen=True)
class Case:
    """How the test runs a line that it does not run as it stands."""

    begins: str  # the line, or its first words
    added: str = ""  # options; a later one replaces an earlier one
    code: int = 0
    said: str = ""  # in the output or on stderr
    slow: bool = False


CASES = (
    Case("greenfast doctor", slow=True),
    Case("greenfast check mine.cu", slow=True),
    Case("greenfast check program.cu", slow=True),
    Case("greenfast trial attention --template wmma --preset", slow=True),
    Case("greenfast trial attention --template wmma --set", "--workload small", slow=True),
    Case("greenfast check attention", slow=True),
    Case("greenfast probe attention", slow=True),
    Case(
        "greenfast search attention --workload mission --trials 60",
        f"{REPLAYED} --trials 12 --seed 1",
    ),
    Case("greenfast search --resume last", code=2, said="--extend N"),
    Case("greenfast search attention --workload B=8", SHORT, slow=True),
    Case("greenfast search attention --workloads mine.csv", "--trials 2", slow=True),
    Case("greenfast tune attention", "--trials 2", slow=True),
    Case("greenfast promote", code=2, said="was not timed again"),
    Case("greenfast judge", slow=True),
    Case("greenfast evolve", "--trials 2", slow=True),
    Case("greenfast explain SEARCH_ID/7", code=2, said="not rejected"),
    Case("greenfast search mysum", "--trials 2", slow=True),
    Case("greenfast import saxpy.cu", slow=True),
    Case("greenfast verify", slow=True),
    Case("greenfast profile", code=2, said="CUDA device"),
    Case("greenfast search attention --target replay:", "--trials 12"),
)
NOT_RUN = {
    "greenfast album": "it runs for a minute, and has tests of its own",
    "greenfast serve": "it never ends, and has tests of its own",
    "greenfast trace": "it needs PyTorch, and has tests of its own",
    "greenfast search attention --workload mission --target cuda:0": "it needs a GPU",
}
SCALE = """template <typename T, int threads>
__global__ void scale(const T* x, T* y) {
    int i = blockIdx.x * threads + threadIdx.x;
    if (i < 1024) y[i] = 2 * x[i];
}
"""
PROGRAM = """#include <cstdlib>
__global__ void twice(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
int main(int argc, char** argv) {
    int n = atoi(argv[1]);
    float* x;
    cudaMalloc(&x, n * sizeof(float));
    cudaMemset(x, 0, n * sizeof(float));
    twice<<<(n + 127) / 128, 128>>>(x, n);
}
"""
RMSNORM = """#include <cuda_fp16.h>
extern "C" __global__ void my_rmsnorm(
    const __half* x, const __half* residual, const __half* weight, __half* h, __half* y, int M,
    int N, float eps, long long xs, long long rs, long long hs, long long ys) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M) return;
    float sum = 0.0f;
    for (int i = 0; i < N; ++i) {
        __half added = __float2half(__half2float(x[row * xs + i]) +
                                    __half2float(residual[row * rs + i]));
        h[row * hs + i] = added;
        sum += __half2float(added) * __half2float(added);
    }
    float scale = 1.0f / sqrtf(sum / N + eps);
    for (int i = 0; i < N; ++i)
        y[row * ys + i] = __float2half(__half2float(h[row * hs + i]) * scale *
                                       __half2float(weight[i]));
}
"""
LAUNCH = 'grid = ["ceil_div(M, 32)"]\nblock = [32]\n[tiles]\ntile_rows = "32"\n'
LAUNCH += 'tile_columns = "8"\nkept_columns = "8"\n'
SAXPY = """#define block_size_x 128
__global__ void saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
SHAPES = "name,B,H,S_q,D\none,1,1,33,64\ntwo,1,2,16,64\n"


@pytest.fixture
def shell(tmp_path, artifacts) -> Iterator[Shell]:
    """A folder with the files that the page's reader has."""
    home = Home(tmp_path / "home", artifacts)
    (home.data / "saxpy.cu").write_text(SAXPY)
    (home.data / "program.cu").write_text(PROGRAM)
    (home.data / "launch.toml").write_text(LAUNCH)
    (home.data / "mine.csv").write_text(SHAPES)
    (home.data / "mine.toml").write_text(
        '[[workloads]]\nname = "call1"\ndims = { B = 1, H = 1, S_q = 33, D = 64 }\n'
    )
    (home.data / "convolution_A4000_T4.json").write_text(
        '{"results": [' + ", ".join(
            f'{{"configuration": {{"block_size_x": {size}}}, "times": {{"runtimes": [{size}.5]}},'
            f' "invalidity": "correct", "measurements": [{{"name": "time", "value": {size}.5,'
            ' "unit": "ms"}]}'
            for size in (16, 32, 64)
        ) + '], "schema_version": "1.0.0"}'
    )  # fmt: skip
    # `python` of a proposer is the interpreter of the tests.
    home.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    yield Shell(home)
    home.end_all()


def case_of(line: str) -> Case:
    return next((case for case in CASES if line.startswith(case.begins)), Case(line))


def test_every_case_is_a_line_of_the_page():
    for begins in (*(case.begins for case in CASES), *NOT_RUN):
        assert any(line.startswith(begins) for line in LINES), begins


def run_lines(shell: Shell, slow: bool) -> list[str]:
    """Run the page's lines; the faults."""
    faults, search_id = [], ""
    for line in LINES:
        case = case_of(line)
        if line.startswith(tuple(NOT_RUN)) or (case.slow and not slow):
            continue
        source = RMSNORM if line.startswith("greenfast judge") else SCALE
        (shell.home.data / "mine.cu").write_text(source)
        # An uncompressed file is read as well.
        run = f"{line} {case.added}".replace(".json.gz", ".json").replace("SEARCH_ID", search_id)
        ended = shell.run(run.strip())
        if ended.code != case.code or case.said not in ended.out + ended.err:
            faults.append(f"{run}\n  ended with {ended.code}: {(ended.err or ended.out)[-600:]}")
        if not search_id and line.startswith("greenfast search"):
            search_id = shell.home.run("searches", "--json").json[0]["id"]
    return faults


def test_the_quick_commands_of_the_readme_run(shell):
    assert run_lines(shell, slow=False) == []


@pytest.mark.slow
def test_every_command_of_the_readme_runs(shell):
    assert run_lines(shell, slow=True) == []
