"""Undefined uses of clusters, stmatrix and warp-wide products are refused with a sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, prepared, values

from greenfast.search.errors import UsageError

OUT = {"out": np.zeros(256, np.int32)}


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


def run_cluster(
    emulator,
    text: str,
    *,
    cluster: int = 2,
    grid: int = 2,
    block: int = 32,
    order: str = "forward",
    flavour: str = "plain",
    **options,
):
    """One launch of `grid` blocks in clusters of `cluster`."""
    kernel = Kernel(emulator, f'#include "gf/cluster.cuh"\n{text}', flavour=flavour)
    options["check"] = flavour == "checked"
    run = kernel.job({}, OUT, grid=grid, block=block, order=order, **options)
    run = replace(run, launches=(replace(run.launches[0], cluster=(cluster, 1, 1)),))
    return kernel.run(run, deadline_s=10)[0]


def only_fault(result):
    assert result.status == "fault", result
    (fault,) = result.faults
    return fault


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "body, kind, words",
    [
        (
            "gf::cluster_arrive(); gf::cluster_arrive();",
            "divergence",
            "arrives at the cluster's barrier twice",
        ),
        ("gf::cluster_wait();", "divergence", "without having arrived"),
        ("*gf::map_shared_rank(&x, 2) = 1;", "out_of_bounds", "block 2 of a cluster of 2"),
        (
            "*gf::map_shared_rank(out, 1) = 1;",
            "device_fault",
            "outside its own block's shared memory",
        ),
    ],
)
def test_misuse_of_a_cluster_is_named(emulator, order, body, kind, words):
    result = run_cluster(
        emulator,
        f'extern "C" __global__ void k(int* out) {{ __shared__ int x; {body} }}',
        order=order,
    )
    fault = only_fault(result)
    assert fault.kind == kind and words in fault.sentence
    assert fault.where == ("test.cu", 2)


@pytest.mark.parametrize("order", ORDERS)
def test_a_block_that_never_comes_to_the_barrier_is_a_deadlock(emulator, order):
    result = run_cluster(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    if (gf::cluster_rank() == 0 || threadIdx.x < 31) gf::cluster_sync();
    else __syncthreads();
}""",
        order=order,
    )
    fault = only_fault(result)
    assert fault.kind == "deadlock" and "barrier.cluster.wait" in fault.sentence


@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_ended_are_not_waited_for(emulator, order):
    result = run_cluster(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    if (gf::cluster_rank() == 1 && threadIdx.x % 2) return;
    if (threadIdx.x == 8) gf::cluster_arrive();
    if (threadIdx.x == 8) return;
    gf::cluster_sync();
    out[blockIdx.x * 32 + threadIdx.x] = 1;
}""",
        order=order,
    )
    assert (values(result, "out", np.int32) == 1).sum() == 31 + 15


@pytest.mark.parametrize("order", ORDERS)
def test_a_block_may_spin_on_anothers_shared_memory(emulator, order):
    result = run_cluster(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    gf::cluster_sync();
    const unsigned rank = gf::cluster_rank();
    if (rank == 0 && threadIdx.x == 0) atomicExch(gf::map_shared_rank(&flag, 1), 7);
    if (rank == 1) while (atomicAdd(&flag, 0) == 0) {}
    out[blockIdx.x * 32 + threadIdx.x] = flag;
    gf::cluster_sync();
}""",
        order=order,
    )
    assert list(values(result, "out", np.int32)[:64:32]) == [0, 7]


EXCHANGE = """
extern "C" __global__ void k(int* out) {
    __shared__ int own[32];
    const unsigned i = threadIdx.x, other = gf::cluster_rank() ^ 1; gf::cluster_sync();
    %s
    gf::cluster_sync();
}"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "body, kinds",
    [
        (
            "own[i] = i; gf::cluster_sync(); out[i] = gf::map_shared_rank(own, other)[31 - i];",
            set(),
        ),
        (
            "gf::map_shared_rank(own, other)[31 - i] = i; gf::cluster_sync(); out[i] = own[i];",
            set(),
        ),
        (
            "own[i] = i; __syncthreads(); out[i] = gf::map_shared_rank(own, other)[31 - i];",
            {"race", "uninitialised"},
        ),
        (
            (
                "own[i] = i; gf::cluster_sync(); gf::map_shared_rank(own, other)[i] = 5; "
                "out[i] = own[i];"
            ),
            {"race"},
        ),
        (
            "gf::cluster_sync(); out[i] = gf::map_shared_rank(own, other)[31 - i];",
            {"uninitialised"},
        ),
    ],
)
def test_checks_see_through_distributed_shared_memory(emulator, order, body, kinds):
    body = body.replace("out[i]", "out[blockIdx.x * 32 + i]")
    result = run_cluster(emulator, EXCHANGE % body, order=order, flavour="checked")
    assert result.status == "finished"
    assert {finding.kind for finding in result.findings} == kinds
    assert all(
        finding.where == ("test.cu", 6) and finding.memory == "shared"
        for finding in result.findings
    )


def test_what_is_read_of_a_block_that_ended_is_poison(emulator):
    result = run_cluster(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    __shared__ int kept;
    kept = 5;
    int* other = gf::map_shared_rank(&kept, gf::cluster_rank() ^ 1);
    gf::cluster_sync();
    if (gf::cluster_rank() == 0) return;
    __nanosleep(100);
    out[threadIdx.x] = *other;
}""",
    )
    assert (values(result, "out", np.int32)[:32] == -1).all()


def test_every_block_of_a_cluster_has_static_shared_memory_of_its_own(emulator):
    result = run_cluster(
        emulator,
        """
__device__ int* helper() { static __shared__ int inside[32]; return inside; }
extern "C" __global__ void k(int* out) {
    helper()[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
    gf::cluster_sync();
    out[blockIdx.x * 32 + threadIdx.x] = helper()[31 - threadIdx.x];
    gf::cluster_sync();
}""",
        cluster=4,
        grid=8,
    )
    want = np.arange(8)[:, None] * 100 + np.arange(31, -1, -1)
    np.testing.assert_array_equal(values(result, "out", np.int32).reshape(8, 32), want)


def test_cooperative_groups_name_the_same_cluster(emulator):
    result = run_cluster(
        emulator,
        """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* out) {
    __shared__ int value;
    cg::cluster_group cluster = cg::this_cluster();
    cg::thread_block block = cg::this_thread_block();
    if (block.thread_rank() == 0) value = 10 + cluster.block_rank();
    cluster.sync();
    const int* other = cluster.map_shared_rank(&value, cluster.block_rank() ^ 1);
    out[cluster.thread_rank()] = *other + 100 * cluster.num_blocks();
    cluster.sync();
}""",
    )
    assert list(values(result, "out", np.int32)[:64:32]) == [211, 210]


def test_a_launch_without_a_cluster_is_a_cluster_of_one(emulator):
    result = run_cluster(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    __shared__ int x;
    x = 3;
    gf::cluster_sync();
    out[blockIdx.x] = gf::cluster_rank() * 100 + gf::cluster_blocks() * 10
                    + *gf::map_shared_rank(&x, 0);
}""",
        cluster=1,
        grid=4,
    )
    assert list(values(result, "out", np.int32)[:4]) == [13] * 4


@pytest.mark.parametrize(
    "cluster, grid, words",
    [(3, 4, "does not divide the grid"), (32, 32, "1 to 16 blocks"), (0, 4, "1 to 16 blocks")],
)
def test_a_launch_with_an_impossible_cluster_is_refused(emulator, cluster, grid, words):
    with pytest.raises(UsageError, match=words):
        run_cluster(
            emulator, 'extern "C" __global__ void k(int* out) {}', cluster=cluster, grid=grid
        )


STMATRIX = """
#include "gf/stmatrix.cuh"
extern "C" __global__ void k(int* out) {
    __shared__ __align__(16) unsigned short tile[32 * 8 + 8];
    unsigned registers[4] = {};
    %s
}"""


@pytest.mark.parametrize(
    "body, kind, words",
    [
        (
            "gf::stmatrix(tile + threadIdx.x * 8 + 1, registers);",
            "misaligned",
            "stmatrix is given a row that does not start",
        ),
        (
            "gf::stmatrix(out, registers);",
            "device_fault",
            "stmatrix is given a row that is not in shared memory",
        ),
        (
            "if (threadIdx.x < 31) gf::stmatrix(tile + threadIdx.x * 8, registers);",
            "divergence",
            "stmatrix needs all 32",
        ),
    ],
)
def test_misuse_of_stmatrix_is_named(emulator, body, kind, words):
    fault = only_fault(Kernel(emulator, STMATRIX % body)({}, OUT))
    assert fault.kind == kind and words in fault.sentence


def test_an_fp8_product_without_the_whole_warp_is_refused(emulator):
    fault = only_fault(
        Kernel(
            emulator,
            """
#include "gf/mma_fp8.cuh"
extern "C" __global__ void k(int* out) {
    float d[4] = {};
    unsigned a[4] = {};
    if (threadIdx.x < 16) gf::mma_m16n8k32<__nv_fp8_e4m3>(d, a, 0, 0);
}""",
        )({}, OUT)
    )
    assert fault.kind == "divergence" and "mma.sync needs all 32 lanes" in fault.sentence


def test_a_kernels_own_cluster_dims_hold_for_a_plain_launch(emulator):
    text = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32) k(int* out) {
    out[blockIdx.x] = gf::cluster_blocks() * 10 + gf::cluster_rank();
}"""
    result = run_cluster(emulator, text, cluster=1, grid=4)
    assert list(values(result, "out", np.int32)[:4]) == [20, 21, 20, 21]
    with pytest.raises(UsageError, match="does not divide the grid"):
        run_cluster(emulator, text, cluster=1, grid=3)
    with pytest.raises(UsageError, match="__cluster_dims__"):
        run_cluster(emulator, text, cluster=4, grid=4)
