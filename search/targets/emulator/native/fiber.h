// One CUDA thread.
#pragma once
#include <cstdint>
#include <vector>

#include "gf_emulator/abi.h"
#include "context.h"

namespace gf_emulator {

class Warp;

// A started cp.async. Nothing of it is in shared memory before the wait.
struct AsyncCopy {
    char* destination;
    const char* source;
    int bytes;
    int valid_bytes;
    std::uint32_t group;
    const void* site;
    std::uint32_t issued = 0;  // by the clock of a checked block
    unsigned arrival = 0;  // the thread's arrival at an mbarrier that comes when the copy is done; 0: none
};

// How a thread waits for others in a loop of its own: it reads a word again and again.
struct Spin {
    static constexpr unsigned words = 8;           // that one loop may read in turns
    static constexpr unsigned reads_before_yield = 8;
    struct Read {
        const void* address = nullptr;
        std::uint64_t value = 0;
    };
    Read last[words];
    unsigned unchanged = 0;       // reads since one of them found another value
    unsigned waits = 0;           // times that it gave way since then
    const void* address = nullptr;  // of the last read
    unsigned bytes = 0;
    const void* site = nullptr;

    static unsigned place(const void* address) {
        return unsigned(std::uintptr_t(address) * 0x9E3779B97F4A7C15ull >> 61);
    }
    void start() { *this = Spin(); }
};

struct Fiber {
    Context context;
    Warp* warp = nullptr;
    unsigned thread = 0;  // in the block, linear
    unsigned lane = 0;
    uint3 thread_index{};

    const void* site = nullptr;         // where it last entered the runtime
    const char* waiting_for = nullptr;  // the operation it stands in, while it is not ready
    unsigned waiting_mask = 0;
    unsigned named_barrier = 0;  // that it waits for; 0: none

    // What this lane brings to a collective, and what it takes away.
    std::uint64_t value = 0;
    int lane_argument = 0;
    int width = 32;
    std::uint64_t result = 0;

    // How many warp-synchronous operations it went through: all lanes of a warp must agree on it.
    std::uint32_t aligned_operations = 0;

    std::vector<AsyncCopy> copies;
    std::uint32_t copy_group = 0;  // the open one
    unsigned copy_arrivals = 0;    // at mbarriers, when copies are done
    unsigned atomics_since_yield = 0;
    std::uint32_t bulk_group = 0;  // the open one, of bulk stores
    const void* mbarrier = nullptr;  // that it waits for, with ...
    unsigned mbarrier_parity = 0;

    bool cluster_arrived = false;  // at its cluster's barrier, in this phase, and has not waited yet
    std::uint32_t cluster_phase = 0;

    Spin spin;
};

}  // namespace gf_emulator
