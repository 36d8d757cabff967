// What the asynchronous proxy does to a block's shared memory: bulk and tensor copies, and the operands of wgmma. It
// works in pieces of 16 bytes, the cells of ShadowMemory. A block that never uses it has no such record.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "clocks.h"
#include "findings.h"

namespace gf_emulator {

class Checker;

// The end of one or more asynchronous operations, and which threads of the block have seen it: by waiting for the
// phase of an mbarrier, for a group of bulk copies, or for a group of matrix products.
struct Completion {
    const Checker& of;                  // the block of those threads
    std::vector<Clocks::Time> seen;     // by thread; 0: has not
    std::shared_ptr<Completion> later;  // the next phase's: whoever knows of it knows of this

    Completion(const Checker& of, unsigned threads) : of(of), seen(threads, 0) {}
    // One after the other: a long chain would overflow a fiber's stack.
    ~Completion() {
        while (later && later.use_count() == 1) later = std::shared_ptr<Completion>(std::move(later->later));
    }
};

// One asynchronous operation: who issued it, and what ends it.
struct AsyncOperation {
    Party party;
    std::shared_ptr<Completion> end;
    unsigned agent = 0;  // a thread's stores end in their order, and so do a warpgroup's products

    bool ends_before(const AsyncOperation& next) const {
        return end == next.end ||
               (agent == next.agent && party.action == next.party.action && !ends_at_a_barrier && !next.ends_at_a_barrier);
    }
    bool ends_at_a_barrier = false;  // each copy for itself
};

class AsyncShadow {
public:
    struct GenericWrite {
        unsigned thread;
        Clocks::Time time;
        std::uint32_t site;
    };
    struct Cell {
        std::shared_ptr<AsyncOperation> write;               // the last one
        std::vector<std::shared_ptr<AsyncOperation>> reads;  // since then, without those that end before others
        std::vector<GenericWrite> generic_writes;            // since then, the last of each thread
        Party barrier_site{};                                // the mbarrier_init of the barrier that lies here
        std::uint8_t barrier_bytes = 0;                      // one bit for each 8 of the 16 bytes
    };

    bool used() const { return used_; }
    void start_block() {
        if (used_) cells_.clear();
        used_ = false;
    }
    void open(std::size_t cells) {
        cells_.resize(cells);
        used_ = true;
    }
    Cell& cell(std::size_t number) { return cells_[number]; }
    std::size_t size() const { return cells_.size(); }

private:
    bool used_ = false;
    std::vector<Cell> cells_;
};

}  // namespace gf_emulator
