"""Checked runs of asynchronous copies, vectors and matrices: accesses of more than one value."""

from __future__ import annotations

import numpy as np
import pytest
from checked_runs import HEAD, checked, lines
from emulator_harness import only_right, prepared
from slow_cases import quick_first


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


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
    quick_first(
        [
            ("", "t", False),
            (BARRIER, "t", False),
            (BARRIER, "63 - t", False),
            (WAIT, "63 - t", True),
            ("gf::async_copy_wait<1>();" + BARRIER, "t", False),
        ],
        2,
    ),
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
    quick_first(
        [
            (VECTOR_WRITE, SCALAR_READ),
            (SCALAR_WRITE, VECTOR_OVERWRITE),
            (VECTOR_WRITE, SCALAR_OVERWRITE),
            (SCALAR_WRITE, VECTOR_READ),
            (VECTOR_WRITE, VECTOR_READ),
            (VECTOR_WRITE, VECTOR_OVERWRITE),
            (SCALAR_WRITE, SCALAR_READ),
            (SCALAR_WRITE, SCALAR_OVERWRITE),
        ],
        2,
    ),
)
@pytest.mark.slow
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
    quick_first(
        [
            (LOAD, "", ELSEWHERE, True),
            (LOAD, "__syncwarp();", ELSEWHERE, False),
            (LOAD + STORE, "__syncwarp();", THEIRS, True),
            (LOAD + STORE, "__syncthreads();", THEIRS, False),
            ("s[warp][t & 31] = 2.0f;", "", LOAD, True),
            (
                "fill_fragment(sum, 1.0f);",
                "",
                "store_matrix_sync(s[0], sum, 16, mem_row_major);",
                True,
            ),
            (LOAD, "", STORE, False),  # each lane puts back what it took
            (LOAD, "__syncthreads();", THEIRS, False),
            (LOAD + STORE, "", THEIRS, True),
            (LOAD, "", "s[warp][t & 31] = 2.0f;", True),
            (LOAD, "__syncwarp();", "s[warp][t & 31] = 2.0f;", False),
            ("s[warp][t & 31] = 2.0f;", "__syncwarp();", LOAD, False),
            ("s[1 - warp][t & 31] = 2.0f;", "__syncwarp();", LOAD, True),
        ],
        3,
    ),
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
