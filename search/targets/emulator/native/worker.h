// One OS thread that runs blocks, with all it owns. A block starts and ends on one worker.
#pragma once
#include <atomic>
#include <map>
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
    Worker() : cluster_(*this) {}

    // The worker of the calling OS thread.
    static Worker& current() { return *current_; }
    static bool exists() { return current_ != nullptr; }
    void adopt_thread() { current_ = this; }

    void run_blocks(const Launch& launch);

    Cluster& cluster() { return cluster_; }
    Block& block() { return cluster_.current(); }
    Fiber& fiber() { return block().current(); }
    StackPool& stacks() { return stacks_; }
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
    static bool any_fault() { return any_fault_; }
    static void start_run();

private:
    Fault described(const char* kind, const void* site, const std::string& sentence);

    static thread_local Worker* current_ __attribute__((tls_model("initial-exec")));
    static std::atomic<bool> any_fault_;

    Cluster cluster_;
    StackPool stacks_;
    Counting counting_;
    const Launch* launch_ = nullptr;
};

}  // namespace gf_emulator
