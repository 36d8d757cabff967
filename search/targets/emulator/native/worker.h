// One OS thread that runs blocks, with all it owns. A block starts and ends on one worker.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "block.h"
#include "cluster.h"
#include "context.h"
#include "counting.h"
#include "launch.h"
#include "report.h"
#include "shared_memory.h"

namespace gf_emulator {

class Worker {
public:
    Worker();

    // The worker of the calling OS thread.
    static Worker& current() { return *current_; }
    static bool exists() { return current_ != nullptr; }
    void adopt_thread() { current_ = this; }

    void run_blocks(const Launch& launch);

    Cluster& cluster() { return *cluster_; }
    Block& block() { return *block_; }
    Fiber& fiber() { return block().current(); }
    StackPool& stacks() { return cluster_->stacks(); }
    // True when the kernel library does not find this block's static shared memory yet.
    bool makes_current(Block& block) {
        const bool other = block_ != &block;
        block_ = &block;
        return other;
    }
    SharedMemory& shared() { return block().shared(); }  // the running block's
    Counting& counting() { return counting_; }
    const Launch& launch() const { return *launch_; }

    // Report and go on. Each kind and site is reported a few times at most.
    void record(Fault fault);
    // Report for the running fiber, then drop its block; the run ends.
    [[noreturn]] void fail(const char* kind, const void* site, const std::string& sentence);
    void note(const char* kind, const void* site, const std::string& sentence);
    void thread_exits(Fiber& fiber);

    // Counts an access of the running fiber, if it is to shared memory or to a buffer.
    void count_access(const void* address, unsigned bytes, bool write, const void* site, bool adds_floats = false);
    // Of the running block, in a checked run; null in others.
    Checker* checker() { return launch_->check ? &block().checker() : nullptr; }
    // Of memory, for a sentence. `shared` is its block's.
    std::string name_of(const void* address, const SharedMemory& shared) const;
    // A run's processor time, of this worker. Without a deadline only the parent ends it.
    void start_clock(double deadline_s);
    bool overdue() const;
    void report_timeout(const void* site);

    // A thread that waited goes on: other workers must know at once, since its turn may be long.
    void progresses() {
        if (!is_busy_) busy(*launch_, true);
    }

    // The running cluster could go on, and others have their turn first.
    void gives_way() { gives_way_ = true; }

    static constexpr unsigned guarded_stacks = 8192;
    static bool any_fault() { return any_fault_; }
    static void start_run();

private:
    // Of the clusters that run beside each other: see run_blocks.
    struct Residents {
        std::vector<Cluster*> waiting;  // each for others, in the order of their last turns
        std::vector<Cluster*> free;
        unsigned idle = 0;       // turns in a row in which none of them did anything
        std::uint64_t rounds = 0;  // of such turns, since anything was done in the launch
        std::uint64_t seen = 0;    // the launch's progress then
        double since_s = 0;
    };
    Cluster* start_next(const Launch& launch, Residents& residents);
    Cluster* next_beside(const Launch& launch, Residents& residents);
    Cluster* next_waiting(const Launch& launch, Residents& residents);
    bool has_room(const Launch& launch, const Residents& residents) const;
    void take_turns(const Launch& launch, Residents& residents, Cluster& cluster);
    void look_for_deadlock(const Launch& launch, Residents& residents);
    void report_standstill(const Launch& launch, const Residents& residents);
    void busy(const Launch& launch, bool now);
    Fault described(const char* kind, const void* site, const std::string& sentence);

    static thread_local Worker* current_ __attribute__((tls_model("initial-exec")));
    static std::atomic<bool> any_fault_;

    std::vector<std::unique_ptr<Cluster>> clusters_;  // more than one only where one waited for another
    Cluster* cluster_;                                // the running one
    Block* block_;                                    // the running one, or the last that ran
    bool is_busy_ = false;
    bool gives_way_ = false;
    double deadline_s_ = 0, used_s_ = 0, began_s_ = 0;
    Counting counting_;
    const Launch* launch_ = nullptr;
};

}  // namespace gf_emulator
