// The block's numbered barriers (PTX ISA, "bar, barrier": bar.sync and bar.arrive with a thread count). Number
// 0 is that of __syncthreads.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "clocks.h"
#include "fiber.h"

namespace gf_emulator {

class Block;

class NamedBarriers {
public:
    static constexpr unsigned count = 16;

    void reset() { barriers_ = {}; }
    // The fiber arrives; with `wait` it returns when `thread_count` threads have.
    void meet(Block& block, Fiber& fiber, unsigned id, unsigned thread_count, bool wait, const void* site);
    std::string describe(unsigned id) const;

private:
    struct Barrier {
        unsigned expected = 0;
        unsigned arrived = 0;
        Clocks::Row published;  // what those who arrived know and did
        std::vector<Fiber*> waiting;
    };
    void complete(Block& block, Barrier& barrier);

    std::array<Barrier, count> barriers_;
};

}  // namespace gf_emulator
