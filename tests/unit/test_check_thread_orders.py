"""`greenfast check` of kernels without races whose outputs depend on the order of the threads."""

from __future__ import annotations

import json

import pytest
from slow_cases import quick_first
from test_import_kernel import run  # noqa: F401

LOCK = """
__global__ void k(int* lock, int* last, const float* x) {
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) != 0) continue;
        __threadfence();
        *(volatile int*)last = threadIdx.x;
        __threadfence();
        atomicExch(lock, 0);
        done = true;
    }
}
"""
LIST = """
__global__ void k(int* count, int* list, const float* x) {
    if (x[threadIdx.x] > 0) list[atomicAdd(count, 1)] = threadIdx.x;
}
"""
# Another thread may count between the two atomics.
LOST = """
__global__ void k(int* other, int* bins, const float* x) {
    int* bin = bins + (x[threadIdx.x] > 0);
    int before = atomicAdd(bin, 0);
    atomicExch(bin, before + 1);
}
"""
LOST_IN_SHARED = """
__global__ void k(int* other, int* bins, const float* x) {
    __shared__ int own;
    if (threadIdx.x == 0) own = 0;
    __syncthreads();
    if (threadIdx.x > atomicMax(&own, 0)) atomicExch(&own, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) bins[0] = own;
}
"""
SUM = """
__global__ void k(float* sum, float* largest, const float* x) {
    atomicAdd(sum, x[threadIdx.x]);
    atomicMax((int*)largest, __float_as_int(fabsf(x[threadIdx.x])));
}
"""
COUNT = """
__global__ void k(int* bins, int* most, const float* x) {
    atomicMax(most, atomicAdd(&bins[x[threadIdx.x] > 0], 1));
}
"""


@pytest.fixture
def checked(run, tmp_path):  # noqa: F811
    """`checked(text, "a:int[1]=zeros", ...)`: exit code and report."""

    def check(text: str, *arguments: str, options: tuple[str, ...] = ()):
        (tmp_path / "k.cu").write_text(text)
        words = [word for each in arguments for word in ("--arg", each)]
        code, out, error = run("check", "k.cu", "--block", "64", *words, "--json", *options)
        assert code in (0, 1), error
        return code, json.loads(out)

    return check


@pytest.mark.parametrize(
    ("text", "arguments", "name"),
    quick_first(
        [
            (LOCK, ("lock:int[1]=zeros", "last:int[1]=zeros"), "last"),
            (LIST, ("count:int[1]=zeros", "list:int[64]=zeros"), "list"),
            (LOST, ("other:int[1]=zeros", "bins:int[2]=zeros"), "bins"),
            (LOST_IN_SHARED, ("other:int[1]=zeros", "bins:int[2]=zeros"), "bins"),
        ],
        2,
    ),
)
def test_an_output_that_atomics_decide_is_a_note_and_strictly_a_finding(
    checked, text, arguments, name
):
    code, report = checked(text, *arguments, "x:float[64]")
    assert code == 0 and not report["remarks"]
    (note,) = report["notes"]
    assert f"elements of {name} differ between orders" in note and "nothing races" in note
    code, report = checked(text, *arguments, "x:float[64]", options=("--strict",))
    assert code == 1 and [each["kind"] for each in report["findings"]] == ["order_dependent"]
    assert report["findings"][0]["reason"] == "wrong_values"


def test_sums_of_floats_only_round_and_counts_are_alike(checked):
    code, report = checked(
        SUM, "sum:float[1]=zeros", "largest:float[1]=zeros", "x:float[64]", options=("--strict",)
    )
    assert code == 0 and not report["notes"]
    (remark,) = report["remarks"]
    assert "1 of 1 elements of sum differ by rounding" in remark and "no defect" in remark
    arguments = ("bins:int[2]=zeros", "most:int[1]=zeros", "x:float[64]")
    code, report = checked(COUNT, *arguments, options=("--strict",))
    assert code == 0 and not report["notes"] and not report["remarks"]


def test_nothing_is_said_of_an_order_where_threads_race(checked):
    race = LIST.replace("atomicAdd(count, 1)", "(*count)++")
    arguments = ("count:int[1]=zeros", "list:int[64]=zeros", "x:float[64]")
    code, report = checked(race, *arguments)
    assert code == 1 and not report["notes"] and not report["remarks"]


# A host sets the count back before each call.
KEPT_LIST = """
__device__ int count;
__global__ void k(int* list, const float* x) {
    list[atomicAdd(&count, 1)] = x[threadIdx.x] > 0 || true;
}
"""


def test_what_a_host_resets_between_two_calls_is_not_called_twice(checked):
    code, report = checked(KEPT_LIST, "list:int[64]:out", "x:float[64]")
    assert code == 0 and report["findings"] == []
