"""Cooperative groups: ranks, collectives, partitions, scans and copies, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, kinds, only_right, prepared, values

GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
__device__ int sum_of(cg::thread_group group, int* memory, int value) {
    for (int i = group.size() / 2; i > 0; i /= 2) {
        memory[group.thread_rank()] = value;
        group.sync();
        if (group.thread_rank() < i) value += memory[group.thread_rank() + i];
        group.sync();
    }
    return value;
}
struct Wide { long long a, b, c; };
extern "C" __global__ void k(const int* x, const float* y, int* out) {
    __shared__ int memory[64];
    __shared__ alignas(16) float copied[64];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto tile = cg::tiled_partition<8>(block);
    auto pair = cg::tiled_partition<2>(tile);
    const int t = block.thread_rank();
    int* row = out + t * 40;
    int n = 0;
    row[n++] = tile.thread_rank();
    row[n++] = tile.meta_group_rank();
    row[n++] = tile.meta_group_size();
    row[n++] = pair.meta_group_rank() * 10 + pair.meta_group_size();
    row[n++] = tile.shfl(x[t], 3);
    row[n++] = tile.shfl_up(x[t], 2);
    row[n++] = tile.shfl_down(x[t], 3);
    row[n++] = tile.shfl_xor(x[t], 5);
    row[n++] = tile.ballot(x[t] & 1);
    row[n++] = tile.any(t % 8 == 5) + 2 * tile.all(t < 32);
    row[n++] = tile.match_any(t & 3);
    int all_equal;
    const unsigned equal = tile.match_all(t / 8, all_equal);
    row[n++] = equal * 10 + all_equal;                                   // 11
    row[n++] = cg::reduce(warp, x[t], cg::plus<int>());
    row[n++] = cg::reduce(tile, x[t], cg::less<int>());
    row[n++] = cg::reduce(tile, x[t], cg::greater<int>());
    row[n++] = cg::reduce(tile, x[t], [](int a, int b) { return a ^ b; });
    row[n++] = __float_as_int(cg::reduce(tile, y[t], cg::plus<float>()));
    row[n++] = cg::inclusive_scan(tile, x[t]);
    row[n++] = cg::exclusive_scan(tile, x[t], cg::plus<int>());
    row[n++] = cg::inclusive_scan(warp, x[t], cg::greater<int>());       // 19
    const Wide wide = tile.shfl(Wide{t, 2ll * t, 3ll * t}, 1);
    row[n++] = int(wide.a + wide.b + wide.c);
    if (t % 3 == 0) {
        auto some = cg::coalesced_threads();
        row[n++] = some.size() * 100 + some.thread_rank();
        row[n++] = cg::reduce(some, x[t], cg::plus<int>());
        row[n++] = some.shfl(t, 2);
        row[n++] = some.shfl_up(t, 1);
        row[n++] = some.shfl_down(t, 1);
        row[n++] = some.ballot(t & 1);
        auto fours = cg::tiled_partition(some, 4);
        row[n++] = fours.size() * 100 + fours.thread_rank() * 10 + fours.meta_group_rank();   // 27
    } else n += 7;
    auto same = cg::labeled_partition(warp, x[t] % 3);
    row[n++] = same.size() * 1000 + same.thread_rank() * 10 + same.meta_group_size();
    auto odd = cg::binary_partition(tile, x[t] & 1);
    row[n++] = odd.size() * 100 + odd.thread_rank() * 10 + odd.meta_group_rank();
    const int total = sum_of(block, memory, x[t]);
    row[n++] = t == 0 ? total : 0;
    const int part = sum_of(cg::tiled_partition(block, 16), memory + t / 16 * 16, x[t]);
    row[n++] = t % 16 == 0 ? part : 0;
    cg::memcpy_async(block, copied, y, sizeof copied);
    cg::wait(block);
    row[n++] = __float_as_int(copied[63 - t]);                           // 32
    row[n++] = __match_any_sync(~0u, t % 2);
    int agree;
    __match_all_sync(~0u, t % 2, &agree);
    row[n++] = agree;
    row[n++] = __reduce_max_sync(~0u, x[t]);
}
"""


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.fixture(scope="module")
def checked(emulator):
    return Kernel(emulator, GROUPS, flavour="checked")


def check_coalesced_and_labelled(rows, x):
    """Columns 21 to 29: groups of the lanes that meet in a branch, and of equal labels."""
    t = np.arange(64)
    for lane in range(64):
        warp = t[t // 32 == lane // 32]
        some, same = warp[warp % 3 == 0], warp[x[warp] % 3 == x[lane] % 3]
        odd = t[(t // 8 == lane // 8) & (x % 2 == x[lane] % 2)]
        for row in rows:
            if lane % 3 == 0:
                at = list(some).index(lane)
                assert list(row[lane, 21:28]) == [
                    some.size * 100 + at,
                    x[some].sum(),
                    some[2],
                    some[max(at - 1, 0)],
                    some[min(at + 1, some.size - 1)],
                    sum(int(other & 1) << place for place, other in enumerate(some)),
                    min(4, some.size - at // 4 * 4) * 100 + at % 4 * 10 + at // 4,
                ]
            labels = len(set(x[warp] % 3))
            assert row[lane, 28] == same.size * 1000 + list(same).index(lane) * 10 + labels
            splits = len(set(x[t // 8 == lane // 8] % 2)) == 2 and x[lane] % 2 == 0
            assert row[lane, 29] == odd.size * 100 + list(odd).index(lane) * 10 + splits


def test_groups_compute_what_numpy_does(checked):
    random = np.random.default_rng(1)
    x = random.integers(0, 100, 64).astype(np.int32)
    y = random.standard_normal(64).astype(np.float32)
    out = np.zeros(64 * 40, np.int32)
    runs = [
        checked.job({"x": x, "y": y}, {"out": out}, block=64, check=True, order=order, name=order)
        for order in ORDERS
    ]
    results = checked.run(*runs)
    only_right(results)
    rows = [values(result, "out", np.int32).reshape(64, 40)[:, :36] for result in results]
    t = np.arange(64)
    tiles, warps = x.reshape(8, 8), x.reshape(2, 32)
    rank, first = t % 8, t // 8 * 8
    bits = (1 << np.arange(8)).astype(np.int64)
    by_tile = lambda function: np.repeat([function(tile) for tile in tiles], 8)  # noqa: E731
    want = {
        0: rank,
        1: t // 8,
        2: 8,
        3: t % 8 // 2 * 10 + 4,
        4: x[first + 3],
        5: x[np.where(rank < 2, t, t - 2)],
        6: x[np.where(rank + 3 < 8, t + 3, t)],
        7: x[first + (rank ^ 5)],
        8: by_tile(lambda tile: ((tile & 1) * bits).sum()),
        9: 1 + 2 * (t < 32),
        10: 0x11 << (t & 3),
        11: 255 * 10 + 1,
        12: np.repeat(warps.sum(1), 32),
        13: by_tile(np.min),
        14: by_tile(np.max),
        15: by_tile(np.bitwise_xor.reduce),
        17: np.cumsum(tiles, 1).ravel(),
        18: (np.cumsum(tiles, 1) - tiles).ravel(),
        19: np.maximum.accumulate(warps, 1).ravel(),
        20: 6 * (first + 1),
        30: np.where(t == 0, x.sum(), 0),
        31: np.where(t % 16 == 0, np.repeat(x.reshape(4, 16).sum(1), 16), 0),
        32: y[::-1].view(np.int32),
        33: np.where(t % 2, 0xAAAAAAAA, 0x55555555).astype(np.uint32).view(np.int32),
        34: 0,
        35: np.repeat(warps.max(1), 32),
    }
    halves = y.reshape(8, 8)
    for width in (4, 2, 1):
        halves = halves[:, :width] + halves[:, width : 2 * width]
    want[16] = np.repeat(halves.ravel(), 8).view(np.int32)
    check_coalesced_and_labelled(rows, x)
    for column, expected in want.items():
        for row in rows:
            np.testing.assert_array_equal(row[:, column], expected, err_msg=str(column))


RACES = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const int* which, int* out) {
    __shared__ int memory[64];
    const int t = threadIdx.x, kind = which[0];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    if (kind == 0 || kind == 1) {
        memory[t] = t;
        if (kind == 1) tile.sync();
        out[t] = memory[t ^ 1];
    } else if (kind == 2) {
        memory[t] = t;
        tile.sync();
        out[t] = memory[t ^ 16];                      // of another tile
    } else if (t % 2) {
        auto some = cg::coalesced_threads();
        memory[some.thread_rank() + t / 32 * 32] = t;
        if (kind == 4) some.sync();
        out[t] = memory[(some.thread_rank() + 1) % some.size() + t / 32 * 32];
    }
}
"""


def test_what_a_group_does_not_synchronise_is_a_race(emulator):
    kernel = Kernel(emulator, RACES, flavour="checked")
    runs = [
        kernel.job(
            {"which": np.array([kind], np.int32)},
            {"out": np.zeros(64, np.int32)},
            block=64,
            check=True,
            order=order,
            name=f"{kind} {order}",
        )
        for kind in range(5)
        for order in ("forward", "reverse")
    ]
    for run, result in zip(runs, kernel.run(*runs), strict=True):
        found = {finding.kind for finding in result.findings} | set(kinds(result))
        racy = run.name[0] in "023"
        assert ("race" in found) == racy and found <= {"race", "uninitialised"}, (run.name, found)
