// A cluster on one worker: its blocks run in turns, each until none of its threads can go on. A launch that
// names no cluster has clusters of one block. A worker has several clusters only when one waits for another.
#pragma once
#include <memory>
#include <vector>

#include "block.h"
#include "context.h"

namespace gf_emulator {

// PTX ISA, "barrier.cluster": all living threads of a cluster arrive, and wait, in this order, once a phase.
class ClusterBarrier {
public:
    void reset();
    // A relaxed arrival releases what its thread had fenced, and nothing else.
    void arrive(Cluster& cluster, Fiber& fiber, bool relaxed, const void* site);
    void wait(Cluster& cluster, Fiber& fiber, const void* site);
    // A thread that exited is not waited for; an arrival that it left is taken back.
    void thread_exits(Cluster& cluster, const Fiber& fiber);
    // Before the first meeting a block may not have started yet.
    bool was_met() const { return phase_ > 0; }

private:
    void complete_if_all_came(Cluster& cluster);
    void releases(Cluster& cluster, Block& block, Fiber& fiber, bool relaxed);

    // A phase with relaxed arrivals orders what its threads released, as an atomic on `address` would.
    struct Relaxed {
        bool any = false;
        const void* address = nullptr;
        std::vector<Clocks::Row> by_rank;
    };
    struct Arrival {
        Block* block;
        Fiber* fiber;
    };

    unsigned arrived_ = 0;
    std::uint32_t phase_ = 0;
    std::vector<Fiber*> waiting_;
    std::vector<Arrival> releasing_;  // in this phase, before any relaxed arrival
    Relaxed relaxed_, ended_;         // in this phase, and in the one before
};

class Cluster {
public:
    enum class State { progressed, waits, ended };

    // `beside`: how many clusters the worker had before this one.
    Cluster(Worker& worker, unsigned beside) : worker_(worker), beside_(beside) { reserve(1); }

    // Between `begin` and `end` of a launch the blocks' shared memories stand ready.
    void begin(const Launch& launch);
    void end();
    // Starts the index-th cluster of the launch.
    void start(const Launch& launch, std::uint64_t index, bool counts = true);
    bool counts() const { return counts_; }
    // One turn for each block that can go on. The cluster has ended when all its threads have, when one of its blocks
    // is abandoned, and when none can go on. It waits when all its threads wait for others in loops or at barriers.
    State advance(const Launch& launch);
    void report_deadlock(const std::string& why);
    bool abandoned() const { return current_->abandoned(); }
    std::uint64_t index() const { return index_; }
    StackPool& stacks() { return stacks_; }

    Worker& worker() { return worker_; }
    Block& current() { return *current_; }
    unsigned size() const { return size_; }
    unsigned alive() const;
    ClusterBarrier& barrier() { return barrier_; }
    // Where `address`, in the running block's shared memory, lies in that of block `rank`.
    void* map_shared(void* address, unsigned rank, const void* site);
    // The block `rank`, to whose shared memory the running block names a place by an address in its own.
    Block& block_of_rank(const void* address, unsigned rank, const void* site);
    // The same block by an address in its shared memory; the run fails where there is none.
    Block& owner(const void* address, const void* site);
    // The block in whose shared memory all the bytes lie; null when there is none.
    Block* owner_of(const void* address, unsigned bytes);
    // All of the cluster have met at its barrier; `relaxed`: some of them without a release.
    void met(bool relaxed);

    // What of this cluster's shared memory lies at or near `address`; empty when nothing does.
    std::string describe(const void* address) const;

private:
    void reserve(unsigned size);
    void must_be_there(Block& block, const void* site);
    void enter(Block& block);

    Worker& worker_;
    const unsigned beside_;
    StackPool stacks_;
    std::uint64_t index_ = 0;
    std::uint64_t round_ = 0;
    bool counts_ = true;  // in a counted run
    unsigned size_ = 1;
    std::vector<std::unique_ptr<Block>> blocks_;
    Block* current_ = nullptr;
    ClusterBarrier barrier_;
};

}  // namespace gf_emulator
