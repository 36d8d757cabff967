// The OS threads: made once, before any candidate code is loaded, so that the process may then be forbidden
// to make more.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker.h"

namespace gf_emulator {

class WorkerPool {
public:
    // Returns when all threads wait for work: what a thread needs of the system for itself, it has by then.
    explicit WorkerPool(unsigned count);

    // Runs every block of the launch; returns when all workers rest.
    void run(const Launch& launch);
    const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

private:
    void serve(Worker& worker);

    std::mutex mutex_;
    std::condition_variable work_, done_;
    const Launch* launch_ = nullptr;
    unsigned generation_ = 0;
    unsigned busy_ = 0;  // also those that start
    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace gf_emulator
