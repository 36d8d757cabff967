// Which clusters a worker runs beside each other. It runs one to its end before the next, unless that one waits for
// another block in a loop: then the others get turns, and new ones start, up to as many as a GPU could hold at once.
#include <algorithm>
#include <ctime>

#include "global_memory.h"
#include "memory_map.h"
#include "worker.h"

namespace gf_emulator {

namespace {

// A standstill of all blocks is taken for a deadlock after so many turns and so much time.
constexpr std::uint64_t standstill_rounds = 200;
constexpr double standstill_s = 0.5;
// A cluster starts beside others when each of them waited in vain so often.
constexpr unsigned patience_rounds = 3;
// So many run beside each other where they give way at atomics, though none waits.
constexpr std::size_t clusters_beside = 4;
constexpr std::size_t spare_bytes = std::size_t(256) << 20;

double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

}  // namespace

void Worker::run_blocks(const Launch& launch) {
    launch_ = &launch;
    began_s_ = thread_seconds();
    cluster_ = clusters_[0].get();
    cluster_->begin(launch);
    block_ = &cluster_->current();
    Residents residents;
    for (const auto& cluster : clusters_) residents.free.insert(residents.free.begin(), cluster.get());
    busy(launch, true);
    while (!launch.stop) {
        Cluster* next = next_beside(launch, residents);
        if (!next) next = next_waiting(launch, residents);
        if (!next && !(next = start_next(launch, residents))) {
            if (residents.waiting.empty()) break;
            look_for_deadlock(launch, residents);
            residents.idle = 0;
            continue;
        }
        take_turns(launch, residents, *next);
    }
    busy(launch, false);
    cluster_ = clusters_[0].get();
    cluster_->end();
    used_s_ += thread_seconds() - began_s_;
}

void Worker::start_clock(double deadline_s) {
    deadline_s_ = deadline_s;
    used_s_ = 0;
}

bool Worker::overdue() const {
    return launch_ && deadline_s_ > 0 && used_s_ + (thread_seconds() - began_s_) >= deadline_s_;
}

// Of the running thread, which is at `site`.
void Worker::report_timeout(const void* site) {
    // The store before the loop may have raced: no other access comes to judge it.
    if (Checker* checks = checker()) checks->settle();
    const Fiber& self = fiber();
    Fault fault{"timeout", format("the run did not end within %g s of processor time, and the thread was in this line", deadline_s_),
                block().block_index(), self.thread_index};
    fault.site = site;
    fault.waiting = block().waiting_beside(self);
    record(std::move(fault));
}

// A new cluster where the last one gave way without waiting; null: enough of them run beside each other.
Cluster* Worker::next_beside(const Launch& launch, Residents& residents) {
    if (!gives_way_) return nullptr;
    gives_way_ = false;
    return residents.waiting.size() < clusters_beside ? start_next(launch, residents) : nullptr;
}

// The waiting cluster that has its turn now; null when it is a new one's.
Cluster* Worker::next_waiting(const Launch&, Residents& residents) {
    if (residents.waiting.empty() || residents.idle >= residents.waiting.size() * patience_rounds) return nullptr;
    Cluster* next = residents.waiting.front();
    residents.waiting.erase(residents.waiting.begin());
    return next;
}

// Null when none is left, or when there is no room for it.
Cluster* Worker::start_next(const Launch& launch, Residents& residents) {
    if (!has_room(launch, residents)) return nullptr;
    const bool beside = !residents.waiting.empty();
    if (launch.resident++ >= launch.resident_clusters() && beside) {
        launch.resident--;
        return nullptr;
    }
    std::uint64_t position = launch.next++;
    const bool outside = position >= launch.clusters_executed();
    // Blocks of the sample may wait for others, which then run uncounted.
    if (outside && (!beside || (position = launch.next_outside++) >= launch.clusters_outside())) {
        launch.resident--;
        return nullptr;
    }
    if (residents.free.empty()) {
        clusters_.push_back(std::make_unique<Cluster>(*this, unsigned(clusters_.size())));
        residents.free.push_back(clusters_.back().get());
    }
    Cluster* fresh = residents.free.back();
    residents.free.pop_back();
    cluster_ = fresh;
    if (fresh != clusters_[0].get()) fresh->begin(launch);
    counting_.enable(launch.count && !outside);
    fresh->start(launch, outside ? launch.cluster_outside(position) : launch.cluster_at(position), !outside);
    return fresh;
}

bool Worker::has_room(const Launch& launch, const Residents& residents) const {
    if (residents.waiting.empty()) return true;
    const std::size_t threads = std::size_t(launch.block.x) * launch.block.y * launch.block.z * launch.cluster_blocks();
    return !residents.free.empty() || has_addresses(threads * StackPool::stack_bytes + spare_bytes);
}

void Worker::take_turns(const Launch& launch, Residents& residents, Cluster& cluster) {
    cluster_ = &cluster;
    const EventTotals counted = counting_.events;
    counting_.enable(launch.count && cluster.counts());
    Cluster::State state = cluster.advance(launch);
    bool progressed = state != Cluster::State::waits;
    if (progressed) progresses();
    while (state == Cluster::State::progressed && !gives_way_ && !launch.stop) state = cluster.advance(launch);
    if (!cluster.counts()) counting_.events = counted;
    if (progressed) launch.progress++;
    residents.idle = progressed ? 0 : residents.idle + 1;
    if (state == Cluster::State::ended) {
        residents.free.push_back(&cluster);
        launch.resident--;
    } else {
        residents.waiting.push_back(&cluster);
    }
}

void Worker::busy(const Launch& launch, bool now) {
    if (now == is_busy_) return;
    is_busy_ = now;
    launch.progress++;
    launch.busy_workers += now ? 1 : -1;
}

// All of this worker's blocks wait, and no new one can start.
void Worker::look_for_deadlock(const Launch& launch, Residents& residents) {
    busy(launch, false);
    const std::uint64_t progress = launch.progress;
    if (launch.busy_workers != 0 || residents.seen != progress || residents.rounds == 0) {
        residents.seen = progress;
        residents.rounds = 1;
        residents.since_s = thread_seconds();
        return;
    }
    if (++residents.rounds >= standstill_rounds && thread_seconds() - residents.since_s >= standstill_s)
        report_standstill(launch, residents);
}

void Worker::report_standstill(const Launch& launch, const Residents& residents) {
    if (launch.stop.exchange(true)) return;
    // The GPU would have room for another block, which the others may wait for.
    if (launch.resident < launch.resident_clusters() && launch.next < launch.clusters_executed() &&
        !has_room(launch, residents))
        give_up("memory");
    cluster_ = *std::min_element(residents.waiting.begin(), residents.waiting.end(),
                                 [](const Cluster* one, const Cluster* other) { return one->index() < other->index(); });
    const std::uint64_t clusters = launch.clusters_executed() + launch.clusters_outside();
    const std::uint64_t started = std::min<std::uint64_t>(launch.next, launch.clusters_executed()) +
                                  std::min<std::uint64_t>(launch.next_outside, launch.clusters_outside());
    std::string why = "every thread waits for another, and none can go on";
    if (started < clusters)
        why += format("; %lu of %lu blocks have not started, because no more than %lu are resident at once",
                      (clusters - started) * launch.cluster_blocks(), launch.blocks_total, launch.resident.load() * launch.cluster_blocks());
    cluster_->report_deadlock(why);
}

std::string Worker::name_of(const void* address, const SharedMemory& shared) const {
    if (address == &launch_->grid_phase) return "the grid's barrier";
    if (shared.contains(address)) return format("shared memory at +%zu", shared.offset(address));
    const GlobalMemory& global = *launch_->global;
    const std::size_t buffer = global.buffer_at(static_cast<const char*>(address), 1);
    if (buffer == GlobalMemory::none) return "memory";
    return "'" + global.name(buffer) + format("' at %+ld", global.offset_in(buffer, static_cast<const char*>(address)));
}

}  // namespace gf_emulator
