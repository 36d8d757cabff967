"""Names of cuda::ptx beyond copies: remote arrivals, hints, a warp's lane, special registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, only_right, prepared, values

TEXT = """
#include <cooperative_groups.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const int* x, int* y) {
    __shared__ cuda::std::uint64_t all;
    __shared__ int inbox;
    auto cluster = cooperative_groups::this_cluster();
    const unsigned t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    ptx::cp_async_bulk_prefetch(x, 16u);
    ptx::prefetch_L2(x);
    if (t == 0) {
        ptx::mbarrier_init(&all, 3);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    cluster.sync();
    int* there = cluster.map_shared_rank(&inbox, rank ^ 1);
    if (ptx::elect_sync(~0u) && t / 32 == 1 && ptx::get_sreg_warpid() < ptx::get_sreg_nwarpid()) {
        *there = x[rank] + 100 * int(ptx::getctarank(ptx::space_cluster, there));
        auto* barrier = cluster.map_shared_rank(&all, rank ^ 1);
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, barrier, 2u);
    }
    if (t == 0) ptx::mbarrier_arrive_no_complete(&all, 1);
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &all, 0)) {}
    const unsigned extent = ptx::get_sreg_cluster_nctaid_x() * ptx::get_sreg_nclusterid_x();
    if (t < 2) y[blockIdx.x * 2 + t] = t ? int(extent) : inbox;
    __syncthreads();
    if (t == 0) ptx::mbarrier_inval(&all);
    cluster.sync();
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_cluster_arrive_at_each_others_barriers(artifacts, order):
    kernel = Kernel(prepared(artifacts), TEXT, flavour="checked")
    inputs = {"x": np.array([7, 9], np.int32)}
    job = kernel.job(
        inputs, {"y": np.zeros(4, np.int32)}, grid=2, block=64, check=True, order=order
    )
    (result,) = kernel.run(job)
    only_right((result,))
    assert values(result, "y", np.int32).tolist() == [9, 2, 107, 2]


PUSHES = """
#include <cooperative_groups.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* y, unsigned* z) {
    __shared__ alignas(16) float own[32], moved[32], shared_by_all[32];
    __shared__ cuda::std::uint64_t full;
    __shared__ unsigned sum, pair[4];
    auto cluster = cooperative_groups::this_cluster();
    const unsigned t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    own[t] = x[rank * 32 + t];
    if (t == 0) {
        sum = 0;
        ptx::mbarrier_init(&full, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full,
                                       128 + 128 + 32 * 4 + 16);
    }
    ptx::fence_proxy_async(ptx::space_shared);
    cluster.sync();
    auto* there = cluster.map_shared_rank(&full, rank ^ 1);
    if (t == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared,
                           cluster.map_shared_rank(moved, rank ^ 1), own, 128u, there);
        if (rank == 0)
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, shared_by_all, x, 128u, &full,
                               uint16_t(3));
        const unsigned four[4] = {1, 2, 3, 4 + rank};
        ptx::st_async(cluster.map_shared_rank(pair, rank ^ 1), four, there);
    }
    ptx::red_async(ptx::op_add, cluster.map_shared_rank(&sum, rank ^ 1), t, there);
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &full, 0)) {}
    moved[t] += shared_by_all[t];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncwarp();
    if (t == 0) {
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, y, moved,
                                  128u);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
        z[2 * rank] = sum, z[2 * rank + 1] = pair[0] + pair[3];
    }
    cluster.sync();
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_cluster_push_to_each_others_shared_memory(artifacts, order):
    kernel = Kernel(prepared(artifacts), PUSHES, flavour="checked")
    x = np.arange(64, dtype=np.float32)
    outputs = {"y": np.zeros(32, np.float32), "z": np.zeros(4, np.uint32)}
    job = kernel.job({"x": x}, outputs, grid=2, block=32, check=True, order=order)
    begins = {"y": "zero"}
    buffers = tuple(replace(one, fill=begins.get(one.name, one.fill)) for one in job.buffers)
    job = replace(job, buffers=buffers)
    (result,) = kernel.run(job)
    only_right((result,))
    assert values(result, "y").tolist() == (x[32:] + 3 * x[:32]).tolist()
    assert values(result, "z", np.uint32).tolist() == [496, 6, 496, 5]
