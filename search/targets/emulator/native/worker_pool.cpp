#include "worker_pool.h"

#include "signals.h"
#include "watchdog.h"

namespace gf_emulator {

// The threads live as long as the process, which ends by _exit.
WorkerPool::WorkerPool(unsigned count) : busy_(count) {
    catch_timers();
    for (unsigned i = 0; i < count; i++) {
        workers_.push_back(std::make_unique<Worker>());
        std::thread(&WorkerPool::serve, this, std::ref(*workers_.back())).detach();
    }
    std::unique_lock<std::mutex> lock(mutex_);  // until each has its timer: later that may be refused
    done_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::run(const Launch& launch) {
    std::unique_lock<std::mutex> lock(mutex_);
    launch_ = &launch;
    busy_ = unsigned(workers_.size());
    generation_++;
    work_.notify_all();
    done_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::serve(Worker& worker) {
    worker.adopt_thread();
    give_thread_crash_stack();
    delete new char;  // the allocator makes the thread's arena now
    start_watchdog();
    unsigned seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
    for (;;) {
        work_.wait(lock, [&] { return generation_ != seen; });
        seen = generation_;
        const Launch& launch = *launch_;
        lock.unlock();
        worker.run_blocks(launch);
        lock.lock();
        if (--busy_ == 0) done_.notify_one();
    }
}

}  // namespace gf_emulator
