"""Names of cuda::ptx beyond copies: remote arrivals, hints, a warp's lane, special registers."""

from __future__ import annotations

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
    if (ptx::elect_sync(~0u) && ptx::get_sreg_warpid() == 1) {
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
