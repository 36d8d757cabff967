"""`greenfast import` of a kernel that needs scratch memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_import_kernel import run  # noqa: F401 (a fixture)

from greenfast.search.kernels.kernel_file import load_kernel

# The block that takes the last ticket adds the others' sums.
TOTAL = """#define threads 64
__global__ void total(const float* x, float* sums /* one a block, */, unsigned* ticket,
                      float* out, int n) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0.0f;
    __syncthreads();
    int i = blockIdx.x * threads + threadIdx.x;
    if (i < n) atomicAdd(&sum, x[i]);
    __syncthreads();
    if (threadIdx.x != 0) return;
    sums[blockIdx.x] = sum;
    __threadfence();
    if (atomicAdd(ticket, 1u) != gridDim.x - 1) return;
    __threadfence();
    float all = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) all += sums[b];
    *out = all;
}
"""
SUMS, TICKET = "sums:float32[ceil_div(n, threads)]:workspace", "ticket:int32[1]=zeros:workspace"


@pytest.fixture
def imported(run):  # noqa: F811
    """`imported(sums, ticket)`: the exit code and stderr of the import."""

    def command(sums=SUMS, ticket=TICKET):
        Path("total.cu").write_text(TOTAL)
        arguments = ("x:float32[n]", "out:float32[1]:out", "n:int32=500", sums, ticket)
        given = [word for each in arguments for word in ("--arg", each)]
        grid = ("--grid", "ceil_div(n, threads)", "--block", "threads")
        code, _, err = run("import", "total.cu", "--tune", "threads=32,64", *grid, *given)
        return code, err

    return command


def test_scratch_memory_is_a_workspace_whose_size_depends_on_parameters(imported):
    code, err = imported()
    assert code == 0, err
    kernel = load_kernel(Path("kernels/total"))
    assert [argument.name for argument in kernel.arguments] == ["x", "out", "n"]
    sums, ticket = kernel.templates[0].workspaces
    assert sums.bytes.whole({"n": 500, "threads": 32}) == 64 and not sums.zero_fill
    assert ticket.bytes.whole({}) == 4 and ticket.zero_fill
    text = Path("kernels/total/plain.cu.j2").read_text()
    assert "(const float* x, float* out, int n, float* sums, unsigned* ticket)" in text


@pytest.mark.slow
def test_a_launch_finds_zeros_in_scratch_memory_only_where_they_are_declared(imported, run):  # noqa: F811
    imported()
    trial = ("trial", "total", "--template", "plain", "--target", "emulator:h200")
    assert run(*trial, "--set", "threads=32")[0] == 0
    shutil.rmtree("kernels/total")
    imported(ticket="ticket:int32[1]:workspace")
    code, _, err = run(*trial)
    assert code == 2 and "if ticket must be zero before a launch, import it as" in err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sums": SUMS.replace("(n,", "(m,")}, "unknown name 'm'"),
        ({"ticket": TICKET.replace("zeros", "ones")}, "holds zeros or nothing before a launch"),
    ],
)
def test_scratch_memory_that_no_launch_has_is_refused(imported, given, sentence):
    code, err = imported(**given)
    assert code == 2 and sentence in err and not Path("kernels").exists()
