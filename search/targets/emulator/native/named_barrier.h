// The block's numbered barriers (PTX ISA, "bar, barrier": bar.sync and bar.arrive with a thread count). Number
// 0 is that of __syncthreads.
#pragma once
#include <array>
#include <string>
#include <map>
#include <vector>

#include "clocks.h"
#include "fiber.h"

namespace gf_emulator {

class Block;

class NamedBarriers {
public:
    static constexpr unsigned count = 16;

    void reset() {
        barriers_ = {};
        tiles_.clear();
    }
    // The fiber arrives; with `wait` it returns when `thread_count` threads have.
    void meet(Block& block, Fiber& fiber, unsigned id, unsigned thread_count, bool wait, const void* site);
    // The same for the tile of `threads` around the fiber, a power of two.
    void meet_tile(Block& block, Fiber& fiber, unsigned threads, const void* site);
    std::string describe(unsigned id) const;

private:
    struct Barrier {
        unsigned expected = 0;
        unsigned arrived = 0;
        Clocks::Row published;  // what those who arrived know and did
        std::vector<Fiber*> waiting;
    };
    void join(Block& block, Fiber& fiber, Barrier& barrier, unsigned id, bool wait);
    void complete(Block& block, Barrier& barrier);

    std::array<Barrier, count> barriers_;
    std::map<unsigned, Barrier> tiles_;  // by numbers from `count` on
};

}  // namespace gf_emulator
