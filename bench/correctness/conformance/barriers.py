"""Barriers: mbarriers, those of clusters and of parts of a block; registers that change hands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.correctness.conformance.case import Case, blank

# One thread asks a barrier for both parities after each step; two bits an answer, the even one
# first. The first phase has parity 0, so at the start "1" is over.
ONE_THREAD = """
#include "gf/mbarrier.cuh"
__device__ __forceinline__ bool tested(unsigned long long* barrier, unsigned parity) {
    unsigned over;
    asm volatile(
        "{\\n.reg .pred over;\\nmbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\\n"
        "selp.u32 %0, 1, 0, over;\\n}"
        : "=r"(over)
        : "r"(gf::shared_address(barrier)), "r"(parity)
        : "memory");
    return over;
}
__device__ __forceinline__ unsigned over(unsigned long long* barrier) {
    const unsigned even = gf::mbarrier_try_wait(barrier, 0);
    const unsigned odd = gf::mbarrier_try_wait(barrier, 1);
    return even | odd << 1 | (tested(barrier, 0) | tested(barrier, 1) << 1) << 2;
}
#define ON_BARRIER(text, ...) \\
    asm volatile(text ::"r"(gf::shared_address(&barrier))__VA_ARGS__ : "memory")
extern "C" __global__ void k(unsigned* counted, unsigned* several, unsigned* dropped,
                             unsigned* bytes, unsigned* states, unsigned* again) {
    __shared__ unsigned long long barrier;
    if (threadIdx.x) return;
    gf::mbarrier_init(&barrier, 3);
    *counted++ = over(&barrier);
    for (int i = 0; i < 14; i++) {
        gf::mbarrier_arrive(&barrier);
        *counted++ = over(&barrier);
    }
    gf::mbarrier_invalidate(&barrier);

    gf::mbarrier_init(&barrier, 7);
    for (int i = 0; i < 6; i++) {
        ON_BARRIER("mbarrier.arrive.shared::cta.b64 _, [%0], 5;");
        *several++ = over(&barrier);
        ON_BARRIER("mbarrier.arrive.shared::cta.b64 _, [%0], 2;");
        *several++ = over(&barrier);
    }
    gf::mbarrier_invalidate(&barrier);

    // Each arrival that drops out leaves one less for the phases behind.
    gf::mbarrier_init(&barrier, 4);
    for (int i = 0; i < 3; i++) {
        ON_BARRIER("mbarrier.arrive_drop.shared::cta.b64 _, [%0];");
        *dropped++ = over(&barrier);
        for (int left = 3 - i; left > 0; left--) {
            gf::mbarrier_arrive(&barrier);
            *dropped++ = over(&barrier);
        }
    }
    gf::mbarrier_invalidate(&barrier);

    // Bytes may be told in parts, and may come before they are expected.
    gf::mbarrier_init(&barrier, 2);
    gf::mbarrier_expect_bytes_only(&barrier, 100);
    *bytes++ = over(&barrier);
    gf::mbarrier_expect_bytes(&barrier, 28);
    *bytes++ = over(&barrier);
    ON_BARRIER("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 128;");
    *bytes++ = over(&barrier);
    gf::mbarrier_arrive(&barrier);
    *bytes++ = over(&barrier);
    ON_BARRIER("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;");
    gf::mbarrier_arrive(&barrier);
    *bytes++ = over(&barrier);
    gf::mbarrier_expect_bytes(&barrier, 64);
    *bytes++ = over(&barrier);
    ON_BARRIER("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;");
    *bytes++ = over(&barrier);
    gf::mbarrier_expect_bytes_only(&barrier, 1048575);
    ON_BARRIER("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 1048575;");
    *bytes++ = over(&barrier);
    gf::mbarrier_arrive(&barrier);
    gf::mbarrier_arrive(&barrier);
    *bytes++ = over(&barrier);
    gf::mbarrier_invalidate(&barrier);

    // The state of an arrival names its phase.
    gf::mbarrier_init(&barrier, 2);
    for (int i = 0; i < 6; i++) {
        unsigned long long state;
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];"
                     : "=l"(state)
                     : "r"(gf::shared_address(&barrier))
                     : "memory");
        unsigned answers[2];
        for (int late = 0; late < 2; late++) {
            asm volatile(
                "{\\n.reg .pred over;\\nmbarrier.test_wait.shared::cta.b64 over, [%1], %2;\\n"
                "selp.u32 %0, 1, 0, over;\\n}"
                : "=r"(answers[late])
                : "r"(gf::shared_address(&barrier)), "l"(state)
                : "memory");
            if (late == 0) gf::mbarrier_arrive(&barrier);
        }
        *states++ = answers[0] | answers[1] << 1;
        if (i % 2) continue;
        gf::mbarrier_arrive(&barrier);
        gf::mbarrier_arrive(&barrier);
    }
    gf::mbarrier_invalidate(&barrier);

    // The most arrivals that a phase takes.
    gf::mbarrier_init(&barrier, 1048575);
    ON_BARRIER("mbarrier.arrive.shared::cta.b64 _, [%0], %1;", , "r"(1048574));
    *again++ = over(&barrier);
    gf::mbarrier_arrive(&barrier);
    *again++ = over(&barrier);
    gf::mbarrier_invalidate(&barrier);
    *reinterpret_cast<volatile unsigned long long*>(&barrier) = 5;
    *again++ = unsigned(barrier);
    gf::mbarrier_init(&barrier, 1);
    *again++ = over(&barrier);
    gf::mbarrier_arrive(&barrier);
    *again++ = over(&barrier);
}
"""


def answers(phase: int) -> int:
    """What both kinds of wait say in phase `phase` (0 is the first): the parity before is over."""
    return (1 if phase % 2 else 2) * 0b101


def one_thread() -> Case:
    counted = [answers(arrivals // 3) for arrivals in range(15)]
    several = [answers(step // 2) for step in range(1, 13)]
    dropped = []
    for phase, left in enumerate((4, 3, 2)):
        dropped += [*[answers(phase)] * (left - 1), answers(phase + 1)]
    bytes_ = [answers(phase) for phase in (0, 0, 0, 1, 1, 1, 2, 2, 3)]
    expected = {
        "counted": counted,
        "several": several,
        "dropped": dropped,
        "bytes": bytes_,
        "states": [2] * 6,
        "again": [answers(0), answers(1), 5, answers(0), answers(1)],
    }
    arrays = {name: np.array(each, np.uint32) for name, each in expected.items()}
    return Case(
        "mbarriers of one thread",
        ONE_THREAD,
        {},
        {name: blank(np.uint32, each.size) for name, each in arrays.items()},
        architecture=90,
        expected=arrays,
    )


# Producers and consumers of a ring, whose full and empty barriers pass many phases; the copies
# come by cp.async, whose arrivals either are among those of the phase or come on top.
RING = """
#include "gf/mbarrier.cuh"
#include "gf/async_copy.cuh"
constexpr int stages = 3, rounds = 11;
extern "C" __global__ void __launch_bounds__(128) k(const unsigned* source, unsigned* sums,
                                                    unsigned* own) {
    alignas(16) __shared__ unsigned tiles[stages][128];
    __shared__ unsigned long long full[stages], empty[stages], noted;
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < stages; i++) {
            gf::mbarrier_init(full + i, i == 1 ? 1 : 32);
            gf::mbarrier_init(empty + i, 96);
        }
        gf::mbarrier_init(&noted, 128);
        gf::mbarrier_init_fence();
    }
    __syncthreads();
    if (thread < 32) {
        for (int round = 0; round < rounds; round++) {
            const int stage = round % stages;
            gf::mbarrier_wait(empty + stage, round / stages % 2 ^ 1);
            gf::async_copy<16>(&tiles[stage][thread * 4], source + round * 128 + thread * 4, 16);
            if (stage == 1) {  // 32 arrivals come on top of the one that is expected
                asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(
                                 gf::shared_address(full + stage))
                             : "memory");
                __syncwarp();
                if (thread == 0) gf::mbarrier_arrive(full + stage);
            } else {
                asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                                 gf::shared_address(full + stage))
                             : "memory");
            }
        }
    } else {
        unsigned sum = 0;
        for (int round = 0; round < rounds; round++) {
            const int stage = round % stages;
            gf::mbarrier_wait(full + stage, round / stages % 2);
            const unsigned value = tiles[stage][thread] + tiles[stage][thread - 32];
            sum = sum * 3 + value;
            gf::mbarrier_arrive(empty + stage);
        }
        sums[thread - 32] = sum;
    }
    // What was written before an arrival is there after the wait.
    __syncthreads();
    tiles[0][thread] = source[thread] * 5;
    gf::mbarrier_arrive(&noted);
    gf::mbarrier_wait(&noted, 0);
    own[thread] = tiles[0][127 - thread];
}
"""


def ring() -> Case:
    source = np.random.default_rng(60).integers(0, 2**32, (11, 128), dtype=np.uint32)
    sums = np.zeros(96, np.uint32)
    for row in source:
        sums = sums * np.uint32(3) + row[32:] + row[:-32]
    return Case(
        "mbarriers of a ring of stages",
        RING,
        {"source": source},
        {"sums": blank(np.uint32, 96), "own": blank(np.uint32, 128)},
        block=(128, 1, 1),
        architecture=90,
        expected={"sums": sums, "own": source[0, ::-1] * np.uint32(5)},
    )


# Arrivals at other blocks' barriers: every thread at each block's, by both primitives; bytes that
# another block expects; and the barrier of the cluster, passed many times.
REMOTE = """
#include "gf/cluster.cuh"
#include "gf/mbarrier_remote.cuh"
#include "gf/tensor_copy.cuh"
constexpr int blocks = %(blocks)d;
extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(64)
k(const unsigned* source, unsigned* seen, unsigned* copied, unsigned* passed) {
    alignas(128) __shared__ unsigned tile[64];
    __shared__ unsigned written[blocks * 2][64];
    __shared__ unsigned round_of[64];
    __shared__ unsigned long long barrier, readers, bytes;
    const unsigned thread = threadIdx.x, rank = gf::cluster_rank();
    if (thread == 0) {
        gf::mbarrier_init(&barrier, blocks * 64);
        gf::mbarrier_init(&readers, blocks);
        gf::mbarrier_init(&bytes, 2);
        gf::mbarrier_init_fence();
    }
    round_of[thread] = 0;
    gf::cluster_sync();
    for (unsigned round = 0; round < 5; round++) {
        const unsigned half = round %% 2 * blocks;
        for (unsigned to = 0; to < blocks; to++) {
            gf::map_shared_rank(written[half + rank], to)[thread] =
                source[(blockIdx.x * 64 + thread + 7 * round) %% 256] + to;
            gf::mbarrier_arrive_rank(&barrier, to);
        }
        gf::mbarrier_wait(&barrier, round & 1);
        unsigned sum = 0;
        for (unsigned from = 0; from < blocks; from++)
            sum = sum * 5 + written[half + from][63 - thread];
        seen[(blockIdx.x * 5 + round) * 64 + thread] = sum;
        __syncthreads();
        if (thread < blocks) gf::mbarrier_arrive_rank_reader(&readers, thread);
        gf::mbarrier_wait(&readers, round & 1);
    }
    // The block before this one expects this one's bytes, and arrives for them.
    if (thread == 0) {
        asm volatile(
            "{\\n.reg .b32 there;\\nmapa.shared::cluster.u32 there, %%0, %%1;\\n"
            "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [there], 256;\\n}"
            ::"r"(gf::shared_address(&bytes)),
            "r"((rank + 1) %% blocks)
            : "memory");
        gf::bulk_load(tile, source + blockIdx.x %% 4 * 64, 256, &bytes);
        gf::mbarrier_arrive(&bytes);
    }
    gf::mbarrier_wait(&bytes, 0);
    copied[blockIdx.x * 64 + thread] = tile[thread] ^ rank;
    unsigned sum = 0;
    for (unsigned round = 1; round < 8; round++) {
        const unsigned other = (rank + round) %% blocks;
        *gf::map_shared_rank(round_of + thread, other) = round * 16 + rank;
        gf::cluster_arrive();
        const unsigned between = source[thread] + round;
        gf::cluster_wait();
        sum = sum * 3 + round_of[thread] + between;
        gf::cluster_sync();
    }
    passed[blockIdx.x * 64 + thread] = sum;
}
"""


def remote(blocks: int) -> Case:
    source = np.random.default_rng(61).integers(0, 2**32, 256, dtype=np.uint32)
    grid, thread = 2 * blocks, np.arange(64)
    seen = np.zeros((grid, 5, 64), np.uint32)
    copied, passed = np.zeros((grid, 64), np.uint32), np.zeros((grid, 64), np.uint32)
    three, five = np.uint32(3), np.uint32(5)
    for block in range(grid):
        first, rank = block // blocks * blocks, block % blocks
        for round_ in range(5):
            for sender in range(blocks):
                places = ((first + sender) * 64 + thread + 7 * round_) % 256
                value = source[places] + np.uint32(rank)
                seen[block, round_] = seen[block, round_] * five + value[::-1]
        copied[block] = source[block % 4 * 64 + thread] ^ np.uint32(rank)
        for round_ in range(1, 8):
            sender = (rank - round_) % blocks
            note = np.uint32(round_ * 16 + sender + round_)
            passed[block] = passed[block] * three + note + source[thread]
    return Case(
        f"mbarriers and barriers of clusters of {blocks}",
        REMOTE % {"blocks": blocks},
        {"source": source},
        {
            "seen": blank(np.uint32, *seen.shape),
            "copied": blank(np.uint32, *copied.shape),
            "passed": blank(np.uint32, *passed.shape),
        },
        grid=(grid, 1, 1),
        block=(64, 1, 1),
        cluster=(blocks, 1, 1),
        architecture=90,
        expected={"seen": seen, "copied": copied, "passed": passed},
    )


# Barriers of parts of the block: warps 0 and 1 write for 2 and 3, back and forth, by two pairs of
# barriers; and one of three warps.
NAMED = """
#include "gf/named_barrier.cuh"
extern "C" __global__ void __launch_bounds__(128) k(const unsigned* source, unsigned* out) {
    __shared__ unsigned there[64], three[96];
    const int thread = threadIdx.x, place = thread % 64;
    unsigned sum = 0;
    for (int round = 0; round < 6; round++)
        if (thread < 64) {
            there[place] = source[place] * (round + 1);
            gf::named_barrier_arrive(1, 128);
            gf::named_barrier_sync(2, 128);
        } else {
            gf::named_barrier_sync(1, 128);
            sum = sum * 3 + there[63 - place];
            gf::named_barrier_arrive(2, 128);
        }
    if (thread >= 32) {
        three[thread - 32] = source[thread];
        gf::named_barrier_sync(15, 96);
        sum += three[127 - thread];
    }
    out[thread] = sum;
}
"""


def named() -> Case:
    source = np.random.default_rng(62).integers(0, 2**32, 128, dtype=np.uint32)
    out = np.zeros(128, np.uint32)
    for round_ in range(6):
        out[64:] = out[64:] * np.uint32(3) + source[63::-1] * np.uint32(round_ + 1)
    out[32:] += source[:31:-1]
    return Case(
        "barriers of parts of a block",
        NAMED,
        {"source": source},
        {"out": blank(np.uint32, 128)},
        block=(128, 1, 1),
        architecture=80,
        expected={"out": out},
    )


# One warpgroup gives registers back, and two take them; what they hold must stay. The lane that
# `elect` chooses is one, and the same at each call. A launch that depends on none waits for none.
REGISTERS = """
#include "gf/dependent_launch.cuh"
#include "gf/elect.cuh"
#include "gf/register_budget.cuh"
extern "C" __global__ void __launch_bounds__(384, 1) k(const unsigned* source, unsigned* kept,
                                                       unsigned* elected) {
    gf::dependent_launch_wait();
    const int thread = threadIdx.x;
    const bool first = gf::elect_thread();
    elected[thread / 32 * 2] = __popc(__ballot_sync(~0u, first));
    const bool second = gf::elect_thread();
    elected[thread / 32 * 2 + 1] = __all_sync(~0u, first == second);
    if (thread < 128) {
        unsigned some[8];
        for (int i = 0; i < 8; i++) some[i] = source[thread + i];
        gf::register_shrink<24>();
        unsigned sum = 0;
        for (int i = 0; i < 8; i++) sum = sum * 3 + some[i];
        kept[thread] = sum;
    } else {
        unsigned many[96];
        for (int i = 0; i < 96; i++) many[i] = source[thread + i];
        gf::register_grow<240>();
        for (int pass = 0; pass < 3; pass++)
#pragma unroll
            for (int i = 0; i < 96; i++) many[i] = many[i] * 3 + many[(i + 1) % 96];
        unsigned sum = 0;
#pragma unroll
        for (int i = 0; i < 96; i++) sum = sum * 5 + many[i];
        kept[thread] = sum;
    }
    gf::dependent_launch_allow();
}
"""


def registers() -> Case:
    source = np.random.default_rng(63).integers(0, 2**32, 480, dtype=np.uint32)
    kept = np.zeros(384, np.uint32)
    three, five = np.uint32(3), np.uint32(5)
    for i in range(8):
        kept[:128] = kept[:128] * three + source[i : i + 128]
    many = [source[128 + i : 384 + i] for i in range(96)]
    for _ in range(3):
        for i in range(96):
            many[i] = many[i] * three + many[(i + 1) % 96]
    for each in many:
        kept[128:] = kept[128:] * five + each
    return Case(
        "registers that change hands, and an elected lane",
        REGISTERS,
        {"source": source},
        {"kept": blank(np.uint32, 384), "elected": blank(np.uint32, 12, 2)},
        block=(384, 1, 1),
        architecture=90,
        arch_specific=True,
        expected={"kept": kept, "elected": np.ones((12, 2), np.uint32)},
    )


def barriers() -> Iterator[Case]:
    yield one_thread()
    yield ring()
    for blocks in (2, 4):
        yield remote(blocks)
    yield named()
    yield registers()
