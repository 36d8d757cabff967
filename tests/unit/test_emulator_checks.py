"""Checked runs report each defect with kind and line in every schedule, without false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, only_right, prepared


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


def checked(emulator, text, inputs=None, outputs=None, *, orders=ORDERS, **options):
    """Each order's result of a kernel; its arguments are a and c, 64 floats each, by default."""
    kernel = Kernel(emulator, text, flavour="checked")
    inputs = {"a": np.arange(1, 65, dtype=np.float32)} if inputs is None else inputs
    outputs = {"c": np.zeros(64, np.float32)} if outputs is None else outputs
    jobs = [
        kernel.job(inputs, outputs, check=True, order=order, name=order, **options)
        for order in orders
    ]
    return kernel.run(*jobs, deadline_s=5.0)


def lines(result, kind):
    """The line pairs of one kind, without the file, smaller first."""
    findings = [finding for finding in result.findings if finding.kind == kind]
    return {
        tuple(sorted(where[1] for where in (finding.where, finding.other_where) if where))
        for finding in findings
    }


HEAD = 'extern "C" __global__ void k(const float* a, float* c) {\n'
SHARED = HEAD + "__shared__ float s[64];\nconst int t = threadIdx.x;\n"


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


def test_reads_of_what_nobody_wrote(emulator):
    text = SHARED + "if (t != 5) s[t] = a[t];\n__syncthreads();\nc[t] = s[t];\n}"
    for result in checked(emulator, text, block=64):
        (finding,) = result.findings
        assert (finding.kind, finding.where, finding.offset_bytes, finding.count) == (
            "uninitialised",
            ("test.cu", 6),
            20,
            1,
        )
        assert finding.thread == (5, 0, 0) and finding.other_where is None


def test_an_output_is_not_read_before_it_is_written(emulator):
    for result in checked(emulator, HEAD + "c[threadIdx.x] += a[threadIdx.x];\n}"):
        (finding,) = result.findings
        assert (finding.kind, finding.where, finding.memory, finding.count) == (
            "uninitialised",
            ("test.cu", 2),
            "global:c",
            32,
        )


DYNAMIC = (
    '#include "gf/shared.cuh"\n'
    + HEAD
    + "GF_DYNAMIC_SHARED(float, s);\nconst int t = threadIdx.x;\n"
)


def test_shared_memory_ends_exactly_where_the_launch_says(emulator):
    text = DYNAMIC + "s[t] = a[t];\nc[t] = s[t];\n}"
    only_right(checked(emulator, text, smem=128))
    for result in checked(emulator, text, smem=124):
        finding = result.findings[0]
        assert (finding.kind, finding.where, finding.offset_bytes) == (
            "out_of_bounds",
            ("test.cu", 5),
            124,
        )
        assert "0 bytes past the end of the 124 bytes of dynamic shared memory" in finding.sentence


def test_static_shared_memory_has_an_end_too(emulator):
    by_index, by_pointer = "s[t + int(a[39])]", "*(s + t + int(a[39]))"
    for reading, phrase in (
        (by_index, "of an array of type 'float [64]'"),
        (by_pointer, "past the end of the 256 bytes of static shared memory"),
    ):
        text = SHARED + f"s[t] = a[t];\n__syncthreads();\nc[t] = {reading};\n}}"
        for result in checked(emulator, text, block=64):
            outside = [finding for finding in result.findings if finding.kind == "out_of_bounds"]
            assert [finding.where for finding in outside] == [("test.cu", 6)], result.findings
            assert phrase in outside[0].sentence


def test_a_threads_own_array_has_an_end_too(emulator):
    text = (
        HEAD
        + "float own[4] = {};\nown[3 + int(a[39])] = a[threadIdx.x];\nc[threadIdx.x] = own[3];\n}"
    )
    for result in checked(emulator, text):
        finding = result.findings[0]
        assert (finding.kind, finding.where) == ("out_of_bounds", ("test.cu", 3))
        assert "of an array of type 'float [4]'" in finding.sentence


@pytest.mark.parametrize(("end", "alarm"), [(4, False), (5, True)])
def test_a_class_element_past_a_threads_own_array_is_seen_where_it_is_assigned(
    emulator, end, alarm
):
    """Assignment takes an address, so the check of indices allows one element past the end."""
    text = (
        "#include <cuda_fp16.h>\n" + HEAD + "struct { __half element[4]; } own;\n"
        f"for (int e = 0; e < {end} + int(a[0]) - 1; ++e)\n"
        "    own.element[e] = __float2half_rn(a[e]);\n"
        "c[threadIdx.x] = __half2float(own.element[threadIdx.x % 4]);\n}"
    )
    for result in checked(emulator, text):
        assert lines(result, "out_of_bounds") == ({(5,)} if alarm else set()), result.findings


@pytest.mark.parametrize(
    "index, owner",
    [("t + 1", "0 bytes past the end of 'a'"), ("t - 1", "4 bytes before the start of 'a'")],
)
def test_a_read_beside_a_buffer_names_it_and_the_distance(emulator, index, owner):
    text = HEAD + f"const int t = threadIdx.x;\nc[t] = a[{index}];\n}}"
    for result in checked(emulator, text, block=64):
        finding = result.findings[0]
        assert (finding.kind, finding.where, finding.memory) == (
            "out_of_bounds",
            ("test.cu", 3),
            "global:a",
        )
        assert owner in finding.sentence


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
    [
        (FENCE, FENCE, "", PLAIN, False),  # what thread 0 learnt, the barrier hands on
        (FENCE, "", FENCE, PLAIN, False),
        (FENCE, "", "", PLAIN, True),
        ("", FENCE, FENCE, PLAIN, True),
        (BLOCK_FENCE, "", FENCE, PLAIN, True),
        (FENCE, "", BLOCK_FENCE, PLAIN, True),
        (FENCE, "", "", f"__ldcg(&{PLAIN})", False),  # these go by the first-level cache
        (FENCE, "", "", "((volatile float*)partial)[block * 32 + t]", False),
        ("", "", "", "((volatile float*)partial)[block * 32 + t]", True),
    ],
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


COPY = """
#include "gf/async_copy.cuh"
#include "gf/shared.cuh"
extern "C" __global__ void k(const float* a, float* c) {
    GF_DYNAMIC_SHARED(float, s);
    const int t = threadIdx.x;
    gf::async_copy<4>(s + t, a + t);
    gf::async_copy_commit();
    %s
    c[t] = s[%s];
}
"""
WAIT, BARRIER = "gf::async_copy_wait<0>();", "__syncthreads();"


def test_a_copy_is_there_after_the_wait_and_for_others_after_a_barrier(emulator):
    only_right(checked(emulator, COPY % (WAIT, "t"), block=64, smem=256))
    only_right(checked(emulator, COPY % (WAIT + BARRIER, "63 - t"), block=64, smem=256))


@pytest.mark.parametrize(
    "between, index, waited",
    [
        ("", "t", False),
        (BARRIER, "t", False),
        (BARRIER, "63 - t", False),
        (WAIT, "63 - t", True),
        ("gf::async_copy_wait<1>();" + BARRIER, "t", False),
    ],
)
def test_a_read_of_a_copy_in_flight(emulator, between, index, waited):
    for result in checked(emulator, COPY % (between, index), block=64, smem=256):
        assert lines(result, "in_flight_read") == {(7, 10)}, result.findings
        assert lines(result, "unwaited_copy") == (set() if waited else {(7,)})


def test_a_copy_must_not_overtake_the_readers_of_its_destination(emulator):
    text = COPY % (WAIT + BARRIER, "63 - t")
    text = text.replace("    c[t]", "    gf::async_copy<4>(s + t, a);\n    c[t]")
    text = text.replace("];\n}", f"];\n    gf::async_copy_commit(); {WAIT}\n}}")
    for result in checked(emulator, text, block=64, smem=256):
        assert {finding.kind for finding in result.findings} <= {"race", "in_flight_read"}
        assert lines(result, "race") | lines(result, "in_flight_read") == {(10, 11)}, (
            result.findings
        )


STORE_LOAD = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const __half* a, float* c) {
    __shared__ alignas(32) float s[256];
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 1.0f);
    store_matrix_sync(s, sum, 16, mem_row_major);
    %s
    c[threadIdx.x] = s[threadIdx.x];
}
"""


def test_a_warp_waits_for_its_own_matrix_store(emulator):
    only_right(checked(emulator, STORE_LOAD % "__syncwarp();"))
    for result in checked(emulator, STORE_LOAD % ""):
        assert {finding.kind for finding in result.findings} <= {"race", "uninitialised"}
        assert lines(result, "race") == {(8, 10)}, result.findings


WIDTHS = (
    HEAD
    + """
__shared__ alignas(16) float s[256];
const int t = threadIdx.x, other = t ^ %d;
__int128* const vectors = reinterpret_cast<__int128*>(s);
%s;
%s
%s;
}
"""
)
VECTOR_WRITE, SCALAR_WRITE = "vectors[t] = t", "for (int i = 0; i < 4; i++) s[t * 4 + i] = a[t]"
VECTOR_READ, SCALAR_READ = (
    "const __int128 v = vectors[other]; c[t] = int(v ^ v >> 64)",
    "c[t] = s[other * 4 + 1]",
)
VECTOR_OVERWRITE, SCALAR_OVERWRITE = "vectors[other] = 9 + t", "s[other * 4 + 3] = a[t]"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (VECTOR_WRITE, SCALAR_READ),
        (VECTOR_WRITE, SCALAR_OVERWRITE),
        (SCALAR_WRITE, VECTOR_READ),
        (SCALAR_WRITE, VECTOR_OVERWRITE),
        pytest.param(VECTOR_WRITE, VECTOR_READ, marks=pytest.mark.slow),
        pytest.param(VECTOR_WRITE, VECTOR_OVERWRITE, marks=pytest.mark.slow),
        pytest.param(SCALAR_WRITE, SCALAR_READ, marks=pytest.mark.slow),
        pytest.param(SCALAR_WRITE, SCALAR_OVERWRITE, marks=pytest.mark.slow),
    ],
)
def test_accesses_of_different_widths_meet(emulator, first, then):
    """Between lanes and between warps; an order of one kind does not imply the other."""
    for distance, between, ordered in (
        (1, "", False),
        (1, "__syncwarp();", True),
        (32, "__syncwarp();", False),
        (32, "__syncthreads();", True),
        (0, "", True),
        (1, "__syncwarp(3u << (t & 30));", True),
    ):
        for result in checked(emulator, WIDTHS % (distance, first, between, then), block=64):
            expected = set() if ordered else {(6, 8)}
            assert lines(result, "race") == expected, (distance, between, result.findings)
            assert not ordered or not result.findings


def test_a_vector_read_is_not_overtaken_by_a_write(emulator):
    text = WIDTHS % (
        1,
        VECTOR_WRITE + "; __syncthreads(); " + VECTOR_READ,
        "%s",
        SCALAR_OVERWRITE.replace("other", "t"),
    )
    only_right(checked(emulator, text % "__syncwarp();", block=64))
    for result in checked(emulator, text % "", block=64):
        assert lines(result, "race") == {(6, 8)}, result.findings


MATRICES = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const __half* a, float* c) {
    __shared__ alignas(32) float s[2][256];
    const int t = threadIdx.x, warp = t / 32;
    fragment<accumulator, 16, 16, 16, float> sum;
    for (int i = t; i < 256; i += 64) s[0][i] = s[1][i] = 1.0f;
    __syncthreads();
    %s
    %s
    %s
    __syncthreads();
    c[t] = s[0][t];
}
"""
LOAD, STORE = (
    "load_matrix_sync(sum, s[warp], 16, mem_row_major);",
    "store_matrix_sync(s[warp], sum, 16, mem_row_major);",
)
ELSEWHERE = "store_matrix_sync(s[warp], sum, 16, mem_col_major);"
THEIRS = "load_matrix_sync(sum, s[1 - warp], 16, mem_row_major);"


@pytest.mark.parametrize(
    "first, between, then, races",
    [
        (LOAD, "", STORE, False),  # each lane puts back what it took
        (LOAD, "", ELSEWHERE, True),
        (LOAD, "__syncwarp();", ELSEWHERE, False),
        (LOAD, "__syncthreads();", THEIRS, False),
        (LOAD + STORE, "", THEIRS, True),
        (LOAD + STORE, "__syncwarp();", THEIRS, True),
        (LOAD + STORE, "__syncthreads();", THEIRS, False),
        (LOAD, "", "s[warp][t & 31] = 2.0f;", True),
        (LOAD, "__syncwarp();", "s[warp][t & 31] = 2.0f;", False),
        ("s[warp][t & 31] = 2.0f;", "", LOAD, True),
        ("s[warp][t & 31] = 2.0f;", "__syncwarp();", LOAD, False),
        ("s[1 - warp][t & 31] = 2.0f;", "__syncwarp();", LOAD, True),
        ("fill_fragment(sum, 1.0f);", "", "store_matrix_sync(s[0], sum, 16, mem_row_major);", True),
    ],
)
def test_a_matrix_is_the_warps_as_a_whole(emulator, first, between, then, races):
    inputs = {"a": np.ones(64, np.float16)}
    for result in checked(emulator, MATRICES % (first, between, then), inputs, block=64):
        line_pairs = lines(result, "race")
        expected = {(12, 12)} if "s[0]" in then else {(10, 12)}
        # Reads of several warps are kept as one, with the line of the last.
        assert expected <= line_pairs <= expected | {(10, 10)} if races else not result.findings, (
            result.findings
        )


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
