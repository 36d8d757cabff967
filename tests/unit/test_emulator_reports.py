"""What the emulator catches and how it says it: kind, threads and line, and no other run harmed."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from emulator_harness import ADD, Kernel, kinds, prepared, values
from slow_cases import quick_first

from greenfast.search.errors import Fault, UsageError
from greenfast.search.targets.emulator.evidence import failure_of
from greenfast.search.targets.emulator.execute import ScalarArgument, execute, interrupt


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


def test_a_missing_barrier_shows_as_a_different_result_in_another_order(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = tile[63 - threadIdx.x];
}""",
    )
    blank = np.zeros(64, np.float32)
    forward, reverse = (
        values(kernel({}, {"y": blank}, block=64, order=order), "y")
        for order in ("forward", "reverse")
    )
    assert not np.array_equal(forward, reverse, equal_nan=True)
    assert np.isnan(forward).any() and np.isnan(reverse).any()  # read before written: poison


def test_a_deadlock_names_its_threads_and_lines(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y) {
    if (threadIdx.x < 32) {
        __syncwarp(threadIdx.x == 3 ? 0x8u : 0xffffffffu);
    }
    __syncthreads();
    y[threadIdx.x] = 0;
}""",
    )
    result = kernel({}, {"y": np.zeros(64, np.float32)}, block=64)
    assert result.status == "fault" and kinds(result) == ["deadlock"]
    sentence = result.faults[0].sentence
    assert (
        "__syncwarp with mask 0xffffffff at test.cu:4" in sentence
        and "64 of 64 threads" in sentence
    )


def test_exited_threads_are_not_waited_for(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    y[threadIdx.x] = __shfl_sync(0xffffffffu, float(threadIdx.x), 0);
    __syncwarp();
}""",
    )
    np.testing.assert_array_equal(
        values(kernel({}, {"y": np.zeros(40, np.float32)}, 40, block=64), "y"),
        np.repeat([0, 32], [32, 8]),
    )


@pytest.mark.parametrize(
    "body, words",
    [
        (
            "if (threadIdx.x < 16) __syncwarp(); else __shfl_sync(0xffffffffu, 1, 0);",
            "while other lanes",
        ),
        ("__syncwarp(0xfffffffeu);", "does not name the lane itself"),
        (
            "if (threadIdx.x < 32) __syncthreads(); else __syncthreads_count(1);",
            "others of its block wait in the __syncthreads",
        ),
        (
            "if (threadIdx.x < 32) __syncthreads();\n else __syncthreads();",
            "of line 3 while others of its block wait in the __sync",
        ),
    ],
)
def test_divergent_collectives_are_reported(emulator, body, words):
    result = Kernel(
        emulator, f'extern "C" __global__ void k(float* y) {{\n{body}\ny[threadIdx.x] = 1;\n}}'
    )({}, {"y": np.zeros(64, np.float32)}, block=64)
    assert result.status == "fault" and kinds(result) == ["divergence"]
    assert words in result.faults[0].sentence


def test_a_matrix_operation_that_some_lanes_skip_is_divergence(emulator):
    kernel = Kernel(
        emulator,
        """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half* a, float* c) {
    fragment<matrix_a, 16, 16, 16, half, row_major> tile_a;
    fragment<matrix_b, 16, 16, 16, half, row_major> tile_b;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    fill_fragment(tile_b, 0.0f);
    if (threadIdx.x != 7) load_matrix_sync(tile_a, a, 16);
    mma_sync(sum, tile_a, tile_b, sum);
    store_matrix_sync(c, sum, 16, mem_row_major);
}""",
    )
    result = kernel({"a": np.zeros(256, np.float16)}, {"c": np.zeros(256, np.float32)})
    assert kinds(result) == ["divergence"] and "lane 7" in result.faults[0].sentence


@pytest.mark.parametrize(
    "access, words",
    [
        ("*reinterpret_cast<float4*>(y + 1) = make_float4(0, 0, 0, 0);", "multiple of 16"),
        ("*reinterpret_cast<float2*>(y + 1) = make_float2(0, 0);", "multiple of 8"),
        (
            "atomicAdd(reinterpret_cast<unsigned*>(reinterpret_cast<char*>(y) + 2), 1u);",
            "multiple of 4",
        ),
        ("GF_DYNAMIC_SHARED(float, s); gf::async_copy<8>(s + 1, y);", "not multiples of 8"),
    ],
)
def test_misaligned_accesses_are_reported_with_their_line(emulator, access, words):
    kernel = Kernel(
        emulator,
        f"""
#include "gf/async_copy.cuh"
#include "gf/shared.cuh"
extern "C" __global__ void k(float* y) {{
    {access}
}}""",
    )
    result = kernel({}, {"y": np.zeros(64, np.float32)}, block=1, smem=64)
    assert kinds(result) == ["misaligned"] and words in result.faults[0].sentence
    assert result.faults[0].where == ("test.cu", 5)


def test_a_verdicts_sentence_names_the_line_and_no_caller_of_the_entry(emulator):
    kernel = Kernel(
        emulator,
        """extern "C" __global__ void k(float* y) {
    for (int i = 0; i < 4; ++i)
        y[i << 10] = i;
}""",
    )
    result = kernel({}, {"y": np.zeros(2, np.float32)}, block=1)
    failure = failure_of(result, 60.0)
    assert failure is not None and failure.sentence.endswith("past the end of 'y' (test.cu:3)"), (
        failure
    )


def test_a_write_just_outside_a_buffer_damages_its_canary(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y, int n) {
    y[int(threadIdx.x) - 2] = 1;
    y[n + threadIdx.x] = 2;
}""",
    )
    result = kernel({}, {"y": np.zeros(30, np.float32)}, 30, block=2)
    assert result.status == "fault" and kinds(result) == ["out_of_bounds", "out_of_bounds"]
    assert [
        (damage.buffer, damage.side, damage.damaged_bytes, damage.first_offset_bytes)
        for damage in result.canary
    ] == [
        ("y", "before", 8, 1),
        ("y", "behind", 8, 0),
    ]


def test_a_written_input_is_reported(emulator):
    kernel = Kernel(
        emulator, 'extern "C" __global__ void k(float* x, float* y) { x[3] = y[0] = 5; }'
    )
    result = kernel({"x": np.zeros(8, np.float32)}, {"y": np.zeros(1, np.float32)}, block=1)
    assert result.input_changed == ("x",) and kinds(result) == ["input_changed"]


WILD = """
extern "C" __global__ void k(float* y, long long offset) {
    if (blockIdx.x == 2 && threadIdx.x == 33)
        y[offset] = 1;
    y[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize(
    "offset, kind, words",
    [
        (64 + 12, "out_of_bounds", "48 bytes past the end of 'y'"),
        (1 << 45, "device_fault", "far from every buffer"),
    ],
)
def test_a_wild_access_is_named_and_other_runs_are_unharmed(emulator, offset, kind, words):
    kernel = Kernel(emulator, WILD)
    runs = [
        kernel.job(
            {},
            {"y": np.zeros(64, np.float32)},
            (ScalarArgument("int64", position),),
            grid=4,
            block=64,
            name=name,
        )
        for name, position in (("first", 0), ("wild", offset), ("last", 1))
    ]
    first, wild, last = kernel.run(*runs)
    assert values(first, "y").all() and values(last, "y").all()
    assert wild.status == "crash" and kinds(wild) == [kind]
    fault = wild.faults[0]
    assert words in fault.sentence
    assert (fault.block, fault.thread, fault.where) == ((2, 0, 0), (33, 0, 0), ("test.cu", 4))


@pytest.mark.slow
def test_two_workers_that_crash_at_once_are_one_report(emulator):
    kernel = Kernel(
        emulator, 'extern "C" __global__ void k(float* y, long long offset) { y[offset] = 1; }'
    )
    runs = [
        kernel.job(
            {},
            {"y": np.zeros(64, np.float32)},
            (ScalarArgument("int64", 64 + 12),),
            grid=8,
            name=str(number),
        )
        for number in range(40)
    ]
    results = kernel.run(*runs)
    assert [(result.status, kinds(result)) for result in results] == [
        ("crash", ["out_of_bounds"])
    ] * len(runs)


@pytest.mark.parametrize(
    "statement, kind, words",
    quick_first(
        [
            (
                (
                    "float local[40000]; for (int i = 0; i < n; i++) local[i * 7 % 40000] = i; "
                    "y[0] = local[n];"
                ),
                "device_fault",
                "local memory exceeds",
            ),
            ("if (n) __trap();", "device_fault", "__trap()"),
            ("assert(n == 0);", "device_fault", "assert(n == 0)"),
            (
                "GF_DYNAMIC_SHARED(float, s); s[16 + n] = 1;",
                "out_of_bounds",
                "past the end of the 64 bytes of dynamic shared",
            ),
            (
                "GF_DYNAMIC_SHARED(float, s); s[n - 1001] = 1;",
                "out_of_bounds",
                "just outside dynamic shared memory",
            ),
            ("*static_cast<volatile float*>(nullptr) = 1;", "device_fault", "null pointer"),
        ],
        3,
    ),
)
def test_other_ways_to_die_are_named(emulator, statement, kind, words):
    kernel = Kernel(
        emulator,
        f"""
#include "gf/shared.cuh"
extern "C" __global__ void k(float* y, int n) {{
    {statement}
}}""",
    )
    result = kernel({}, {"y": np.zeros(64, np.float32)}, 1000, block=1, smem=64)
    assert result.status in ("fault", "crash") and kinds(result) == [kind]
    assert words in result.faults[0].sentence


@pytest.mark.slow
def test_an_endless_loop_is_killed_and_earlier_results_are_kept(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(int* y, int turns) {
    volatile int turn = 0;
    while (turn != turns) turn = turn + (turns > 0);
    y[threadIdx.x] = turns;
}""",
    )
    jobs = [
        kernel.job({}, {"y": np.zeros(32, np.int32)}, (turns,), name=str(turns))
        for turns in (5, -1, 7)
    ]
    begin = time.monotonic()
    good, endless, after = kernel.run(*jobs, deadline_s=1.0)
    assert time.monotonic() - begin < 30
    assert values(good, "y", np.int32).tolist() == [5] * 32
    assert endless.status == "timeout" and kinds(endless) == ["timeout"]
    assert after.status == "not_run"


def test_a_printf_flood_and_forged_reports_are_harmless(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y) {
    for (int i = 0; i < 1000; i++) printf("{\\"event\\":\\"end\\",\\"run\\":%d}\\n", i);
    y[threadIdx.x] = 1;
}""",
    )
    result = kernel({}, {"y": np.zeros(256, np.float32)}, grid=4, block=256)
    assert values(result, "y").all() and result.printf_calls == 1_024_000


def test_outputs_start_as_poison(emulator):
    kernel = Kernel(emulator, 'extern "C" __global__ void k(float* y) { y[0] = 1; }')
    assert np.isnan(values(kernel({}, {"y": np.zeros(5, np.float32)}, block=1), "y")[1:]).all()


@pytest.mark.parametrize("memory_bytes", [20_000_000, 300_000_000])
def test_too_little_memory_is_a_fault_of_ours(emulator, memory_bytes):
    kernel = Kernel(emulator, ADD)
    large = np.zeros(25_000_000, np.float32)
    run = kernel.job({"a": large, "b": large}, {"c": large}, (4,))
    with pytest.raises(Fault):
        execute(emulator, kernel.module, [run], workers=2, deadline_s=20, memory_bytes=memory_bytes)


def test_an_interrupted_run_is_a_fault_of_ours(emulator):
    kernel = Kernel(
        emulator, 'extern "C" __global__ void k(volatile int* y) { while (y[0] != 5) {} }'
    )
    timer = threading.Timer(0.3, interrupt)
    timer.start()
    with pytest.raises(Fault):
        kernel({}, {"y": np.zeros(4, np.int32)})
    timer.join()


def test_runs_that_make_no_sense_are_refused(emulator):
    kernel = Kernel(emulator, ADD)
    x = np.zeros(4, np.float32)
    for options, words in (
        ({"order": "sideways"}, "unknown order"),
        ({"block": 2000}, "1 to 1024 threads"),
        ({"count": True}, "flavour counted"),
    ):
        with pytest.raises(UsageError, match=words):
            kernel({"a": x, "b": x}, {"c": x}, 4, **options)
