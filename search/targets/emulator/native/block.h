// One block on one worker: its warps and barriers, and the choice of who runs next.
#pragma once
#include <cstdint>
#include <vector>

#include "barrier.h"
#include "bulk_copy.h"
#include "checker.h"
#include "mbarrier.h"
#include "named_barrier.h"
#include "order.h"
#include "register_budget.h"
#include "report.h"
#include "shared_memory.h"
#include "warp.h"
#include "warpgroup.h"

namespace gf_emulator {

class Cluster;
struct Launch;

class Block {
public:
    Block(Worker& worker, unsigned rank) : worker_(worker), rank_(rank), checker_(*this) {}

    // --- for its cluster ---
    void start(const Launch& launch, std::uint64_t index);
    bool can_go_on() const {
        return !abandoned_ && (ready_warps_ || !yielded_.empty() || bulk_copies_.under_way());
    }
    bool take_progress();  // whether a thread did more than wait in a loop since the last call
    void resume();  // runs its threads until none can go on alone, or until it is abandoned
    void finish();  // after its last thread
    bool abandoned() const { return abandoned_; }
    void report_deadlock(const std::string& why = "");
    std::vector<Fault::Waiting> waiting_beside(const Fiber& running) const;  // some of those that wait
    unsigned rank() const { return rank_; }

    // --- for the fiber that is running ---
    Fiber& current() { return *current_; }
    // Of what the running fiber causes, and another one did.
    template <class Action>
    void on_behalf_of(Fiber& other, const Action& action) {
        checker_.settle();
        Fiber* const self = current_;
        current_ = &other;
        action();
        checker_.settle();
        current_ = self;
    }
    bool inside_fiber() const { return current_ != nullptr; }
    void run_next();  // gives way; returns when this fiber's turn comes again
    void yield();     // stays ready, but every other ready fiber goes first
    // The running thread read `value`; it gives way where it has read the same too often. Whether it waits for
    // another block is seen from what the whole block does. True where the value is another one than last time.
    bool reads_flag(const void* address, unsigned bytes, std::uint64_t value, const void* site) {
        Spin& spin = current_->spin;
        Spin::Read& last = spin.last[Spin::place(address)];
        spin.address = address, spin.bytes = bytes, spin.site = site;
        if (last.address != address || last.value != value) {
            if (last.address == address) progresses();
            last = {address, value};
            spin.unchanged = spin.waits = 0;
            return true;
        }
        if (++spin.unchanged >= Spin::reads_before_yield) pause();
        return false;
    }
    void pause();  // gives way to the other threads, and then to other blocks
    void pause_for_others();  // other blocks get their turn now, though this thread could go on
    // In the seeded order of a checked run: other blocks see what it stored to global memory before, and not yet this.
    void pause_before_flag(const void* address) {
        if (order_.is_seeded() && !shared_.contains(address)) pause_for_others();
    }
    void pause_behind_read(const void* address);  // in the seeded order: others may change what the thread has read
    void progresses();  // it did what others may wait for
    [[noreturn]] void exit_thread();
    [[noreturn]] void abandon();  // drop the whole block where it stands

    // --- for warps and barriers ---
    Worker& worker() { return worker_; }
    SharedMemory& shared() { return shared_; }
    Checker& checker() { return checker_; }
    Fiber* const* running() const { return &current_; }
    Fiber& fiber(unsigned thread) { return fibers_[thread]; }
    unsigned thread_count() const { return thread_count_; }
    unsigned alive() const { return alive_; }
    BlockBarrier& barrier() { return barrier_; }
    NamedBarriers& named_barriers() { return named_barriers_; }
    Mbarriers& mbarriers() { return mbarriers_; }
    BulkCopies& bulk_copies() { return bulk_copies_; }
    Warpgroups& warpgroups() { return warpgroups_; }
    RegisterBudget& register_budget() { return register_budget_; }
    // One of `count` things (32 at most), or of the set bits: the first, the last, or as the seed says.
    unsigned choose(unsigned count) { return choose_bit(count == 32 ? ~0u : (1u << count) - 1); }
    unsigned choose_bit(std::uint32_t bits) { return order_.pick(bits); }
    const Order& order() const { return order_; }
    void warp_is_ready(unsigned warp, bool ready) {
        ready_warps_ = ready ? ready_warps_ | 1u << warp : ready_warps_ & ~(1u << warp);
    }
    void release_all(std::uint64_t result);

    uint3 block_index() const { return block_index_; }

private:
    unsigned warp_count() const { return (thread_count_ + 31) / 32; }
    Fiber* next_ready();
    void wake_yielded();
    Fault::Waiting waiting(const Fiber& fiber) const;

    Worker& worker_;
    const unsigned rank_;  // in its cluster
    SharedMemory shared_;
    Checker checker_;
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    std::vector<Fiber*> yielded_;
    unsigned paused_ = 0;  // of the yielded ones
    bool progressed_ = false;
    BlockBarrier barrier_;
    NamedBarriers named_barriers_;
    Mbarriers mbarriers_;
    BulkCopies bulk_copies_;
    Warpgroups warpgroups_;
    RegisterBudget register_budget_;
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
