"""Orders that only some of the threads have: flags, scopes of atomics, blocks that wait for others.

Each race stands beside a twin that differs in what orders the two accesses, and passes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, only_right, prepared
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.oracle.problem import LaunchPlan
from greenfast.search.targets.emulator.problem_run import resident_blocks
from greenfast.search.targets.emulator.runs import Buffer, PointerArgument, RunResult
from greenfast.search.toolchain.ptxas import EntryFigures

WORDS = 1024


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


HEAD = """
extern "C" __global__ void k(const float* a, float* c, unsigned* w) {
    const int t = threadIdx.x, b = blockIdx.x;
"""


def runs(
    emulator,
    body: str,
    *,
    head: str = HEAD,
    flavour: str = "checked",
    orders: tuple[str, ...] = ORDERS,
    workers: int = 2,
    deadline_s: float = 20.0,
    **options,
) -> tuple[RunResult, ...]:
    """A kernel's run in each order. It has inputs a, zeroed outputs c and zeroed words w."""
    kernel = Kernel(emulator, f"{head}{body}\n}}", flavour=flavour)
    jobs = []
    for order in orders:
        job = kernel.job(
            {"a": np.ones(WORDS, np.float32)}, {}, name=order, order=order,
            check=flavour == "checked", **options,
        )  # fmt: skip
        zeros = np.zeros(4 * WORDS, np.uint8)
        buffers = (Buffer("c", "output", zeros, "zero"), Buffer("w", "workspace", zeros, "zero"))
        arguments = (PointerArgument("c"), PointerArgument("w"))
        jobs.append(
            replace(
                job,
                buffers=(*job.buffers, *buffers),
                arguments=(*job.arguments, *arguments),
            )
        )
    return kernel.run(*jobs, workers=workers, deadline_s=deadline_s)


def found(results: tuple[RunResult, ...]) -> list[set[str]]:
    return [{finding.kind for finding in result.findings} for result in results]


def all_find(results: tuple[RunResult, ...], kind: str) -> bool:
    return all(kinds == {kind} for kinds in found(results))


AGAIN = """
    __shared__ float s;
    __shared__ unsigned flag;
    if (t == 0) { s = 1; flag = 0; }
    __syncthreads();
    if (t == 0) { c[0] = s; %s __threadfence_block(); atomicAdd(&flag, 1); %s }
    if (t == 32) { while (atomicAdd(&flag, 0) < 1) { } __threadfence_block(); s = 2; }
"""


def test_a_read_after_the_release_is_not_covered_by_it(emulator):
    assert all_find(runs(emulator, AGAIN % ("", "c[1] = s;"), block=64), "race")
    only_right(runs(emulator, AGAIN % ("c[1] = s;", ""), block=64))


AGAIN_IN_GLOBAL = """
    if (t) return;
    if (b == 0) { c[0] = c[9]; %s __threadfence(); atomicAdd(w, 1); %s }
    else { while (atomicAdd(w, 0) < 1) { } __threadfence(); c[9] = 5; }
"""


def test_a_read_after_the_release_is_not_covered_by_it_in_global_memory(emulator):
    assert all_find(runs(emulator, AGAIN_IN_GLOBAL % ("", "c[1] = c[9];"), grid=2), "race")
    only_right(runs(emulator, AGAIN_IN_GLOBAL % ("c[1] = c[9];", ""), grid=2))


EVERY_WARP_READS = """
    __shared__ float4 s;
    __shared__ unsigned flag;
    if (t == 0) { s = {1, 2, 3, 4}; flag = 0; }
    __syncthreads();
    const float4 mine = s;
    c[t] = mine.x;
    __syncwarp();
    if (t %% 32 == 0 && t / 32 != %s) { __threadfence_block(); atomicAdd(&flag, 1); }
    if (t == 0) {
        while (atomicAdd(&flag, 0) < blockDim.x / 32 - %s) { }
        __threadfence_block();
        s = {4, 3, 2, 1};
    }
"""


def test_each_of_many_reading_warps_has_to_be_waited_for(emulator):
    assert all_find(runs(emulator, EVERY_WARP_READS % ("7", "1"), block=512), "race")
    only_right(runs(emulator, EVERY_WARP_READS % ("99", "0"), block=512))


MANY_READERS = """
    if (t) return;
    if (b < 40) { c[b + 1] = w[8]; if (b != %s) { __threadfence(); atomicAdd(w, 1); } }
    else { while (atomicAdd(w, 0) < %s) { } __threadfence(); w[8] = 3; }
"""


@pytest.mark.parametrize("unordered", quick_first([20, 0, 38], 1))
def test_none_of_many_reading_blocks_is_forgotten(emulator, unordered):
    assert all_find(runs(emulator, MANY_READERS % (unordered, 39), grid=41, workers=1), "race")


def test_many_reading_blocks_may_all_be_waited_for(emulator):
    only_right(runs(emulator, MANY_READERS % (99, 40), grid=41))


HANDED_OVER = """
    if (t) return;
    if (b == 0) { c[5] = 4; __threadfence%s(); atomicAdd%s(w, 1); }
    else { while (atomicAdd%s(w, 0) == 0) { } __threadfence%s(); c[6] = c[5]; }
"""


@pytest.mark.parametrize(
    "scopes, races",
    quick_first(
        [
            (("", "", "", ""), False),
            (("_system", "_system", "", ""), False),
            (("", "_block", "_block", ""), True),
            (("", "_block", "", ""), True),
            (("_block", "", "", ""), True),
            (("", "", "", "_block"), True),
        ],
        3,
    ),
)
def test_what_has_the_scope_of_a_block_orders_no_other_block(emulator, scopes, races):
    results = runs(emulator, HANDED_OVER % scopes, grid=2)
    assert all_find(results, "race") if races else not any(found(results)), found(results)


def test_atomics_of_a_blocks_scope_order_its_own_threads(emulator):
    body = """
    __shared__ float s;
    if (t == 0) { s = 7; __threadfence_block(); atomicAdd_block(w + b, 1); }
    if (t == 32) { while (atomicAdd_block(w + b, 0) == 0) { } __threadfence_block(); c[b] = s; }
"""
    only_right(runs(emulator, body, block=64, grid=2))


@pytest.mark.parametrize(
    "body, lane",
    [
        ("if (t < 24) c[t] = __shfl_down_sync(0xffffff, a[t], 8);", 24),  # outside the mask
        ("if (t == 31) return;\nc[t] = __shfl_sync(~0u, a[t], 31);", 31),  # has left
    ],
)
def test_a_shuffle_from_a_lane_that_takes_no_part_is_a_finding(emulator, body, lane):
    for result in runs(emulator, body):
        (finding,) = result.findings
        assert finding.kind == "undefined_shuffle" and finding.where
        assert f"reads lane {lane} in a shuffle" in finding.sentence
    only_right(runs(emulator, "if (t < 24) c[t] = __shfl_down_sync(0xffffff, a[t], 8, 8);"))


CLUSTER_HEAD = """
#include "gf/cluster.cuh"
extern "C" __global__ void __cluster_dims__(2, 1, 1)
k(const float* a, float* c, unsigned* w) {
    const int t = threadIdx.x, rank = gf::cluster_rank();
    __shared__ alignas(4) unsigned char s[4];
    gf::cluster_sync();
"""
CLUSTER_FLAG = """
    if (t == 0 && rank == 0) { s[0] = 1; __threadfence(); atomicAdd(w, 1); }
    if (t == 0 && rank == 1) {
        %s
        __threadfence();
        c[0] = *gf::map_shared_rank(s, 0);
    }
    gf::cluster_sync();
"""
SEES_IT = "while (atomicAdd(w, 0) == 0) { }"


def cluster_runs(emulator, body):
    return runs(emulator, body, head=CLUSTER_HEAD, grid=2)


def test_a_fence_of_its_own_orders_no_distributed_shared_memory(emulator):
    for kinds in found(cluster_runs(emulator, CLUSTER_FLAG % "atomicAdd(w + 1, 1);")):
        assert "race" in kinds
    only_right(cluster_runs(emulator, CLUSTER_FLAG % SEES_IT))


def test_neighbouring_bytes_of_distributed_shared_memory_are_not_one_another(emulator):
    body = """
    if (t == 0) *gf::map_shared_rank(s + %s, 0) = 3;
    gf::cluster_sync();
"""
    only_right(cluster_runs(emulator, body % "rank"))
    assert all_find(cluster_runs(emulator, body % "0"), "race")


def test_threads_that_have_left_are_not_waited_for_at_a_barrier(emulator):
    """CUDA C++ Programming Guide, "Independent Thread Scheduling": all non-exited threads."""
    body = "__shared__ float s[64];\ns[t] = a[t];\nif (t % 5 == 4) return;\n__syncthreads();\n"
    only_right(runs(emulator, body + "c[t] = s[t ^ 32];", block=64))


@pytest.mark.parametrize("store", quick_first(["c[0] = 3;", "*(volatile float*)c = 3;"], 1))
def test_stores_of_one_value_are_a_note_and_no_finding(emulator, store):
    results = runs(emulator, store, block=64, grid=2)
    only_right(results)
    for result in results:
        (note,) = result.notes
        assert note.kind == "same_value_writes" and note.where == ("test.cu", 4)
    body = store.replace("3;", "3 + t / 32;")
    assert all_find(runs(emulator, body, block=64), "race")
    assert all_find(runs(emulator, f"if (t < 32) {{ {store} }} else {{ a = c; w[5] = a[0]; }}",
                         block=64), "race")  # fmt: skip


def test_a_volatile_flag_may_be_read_while_it_is_set(emulator):
    flag = """
    __shared__ float s;
    __shared__ unsigned flag;
    volatile unsigned* seen = &flag;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) { s = 5; %s *seen = 1; }
    if (t == 32) { while (*seen == 0) { } __threadfence_block(); c[0] = s; }
"""
    only_right(runs(emulator, flag % "__threadfence_block();", block=64))
    assert all_find(runs(emulator, flag % "", block=64), "race")


def test_volatile_does_not_order_the_lanes_of_a_warp(emulator):
    body = """
    __shared__ float s[64];
    volatile float* v = s;
    v[t] = a[t];
    v[t + 32] = a[t];
    %s
    const float sum = v[t] + v[t ^ 1];
    c[t] = sum;
"""
    only_right(runs(emulator, body % "__syncwarp();"))
    assert all("race" in kinds for kinds in found(runs(emulator, body % "")))


def test_the_active_lanes_are_those_at_the_same_call(emulator):
    body = """
    if (t % 3 == 0) {
        const unsigned active = __activemask();
        const int leader = __ffs(active) - 1;
        unsigned place = 0;
        if (t % 32 == leader) place = atomicAdd(w, __popc(active));
        place = __shfl_sync(active, place, leader);
        c[place + __popc(active & ((1u << t % 32) - 1))] = 1;
    } else if (t % 3 == 1) {
        c[128 + t] = __popc(__activemask());
    }
"""
    results = runs(emulator, body, block=64)
    only_right(results)
    for result in results:
        counts = result.outputs["c"].view(np.float32)
        assert counts[:22].all() and not counts[22:128].any()
        assert counts[128 + 1 : 192 : 3].tolist() == [11] * 11 + [10] * 10


DIVISIONS = """
    const int zero = w[0], minus = int(w[1]) - 1, low = int(0x80000000u + w[0]);
    const long long wide = zero, lowest = (long long)(0x8000000000000000ull + w[0]);
    const int divisors[] = {int(w[2]), int(w[3])};
    int* y = (int*)c;
    y[0] = (t + 7) / zero; y[1] = (t + 7) % zero;
    y[2] = low / minus; y[3] = low % minus;
    y[4] = 9u / unsigned(zero); y[5] = 9u % unsigned(zero);
    y[6] = int((5ll + t) / wide); y[7] = int((5ll + t) % wide);
    y[8] = int(lowest / minus >> 32); y[9] = int(lowest % minus);
    y[10] = low / zero; y[11] = low % zero;
    y[12] = 11 / divisors[t]; y[13] = 17 / (zero + 5);
"""


@pytest.mark.parametrize("flavour", ["checked", "plain"])
def test_integers_are_divided_as_a_gpu_divides_them(emulator, flavour):
    (result,) = runs(emulator, DIVISIONS, block=1, flavour=flavour, orders=("forward",))
    low = -(2**31)
    assert result.status == "finished", result.faults
    assert result.outputs["c"].view(np.int32)[:14].tolist() == [
        -1, 7, low, 0, -1, 9, -1, 5, low, 0, -1, low, -1, 3,
    ]  # fmt: skip


GRID_BARRIER = """
    for (unsigned round = 1; round < 4; round++) {
        if (t == 0) w[64 + b + 256 * (round & 1)] = round;
        __syncthreads();
        if (t == 0) {
            %s
            atomicAdd(w, 1);
            while (%s < round * gridDim.x) { }
            __threadfence();
        }
        __syncthreads();
        if (t == 0) c[b] = w[64 + (b + 1) %% gridDim.x + 256 * (round & 1)];
    }
"""
ATOMIC_LOAD, VOLATILE_LOAD = "atomicAdd(w, 0)", "*(volatile unsigned*)w"


@pytest.mark.parametrize("flavour", quick_first(["checked", "counted"], 1))
@pytest.mark.parametrize("load", quick_first([VOLATILE_LOAD, ATOMIC_LOAD], 1))
def test_blocks_pass_a_barrier_of_the_whole_grid(emulator, flavour, load):
    body = GRID_BARRIER % ("__threadfence();", load)
    results = runs(emulator, body, flavour=flavour, grid=48, block=64)
    only_right(results)
    for result in results:
        assert (result.outputs["c"].view(np.float32)[:48] == 3).all()


@pytest.mark.slow
def test_blocks_of_many_threads_all_meet_in_every_run(emulator):
    # The stacks of all of them are more than the limit of memory, and a worker has them once.
    body = GRID_BARRIER % ("__threadfence();", ATOMIC_LOAD)
    orders = ("forward", "reverse", "forward")
    only_right(runs(emulator, body, flavour="counted", grid=132, block=256, orders=orders))


@pytest.mark.parametrize(
    ("which", "threads", "registers", "blocks"),
    [("h200", 1024, 32, 264), ("h200", 256, 255, 132), ("l4", 1024, 32, 58), ("a100", 64, 0, 3456)],
)
def test_as_many_blocks_are_resident_as_the_gpu_holds(which, threads, registers, blocks):
    launch = LaunchPlan("k", (9999, 1, 1), (threads, 1, 1), 0)
    figures = (EntryFigures("k", registers, 0, 0, 0),)
    assert resident_blocks(device(which), launch, figures) == blocks


def test_a_sample_that_waits_for_other_blocks_lets_them_run_uncounted(emulator):
    body = GRID_BARRIER % ("__threadfence();", VOLATILE_LOAD)
    sampled = {"sample": (0, 7, 47), "count": True, "orders": ("forward",)}
    (few,) = runs(emulator, body, flavour="counted", grid=48, block=64, **sampled)
    assert few.status == "finished", few.faults
    assert few.counters and few.counters.barriers == 3 * 6 and few.counters.atomics == 3 * 3


def test_a_barrier_of_the_whole_grid_needs_its_fence(emulator):
    for kinds in found(runs(emulator, GRID_BARRIER % ("", ATOMIC_LOAD), grid=8, block=64)):
        assert kinds == {"race"}


GRID_HEAD = """
#include <cooperative_groups.h>
extern "C" __global__ void k(const float* a, float* c, unsigned* w) {
    const int t = threadIdx.x, b = blockIdx.x;
    const auto grid = cooperative_groups::this_grid();
"""
GRID_SYNC = """
    for (unsigned round = 1; round < 4; round++) {
        if (t == 40) w[b + 256 * (round & 1)] = round;
        %s
        if (t == 3) c[b] = w[(b + 1) %% gridDim.x + 256 * (round & 1)];
    }
"""


@pytest.mark.parametrize("flavour", quick_first(["checked", "plain"], 1))
def test_blocks_pass_the_grids_own_barrier(emulator, flavour):
    body = GRID_SYNC % "grid.sync();"
    results = runs(emulator, body, head=GRID_HEAD, flavour=flavour, grid=48, block=64)
    only_right(results)
    for result in results:
        assert (result.outputs["c"].view(np.float32)[:48] == 3).all()
    without = GRID_SYNC % "__syncthreads();"
    if flavour == "checked":
        assert all_find(runs(emulator, without, head=GRID_HEAD, grid=8, block=64), "race")


def test_a_block_that_does_not_come_to_the_grids_barrier_is_a_deadlock(emulator):
    body = "if (b == 2) return;\ngrid.sync();"
    (result,) = runs(emulator, body, head=GRID_HEAD, grid=4, block=64, orders=("forward",))
    (fault,) = result.faults
    assert fault.kind == "deadlock" and fault.where == ("test.cu", 7)
    assert "in a loop that reads the grid's barrier" in fault.sentence


LOOK_BACK = """
    volatile unsigned* flag = w;
    %s unsigned* sum = w + 256;
    if (t) return;
    unsigned before = 0;
    if (b) { while (flag[b - 1] == 0) { } %s before = sum[b - 1]; }
    sum[b] = before + 1;
    %s
    flag[b] = 1;
    c[b] = before + 1;
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_look_back_over_volatile_flags_ends_right(emulator, workers):
    fence = "__threadfence();"
    results = runs(emulator, LOOK_BACK % ("", fence, fence), grid=40, workers=workers)
    only_right(results)
    for result in results:
        assert result.outputs["c"].view(np.float32)[:40].tolist() == list(range(1, 41))
    for kinds in found(runs(emulator, LOOK_BACK % ("", fence, ""), grid=40, workers=workers)):
        assert kinds == {"race"}


SEMAPHORE = """
    if (t == 0) { while (atomicCAS(w, unsigned(%s), unsigned(b)) != %s) { } __threadfence(); }
    __syncthreads();
    c[t] += a[t];
    __syncthreads();
    if (t == 0) { __threadfence(); atomicExch(w, b %s); }
"""


def test_blocks_that_take_turns_by_a_semaphore_end_right(emulator):
    results = runs(emulator, SEMAPHORE % ("b", "b", "+ 1"), grid=24, block=64)
    only_right(results)
    for result in results:
        assert (result.outputs["c"].view(np.float32)[:64] == 24).all()


@pytest.mark.parametrize("flavour", quick_first(["checked", "counted"], 1))
@pytest.mark.parametrize("load", quick_first([VOLATILE_LOAD, ATOMIC_LOAD], 1))
def test_a_flag_that_nobody_sets_is_a_deadlock_with_its_line_and_all_findings(
    emulator, flavour, load
):
    body = f"c[0] = t;\nif (t == 1)\n    while ({load} == 0) {{ }}\n__syncthreads();"
    (result,) = runs(emulator, body, flavour=flavour, grid=3, orders=("forward",))
    (fault,) = result.faults
    assert fault.kind == "deadlock" and fault.where == ("test.cu", 6)
    assert "threads (1, 0, 0) in a loop that reads 'w' at +0, which stays 0, at test.cu:6" in (
        fault.sentence
    )
    assert "in __syncthreads at test.cu:7" in fault.sentence
    assert flavour == "counted" or {finding.kind for finding in result.findings} == {
        "race",
        "deadlock",
    }


@pytest.mark.slow
def test_more_blocks_than_are_resident_cannot_all_meet(emulator):
    body = """
    if (t == 0) { atomicAdd(w, 1); while (atomicAdd(w, 0) < gridDim.x) { } }
"""
    (result,) = runs(emulator, body, grid=400, flavour="counted", orders=("forward",))
    (fault,) = result.faults
    assert fault.kind == "deadlock" and "268 of 400 blocks have not started" in fault.sentence


@pytest.mark.slow
@pytest.mark.parametrize("flavour", quick_first(["checked", "plain"], 1))
def test_an_endless_loop_ends_with_its_line_and_all_findings(emulator, flavour):
    body = "c[0] = t;\nif (t == 3)\n    for (volatile int again = 1; again;) { }\n__syncthreads();"
    first, after = runs(
        emulator, body, flavour=flavour, orders=("forward", "reverse"), deadline_s=0.5
    )
    assert (first.status, after.status) == ("timeout", "not_run")
    (fault,) = first.faults
    assert fault.kind == "timeout" and fault.where == ("test.cu", 6)
    assert fault.thread == (3, 0, 0) and "in __syncthreads at test.cu:7" in fault.sentence
    assert flavour == "plain" or {finding.kind for finding in first.findings} == {"race"}
