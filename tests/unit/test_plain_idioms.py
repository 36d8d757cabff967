"""Public CUDA's idioms in `greenfast check`: libcu++ and CUB, the device's heap, and launch files.

Each text is compiled once. It is right where its kernels are called with bug = 0, and each of its
kernels has a planted defect where bug = 1.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from greenfast.search.diagnose.plain import PlainOptions, read_plain
from greenfast.search.targets.emulator.target import EmulatorTarget

LIBRARIES = """
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cub/cub.cuh>
#include <mma.h>
#include <cstdlib>
#include <ctime>
#include <iostream>
namespace cg = cooperative_groups;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void by_barrier(float* out, const float* in, int bug) {
    auto block = cg::this_thread_block();
    __shared__ float tile[64];
    __shared__ block_barrier ready;
    if (block.thread_rank() == 0) init(&ready, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, in, sizeof tile, ready);
    auto token = ready.arrive();
    float early = bug ? tile[threadIdx.x] : 0.f;                                  // barrier
    ready.wait(std::move(token));
    out[threadIdx.x] = tile[63 - threadIdx.x] + 0 * early;
}

__global__ void by_pipeline(float* out, const float* in, int bug) {
    auto block = cg::this_thread_block();
    __shared__ float stages[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    for (int next = 0, now = 0; now < 6; now++) {
        for (; next < 6 && next < now + 2; next++) {
            pipe.producer_acquire();
            const auto size = cuda::aligned_size_t<16>(256);
            cuda::memcpy_async(block, stages[next % 2], in + 64 * next, size, pipe);
            pipe.producer_commit();
        }
        if (bug && now == 3) sum += stages[now % 2][0];                            // pipeline
        pipe.consumer_wait();
        sum += stages[now % 2][threadIdx.x ^ 32];
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}

__global__ void by_collectives(float* out, const float* in, int bug) {
    using Scan = cub::BlockScan<float, 64>;
    using Reduce = cub::BlockReduce<float, 64>;
    __shared__ union { Scan::TempStorage scan; Reduce::TempStorage reduce; } storage;
    float items[2], all;
    cub::BlockLoad<float, 64, 2>().Load(in, items, 100, 0.f);
    Scan(storage.scan).InclusiveSum(items, items, all);
    if (!bug) __syncthreads();
    float most = Reduce(storage.reduce).Reduce(items[1], cub::Max());              // collectives
    if (threadIdx.x == 0) items[0] += most;
    cub::BlockStore<float, 64, 2>().Store(out, items);
}

struct Shape { __device__ virtual float area() const { return 0; } __device__ virtual ~Shape() {} };
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
__global__ void by_heap(float* out, const float* in, int bug) {
    Shape* shape = new Square(in[threadIdx.x]);
    float* pieces = (float*)malloc(4 * sizeof(float));
    for (int i = bug; i < 4; i++) pieces[i] = shape->area();
    out[threadIdx.x] = pieces[0] + pieces[3];                                      // heap
    free(pieces);
    if (bug) out[threadIdx.x] += *(volatile float*)pieces;                         // freed
    delete shape;
    clock_t ticks = clock();
    if (ticks < 0) out[0] = 0;
}

struct Step { float factor, summand; };
template <class F> struct Called { F f; };
template <class F> Called(F) -> Called<F>;
struct Behind {
    Step steps;
    __device__ Step operator()(Step block) {
        const Step before = steps;
        steps = {before.factor * block.factor, before.summand * block.factor + block.summand};
        return before;
    }
};
__global__ void by_callback(float* out, const float* in, int bug) {              // y = y / 2 + x
    using Scan = cub::BlockScan<Step, 64>;
    __shared__ Scan::TempStorage storage;
    Behind behind{{1, 0}};
    const Called after{[](Step a, Step b) {
        return Step{a.factor * b.factor, a.summand * b.factor + b.summand};
    }};
    for (int at = 0; at < 192; at += 64) {
        Step step[1] = {{0.5f, in[at + threadIdx.x]}};
        Scan(storage).InclusiveScan(step, step, after.f, behind);                  // callback
        if (!bug) __syncthreads();
        out[threadIdx.x] = step[0].summand;
    }
}

__global__ void by_integers(int* out, const signed char* a) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
    wmma::fill_fragment(sum, 1);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, a, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}
int main() { std::cout << "hosts are left out"; }
"""

NAMES = """
#include <cstdio>
#ifndef STEP
#error the launch file defines it
#endif
struct Span { float* to; int count; unsigned char step; };
__constant__ float weights[4];
__device__ int offsets[2];
namespace deep { namespace inner {
template <class T> __device__ T helper(T* shared, int at) { return shared[at + STEP]; }
template <class T, int N>
__global__ void foo(Span span, const T* in) {
    __shared__ T tile[64 + N];
    tile[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < N) tile[64 + threadIdx.x] = 0;
    T sum = helper(tile, threadIdx.x);                                             // caller
    const T value = sum * weights[threadIdx.x % 4] + offsets[span.step];
    if (threadIdx.x < span.count) span.to[threadIdx.x] = value;
}
}}
__global__ void after(float* x) { x[threadIdx.x] += 1; }
"""


def buffer(name, role, dtype, elements, fill="random"):
    text = (
        f'[[buffers]]\nname = "{name}"\nrole = "{role}"\ndtype = "{dtype}"\nelements = {elements}\n'
    )
    return text + (f'fill = "{fill}"\n' if role == "input" else "")


def launch(entry, arguments, block=64):
    return (
        f'[[launches]]\nentry = "{entry}"\ngrid = 1\nblock = {block}\narguments = [{arguments}]\n'
    )


def line_of(text, remark):
    return text[: text.index(f"// {remark}\n")].count("\n") + 1


@pytest.fixture(scope="module")
def target(artifacts, catalogue):
    return EmulatorTarget("h200", artifacts, catalogue.include_dirs, 1, 20.0)


@pytest.fixture
def plain(target, tmp_path):
    def read(text, launches, defines=()):
        (tmp_path / "k.cu").write_text(text)
        (tmp_path / "launch.toml").write_text(launches)
        return read_plain(
            tmp_path / "k.cu", tmp_path / "launch.toml", PlainOptions(tuple(defines)), target
        ).brought

    return read


@pytest.mark.slow
def test_libraries_of_devices_run_and_their_misuse_is_found(target, plain):
    entries = ("by_barrier", "by_pipeline", "by_collectives", "by_heap", "by_callback")
    buffers = (
        buffer("x", "input", "float32", 384)
        + buffer("a", "input", "int8", 256)
        + "".join(buffer(f"y{i}", "output", "float32", 128 if i == 2 else 64) for i in range(5))
        + buffer("z", "output", "int32", 256)
    )

    def problem_of(bug):
        launches = "".join(
            launch(entry, f'"y{i}", "x", {{ int32 = {bug} }}') for i, entry in enumerate(entries)
        )
        return plain(LIBRARIES, buffers + launches + launch("by_integers", '"z", "a"', 32))

    right, wrong = problem_of(0), problem_of(1)
    assert "main" not in right.source.text
    program = target.load(right.source, None)
    right_run, wrong_run = target.check(program, [right.problem, wrong.problem])
    assert right_run.findings == ()
    places = {(finding.where[1], finding.kind) for finding in wrong_run.findings}
    for remark, kinds in (
        ("barrier", {"in_flight_read", "uninitialised"}),  # by the schedule
        ("pipeline", {"in_flight_read", "uninitialised"}),
        ("collectives", {"race"}),
        ("heap", {"uninitialised"}),
        ("freed", {"uninitialised"}),
        ("callback", {"race"}),
    ):
        line = line_of(LIBRARIES, remark)
        assert kinds & {kind for where, kind in places if where == line}, (remark, places)
    (execution,) = target.execute(program, [right.problem])
    x, a = (tensor.view(tensor.image).astype(np.float64) for tensor in right.problem.tensors[:2])
    got = {name: image.view(np.float32) for name, image in execution.outputs.items()}
    assert np.array_equal(got["y0"], x[63::-1].astype(np.float32))
    stages = x.reshape(6, 64)[:, np.arange(64) ^ 32].sum(0)
    assert np.allclose(got["y1"], stages, atol=1e-4)
    sums = np.cumsum(np.where(np.arange(128) < 100, x[:128], 0))
    most = sums[1::2].max()
    assert np.allclose(got["y2"], sums + most * (np.arange(128) == 0), atol=1e-4)
    assert np.allclose(got["y3"], 2 * x[:64] ** 2, rtol=1e-5)
    steps = np.float64(0)
    recurrence = np.array([steps := steps / 2 + value for value in x[:192]])
    assert np.allclose(got["y4"], recurrence[128:], atol=1e-5)
    matrix = a.reshape(16, 16)
    assert np.array_equal(
        execution.outputs["z"].view(np.int32).reshape(16, 16), matrix @ matrix.T + 1
    )


def test_a_launch_file_names_templates_structs_data_and_several_launches(target, plain):
    arguments = '{ struct = ["y", { int32 = 64 }, { uint8 = 1 }] }, "x"'
    launches = (
        'defines = ["STEP=1"]\n'
        '[[data]]\nname = "weights"\nvalue = [1, 2, 3, 4]\n'
        '[[data]]\nname = "offsets"\nvalue = "{0, 5}"\n'
        + buffer("x", "input", "float32", 64, "iota")
        + buffer("y", "output", "float32", 64)
        + launch("foo<float,4>", arguments)
        + launch("after", '"y"')
    )
    brought = plain(NAMES, launches)
    program = target.load(brought.source, None)
    (run,) = target.check(program, [brought.problem])
    assert run.findings and {finding.kind for finding in run.findings} <= {"race", "uninitialised"}
    caller = line_of(NAMES, "caller")
    helper = caller - 6
    assert any(
        re.search(rf"k\.cu:{helper}, called from k\.cu:{caller}\b", finding.sentence)
        for finding in run.findings
    ), [finding.sentence for finding in run.findings]
