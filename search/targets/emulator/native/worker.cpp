#include "worker.h"

#include <algorithm>

#include "global_memory.h"

namespace gf_emulator {

thread_local Worker* Worker::current_ __attribute__((tls_model("initial-exec"))) = nullptr;
std::atomic<bool> Worker::any_fault_{false};

namespace {

// What this run has reported so far, over all workers.
std::mutex reported_mutex;
std::map<std::pair<std::string, const void*>, int> reported;
constexpr int reports_a_site = 1;
constexpr std::size_t reports_a_run = 32;

}  // namespace

Worker::Worker() : cluster_(clusters_.emplace_back(std::make_unique<Cluster>(*this, 0)).get()), block_(&cluster_->current()) {}

void Worker::start_run() {
    const std::lock_guard<std::mutex> lock(reported_mutex);
    reported.clear();
    Warpgroups::watched = false;
    any_fault_ = false;
}

void Worker::record(Fault fault) {
    const std::lock_guard<std::mutex> lock(reported_mutex);
    if (!fault.note) {
        any_fault_ = true;
        launch_->stop = true;
    }
    if (reported.size() >= reports_a_run || ++reported[{fault.kind, fault.site}] > reports_a_site) return;
    report().fault(fault);
}

Fault Worker::described(const char* kind, const void* site, const std::string& sentence) {
    Fault fault{kind, sentence, block().block_index()};
    if (block().inside_fiber()) fault.thread = fiber().thread_index;
    fault.site = site;
    return fault;
}

void Worker::fail(const char* kind, const void* site, const std::string& sentence) {
    record(described(kind, site, sentence));
    block().abandon();
}

void Worker::note(const char* kind, const void* site, const std::string& sentence) {
    Fault fault = described(kind, site, sentence);
    fault.note = true;
    record(std::move(fault));
}

void Worker::thread_exits(Fiber& fiber) {
    // Those that an mbarrier counts are others' to wait for.
    std::vector<AsyncCopy> counted;
    const auto own = std::stable_partition(fiber.copies.begin(), fiber.copies.end(),
                                           [](const AsyncCopy& copy) { return !copy.arrival; });
    counted.assign(own, fiber.copies.end());
    fiber.copies.erase(own, fiber.copies.end());
    if (Checker* checks = checker()) checks->copies_abandoned(fiber);
    if (!fiber.copies.empty())
        note("async_copy_unwaited", fiber.site,
             format("%zu asynchronous copies are never waited for", fiber.copies.size()));
    fiber.copies.insert(fiber.copies.end(), counted.begin(), counted.end());
}

void Worker::count_access(const void* address, unsigned bytes, bool write, const void* site, bool adds_floats) {
    if (!block().inside_fiber()) return;
    const Fiber& self = block().current();
    const Access to_shared = adds_floats ? Access::shared_float_addition
                             : write     ? Access::shared_write
                                         : Access::shared_read;
    if (shared().contains(address))
        counting_.access(self.warp->index(), self.lane, shared().offset(address), bytes, to_shared, site);
    else if (launch_->global->contains(address))
        counting_.access(self.warp->index(), self.lane, launch_->global->offset(address), bytes,
                         write ? Access::global_write : Access::global_read, site);
}

}  // namespace gf_emulator
