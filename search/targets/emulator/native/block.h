// One block on one worker: its warps and barriers, and the choice of who runs next.
#pragma once
#include <cstdint>
#include <vector>

#include "barrier.h"
#include "order.h"
#include "warp.h"

namespace gf_emulator {

struct Launch;

class Block {
public:
    explicit Block(Worker& worker) : worker_(worker) {}

    // Runs block `index` of the launch to its end, or until it is abandoned.
    void run(const Launch& launch, std::uint64_t index);

    // --- for the fiber that is running ---
    Fiber& current() { return *current_; }
    bool inside_fiber() const { return current_ != nullptr; }
    void run_next();  // gives way; returns when this fiber's turn comes again
    void yield();     // stays ready, but every other ready fiber goes first
    [[noreturn]] void exit_thread();
    [[noreturn]] void abandon();  // drop the whole block where it stands

    // --- for warps and barriers ---
    Worker& worker() { return worker_; }
    unsigned alive() const { return alive_; }
    BlockBarrier& barrier() { return barrier_; }
    void warp_is_ready(unsigned warp, bool ready) {
        ready_warps_ = ready ? ready_warps_ | 1u << warp : ready_warps_ & ~(1u << warp);
    }
    void release_all(std::uint64_t result);

    uint3 block_index() const { return block_index_; }

private:
    void start(const Launch& launch, std::uint64_t index);
    unsigned warp_count() const { return (thread_count_ + 31) / 32; }
    Fiber* next_ready();
    void report_deadlock();

    Worker& worker_;
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    std::vector<Fiber*> yielded_;
    BlockBarrier barrier_;
    Order order_;
    uint3 block_index_{};
    unsigned thread_count_ = 0;
    unsigned alive_ = 0;
    std::uint32_t ready_warps_ = 0;
    bool abandoned_ = false;
    Fiber* current_ = nullptr;
    Context outside_;
};

}  // namespace gf_emulator
