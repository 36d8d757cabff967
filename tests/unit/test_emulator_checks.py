"""Checked runs report each missing order of two accesses in every schedule, with no false alarm."""

from __future__ import annotations

import numpy as np
import pytest
from checked_runs import HEAD, SHARED, checked, lines
from emulator_harness import ORDERS, Kernel, only_right, prepared
from slow_cases import quick_first


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize("barrier", ["", "__syncwarp();"])
def test_a_missing_barrier_is_a_race_of_both_lines(emulator, barrier):
    for result in checked(
        emulator, SHARED + f"s[t] = a[t];\n{barrier}\nc[t] = s[63 - t];\n}}", block=64
    ):
        kinds = {finding.kind for finding in result.findings}
        assert "race" in kinds and kinds <= {"race", "uninitialised"}
        assert lines(result, "race") == {(4, 6)}


def test_the_sentence_names_threads_bytes_and_both_lines(emulator):
    text = SHARED + "s[t] = a[t]; if (t < 32) return;\n\nc[t] = s[63 - t];\n}"
    result = checked(emulator, text, block=64, orders=("forward",))[0]
    (race,) = (finding for finding in result.findings if finding.kind == "race")
    assert race.sentence == (
        "thread 32 reads 4 bytes of shared memory at +124 (test.cu:6) while thread 31's write "
        "(test.cu:4) is not "
        "ordered before it: no barrier between them"
    )
    assert (race.memory, race.offset_bytes, race.count, race.where, race.other_where) == (
        "shared",
        124,
        32,
        ("test.cu", 6),
        ("test.cu", 4),
    )
    assert (race.block, race.thread, race.other_thread) == ((0, 0, 0), (32, 0, 0), (31, 0, 0))


@pytest.mark.parametrize(
    "exchange, races", [("", True), ("__shfl_sync(~0u, 1, 0);", True), ("__syncwarp();", False)]
)
def test_lanes_are_ordered_by_syncwarp_and_by_no_shuffle(emulator, exchange, races):
    text = SHARED + f"s[t] = a[t];\n{exchange}\nc[t] = s[31 - t];\n}}"
    for result in checked(emulator, text):
        assert lines(result, "race") == ({(4, 6)} if races else set()), result.findings


@pytest.mark.parametrize(
    "mask, races", [("0xffffu << (t & 16)", False), ("0xffu << (t & 24)", True)]
)
def test_a_partial_syncwarp_orders_the_lanes_of_its_mask(emulator, mask, races):
    text = SHARED + f"s[t] = a[t];\n__syncwarp({mask});\nc[t] = s[t ^ 15];\n}}"
    for result in checked(emulator, text):
        assert lines(result, "race") == ({(4, 6)} if races else set()), result.findings


def test_what_a_lane_learnt_from_half_its_warp_it_passes_on(emulator):
    text = SHARED + (
        "s[t] = a[t];\n__syncwarp(0xffffu << (t & 16));\n"
        "if (t < 8 || t >= 16 && t < 24) __syncwarp(0x00ff00ff);\nif (t == 0) c[0] = s[31];\n}"
    )
    only_right(checked(emulator, text))


def test_lanes_that_store_one_value_together_do_not_race(emulator):
    only_right(checked(emulator, SHARED + "s[0] = 7.0f;\n__syncwarp();\nc[t] = s[0];\n}"))
    for result in checked(emulator, SHARED + "s[0] = a[t];\n__syncwarp();\nc[t] = s[0];\n}"):
        assert lines(result, "race") == {(4, 4)}, result.findings
        assert "write" in result.findings[0].sentence


def test_neighbouring_bytes_of_a_word_are_not_one_another(emulator):
    text = HEAD + (
        "__shared__ unsigned char s[64];\nconst int t = threadIdx.x;\n"
        "s[t] = (unsigned char)t;\nc[t] = s[t];\n"
        "__syncthreads();\nc[t] += *(unsigned*)(s + t / 4 * 4);\n}"
    )
    only_right(checked(emulator, text, block=64))
    for result in checked(emulator, text.replace("__syncthreads();", ""), block=64):
        assert "race" in {finding.kind for finding in result.findings}


def test_blocks_race_on_global_memory(emulator):
    text = HEAD + "c[threadIdx.x] = a[threadIdx.x];\nif (blockIdx.x == 1) c[0] = 2;\n}"
    for result in checked(emulator, text, grid=2):
        assert {finding.kind for finding in result.findings} == {"race"}
        line_pairs = lines(result, "race")  # (3, 3): the threads of block 1 among themselves
        assert line_pairs & {(2, 2), (2, 3)} and line_pairs <= {(2, 2), (2, 3), (3, 3)}
        assert {finding.memory for finding in result.findings} == {"global:c"}


LAST_BLOCK = """
extern "C" __global__ void k(const float* a, float* partial, float* c, unsigned* count) {
    __shared__ bool last;
    const int t = threadIdx.x;
    partial[blockIdx.x * 32 + t] = a[t];
    %s
    __syncthreads();
    if (t == 0) { last = atomicAdd(count, 1) %% gridDim.x == gridDim.x - 1; %s }
    __syncthreads();
    if (!last) return;
    %s
    float sum = 0;
    for (int block = 0; block < gridDim.x; block++) sum += %s;
    c[t] = sum;
}
"""
FENCE, BLOCK_FENCE = "__threadfence();", "__threadfence_block();"
PLAIN = "partial[block * 32 + t]"


@pytest.mark.parametrize(
    "writer, ticket, reader, read, races",
    quick_first(
        [
            (FENCE, FENCE, "", PLAIN, False),  # what thread 0 learnt, the barrier hands on
            (FENCE, "", "", PLAIN, True),
            ("", FENCE, FENCE, PLAIN, True),
            (FENCE, "", "", f"__ldcg(&{PLAIN})", False),  # these go by the first-level cache
            (FENCE, "", FENCE, PLAIN, False),
            (BLOCK_FENCE, "", FENCE, PLAIN, True),
            (FENCE, "", BLOCK_FENCE, PLAIN, True),
            (FENCE, "", "", "((volatile float*)partial)[block * 32 + t]", False),
            ("", "", "", "((volatile float*)partial)[block * 32 + t]", True),
        ],
        2,
    ),
)
def test_the_last_block_may_read_the_others_work_after_a_fence_on_either_side(
    emulator, writer, ticket, reader, read, races
):
    outputs = {"partial": np.zeros(256, np.float32), "c": np.zeros(32, np.float32)}
    kernel = Kernel(emulator, LAST_BLOCK % (writer, ticket, reader, read), flavour="checked")
    for order in ORDERS:
        job = kernel.job({"a": np.ones(32, np.float32)}, outputs, grid=8, check=True, order=order)
        count = type(job.buffers[0])("count", "workspace", np.zeros(4, np.uint8), "zero")
        pointer = type(job.arguments[0])("count")
        job = type(job)(
            job.name,
            job.launches,
            (*job.buffers, count),
            (*job.arguments, pointer),
            order,
            check=True,
        )
        (result,) = kernel.run(job)
        assert lines(result, "race") == ({(5, 13)} if races else set()), result.findings
        assert races or not result.findings
        if races:
            has_no_fence = "the reading side has no fence" in result.findings[0].sentence
            assert has_no_fence == (writer == FENCE), result.findings[0].sentence


HANDED_OVER = """
extern "C" __global__ void k(const float* a, float* c) {
    __shared__ float s[32];
    __shared__ unsigned flag;
    const int t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t < 32) {
        s[t] = a[t];
        __threadfence_block();
        atomicAdd(&flag, 1);
    } else {
        while (atomicAdd(&flag, 0) < 32) { }
        %s
        c[t - 32] = s[63 - t];
    }
}
"""


def test_a_flag_inside_a_block_needs_a_fence_on_either_side_too(emulator):
    only_right(checked(emulator, HANDED_OVER % BLOCK_FENCE, block=64))
    for result in checked(emulator, HANDED_OVER % "", block=64):
        assert lines(result, "race") == {(9, 15)}, result.findings
        assert "the reading side has no fence" in result.findings[0].sentence


def test_a_misaligned_vector_and_a_barrier_for_some(emulator):
    vector = HEAD + "*(float4*)(c + 1) = *(const float4*)a;\n}"
    barrier = SHARED + "if (t < 32) __syncthreads();\n__syncthreads();\n}"
    for result in checked(emulator, vector):
        assert [(finding.kind, finding.where) for finding in result.findings] == [
            ("misaligned", ("test.cu", 2))
        ]
    for result in checked(emulator, barrier, block=64):
        assert {finding.kind for finding in result.findings} == {"divergence"}


PRODUCER = """
#include "gf/named_barrier.cuh"
extern "C" __global__ void k(const float* a, float* c) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    if (t < 64) {
        s[t] = a[t];
        %s
    } else if (t < 96) {
        %s
        c[t - 64] = s[t - 64] + s[t - 32];
    }
}
"""
ARRIVE, AWAIT = "gf::named_barrier_arrive(1, 96);", "gf::named_barrier_sync(1, 96);"


def test_a_named_barrier_orders_those_who_arrive_before_those_who_wait(emulator):
    for first in (ARRIVE, AWAIT):
        only_right(checked(emulator, PRODUCER % (first, AWAIT), block=128))
    assert np.array_equal(
        checked(emulator, PRODUCER % (ARRIVE, AWAIT), block=128)[0]
        .outputs["c"]
        .view(np.float32)[:32],
        np.arange(1, 33) + np.arange(33, 65),
    )
    for result in checked(emulator, PRODUCER % (AWAIT, ARRIVE), block=128):
        assert lines(result, "race") == {(7, 11)}, result.findings


def test_a_wrong_named_barrier_count_says_who_waits_where(emulator):
    for result in checked(
        emulator, (PRODUCER % (ARRIVE, AWAIT)).replace("1, 96)", "1, 128)"), block=128
    ):
        (deadlock,) = (finding for finding in result.findings if finding.kind == "deadlock")
        assert (
            "named barrier 1, to which 96 of 128 threads came" in deadlock.sentence
            and "test.cu:10" in deadlock.sentence
        )
    for result in checked(emulator, PRODUCER % (ARRIVE, AWAIT.replace("96", "64")), block=128):
        assert {finding.kind for finding in result.findings} == {"divergence"}
