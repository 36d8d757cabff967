#include "cluster.h"

#include <utility>

#include "launch.h"
#include "worker.h"

namespace gf_emulator {

void ClusterBarrier::reset() {
    arrived_ = 0;
    phase_ = 0;
    waiting_.clear();
    releasing_.clear();
    relaxed_ = ended_ = {};
}

void ClusterBarrier::releases(Cluster& cluster, Block& block, Fiber& fiber, bool relaxed) {
    if (!block.checker().enabled()) return;
    if (!relaxed_.any && !relaxed) return releasing_.push_back({&block, &fiber});
    // No object lies at such an address.
    relaxed_.address = reinterpret_cast<const void*>(1ull << 63 | cluster.index() << 24 | phase_ % (1u << 24));
    const auto release = [&](Block& of, Fiber& by) {
        of.on_behalf_of(by, [&] { of.checker().arrives_for_all(relaxed_.address, by.thread, relaxed_.by_rank); });
    };
    if (!relaxed_.any)
        for (const Arrival& arrival : releasing_) release(*arrival.block, *arrival.fiber);
    relaxed_.any = true;
    if (relaxed)
        block.checker().arrives_relaxed(relaxed_.address);
    else
        release(block, fiber);
}

void ClusterBarrier::arrive(Cluster& cluster, Fiber& fiber, bool relaxed, const void* site) {
    fiber.site = site;
    if (fiber.cluster_arrived)
        cluster.worker().fail(
            "divergence", site,
            format("thread %u arrives at the cluster's barrier twice without waiting for it", fiber.thread));
    fiber.cluster_arrived = true;
    fiber.cluster_phase = phase_;
    releases(cluster, cluster.current(), fiber, relaxed);
    arrived_++;
    complete_if_all_came(cluster);
}

void ClusterBarrier::wait(Cluster& cluster, Fiber& fiber, const void* site) {
    fiber.site = site;
    if (!fiber.cluster_arrived)
        cluster.worker().fail(
            "divergence", site,
            format("thread %u waits for the cluster's barrier without having arrived at it", fiber.thread));
    if (fiber.cluster_phase == phase_) {
        fiber.waiting_for = "barrier.cluster.wait";
        fiber.waiting_mask = 0;
        fiber.warp->clear_ready(fiber);
        waiting_.push_back(&fiber);
        cluster.current().run_next();
    }
    if (ended_.any && cluster.current().checker().enabled())
        cluster.current().checker().leaves_relaxed(ended_.address, fiber.thread, ended_.by_rank);
    fiber.cluster_arrived = false;
}

void ClusterBarrier::thread_exits(Cluster& cluster, const Fiber& fiber) {
    if (fiber.cluster_arrived && fiber.cluster_phase == phase_) arrived_--;
    complete_if_all_came(cluster);
}

void ClusterBarrier::complete_if_all_came(Cluster& cluster) {
    if (arrived_ == 0 || arrived_ != cluster.alive()) return;
    arrived_ = 0;
    phase_++;
    releasing_.clear();
    ended_ = std::exchange(relaxed_, {});
    cluster.met(ended_.any);
    for (Fiber* fiber : waiting_) fiber->warp->set_ready(*fiber);
    waiting_.clear();
}

void Cluster::reserve(unsigned size) {
    while (blocks_.size() < size)
        blocks_.push_back(std::make_unique<Block>(worker_, unsigned(blocks_.size())));
    current_ = blocks_[0].get();
}

unsigned Cluster::alive() const {
    unsigned alive = 0;
    for (unsigned rank = 0; rank < size_; rank++) alive += blocks_[rank]->alive();
    return alive;
}

Block* Cluster::owner_of(const void* address, unsigned bytes) {
    for (unsigned rank = 0; rank < size_; rank++) {
        const SharedMemory& shared = blocks_[rank]->shared();
        if (shared.contains(address) && shared.contains(static_cast<const char*>(address) + bytes - 1))
            return blocks_[rank].get();
    }
    return nullptr;
}

void Cluster::met(bool relaxed) {
    worker_.counting().events.barriers += size_;
    for (unsigned rank = 0; rank < size_; rank++) {
        Checker& checker = blocks_[rank]->checker();
        if (checker.enabled()) relaxed ? checker.cluster_met_relaxed() : checker.cluster_met();
    }
}

void Cluster::enter(Block& block) {
    Checker::activate(block.checker().enabled() ? &block.checker() : nullptr);
    current_ = &block;
    if (worker_.makes_current(block)) block.shared().make_static_current();
}

void Cluster::begin(const Launch& launch) {
    size_ = launch.cluster_blocks();
    reserve(size_);
    const unsigned threads = launch.block.x * launch.block.y * launch.block.z * size_;
    stacks_.reserve(threads, beside_ * threads < Worker::guarded_stacks);
    for (unsigned rank = 0; rank < size_; rank++)
        blocks_[rank]->shared().prepare(launch, beside_ + rank);
    worker_.makes_current(*blocks_[0]);
    blocks_[0]->shared().make_static_current();
}

void Cluster::end() {
    enter(*blocks_[0]);
    Checker::activate(nullptr);
}

void Cluster::start(const Launch& launch, std::uint64_t index, bool counts) {
    counts_ = counts;
    index_ = index;
    round_ = 0;
    barrier_.reset();
    for (unsigned rank = 0; rank < size_; rank++) blocks_[rank]->start(launch, launch.block_of(index, rank));
}

Cluster::State Cluster::advance(const Launch& launch) {
    bool any = false, progressed = false;
    for (unsigned turn = 0; turn < size_; turn++) {
        const auto rank = unsigned(launch.order.block((turn + round_) % size_, size_));
        Block& block = *blocks_[rank];
        if (!block.can_go_on()) continue;
        any = true;
        enter(block);
        block.resume();
        if (block.abandoned()) return State::ended;
        progressed |= block.take_progress();
        if (block.alive() == 0) block.finish();
    }
    round_ += launch.order.is_seeded();
    if (any && alive()) return progressed ? State::progressed : State::waits;
    if (alive()) report_deadlock("");
    return State::ended;
}

void Cluster::report_deadlock(const std::string& why) {
    for (unsigned rank = 0; rank < size_; rank++)
        if (blocks_[rank]->alive()) {
            enter(*blocks_[rank]);
            return blocks_[rank]->report_deadlock(why);
        }
}

Block& Cluster::block_of_rank(const void* address, unsigned rank, const void* site) {
    if (rank >= size_)
        worker_.fail("out_of_bounds", site, format("block %u of a cluster of %u is named", rank, size_));
    if (!current_->shared().contains(address))
        worker_.fail("device_fault", site, "an address outside the block's own shared memory is mapped to another block");
    must_be_there(*blocks_[rank], site);
    return *blocks_[rank];
}

Block& Cluster::owner(const void* address, const void* site) {
    Block* const block = owner_of(address, 8);
    if (!block) worker_.fail("device_fault", site, "an address outside the cluster's shared memory names an mbarrier");
    must_be_there(*block, site);
    return *block;
}

void Cluster::must_be_there(Block& block, const void* site) {
    const unsigned rank = block.rank();
    const bool before = block.checker().enabled() && !barrier_.was_met();
    if (&block != current_ && (before || block.alive() == 0))
        worker_.fail("device_fault", site,
                     format("block %u of the cluster is reached %s", rank,
                            before ? "before all met at the cluster's barrier: it may not have started"
                                   : "after its end: nothing keeps it from leaving"));
}

void* Cluster::map_shared(void* address, unsigned rank, const void* site) {
    if (rank >= size_)
        worker_.fail("out_of_bounds", site,
                     format("map_shared_rank asks for block %u of a cluster of %u", rank, size_));
    if (!current_->shared().contains(address))
        worker_.fail("device_fault", site,
                     "map_shared_rank is given an address outside its own block's shared memory");
    if (blocks_[rank]->alive() == 0)
        worker_.fail(
            "device_fault", site,
            format("map_shared_rank asks for the shared memory of block %u of the cluster, which has "
                   "ended",
                   rank));
    return blocks_[rank]->shared().at_same_place(current_->shared(), address);
}

std::string Cluster::describe(const void* address) const {
    for (unsigned rank = 0; rank < size_; rank++) {
        const std::string found = blocks_[rank]->shared().describe(address);
        if (!found.empty()) return found;
    }
    return "";
}

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" {

uint3 gf_emulator_cluster_size() { return Worker::current().launch().cluster; }

void gf_emulator_cluster_arrive() {
    Worker& worker = Worker::current();
    worker.cluster().barrier().arrive(worker.cluster(), worker.fiber(), false, __builtin_return_address(0));
}

void gf_emulator_cluster_arrive_relaxed() {
    Worker& worker = Worker::current();
    worker.cluster().barrier().arrive(worker.cluster(), worker.fiber(), true, __builtin_return_address(0));
}

void gf_emulator_cluster_wait() {
    Worker& worker = Worker::current();
    worker.cluster().barrier().wait(worker.cluster(), worker.fiber(), __builtin_return_address(0));
}

void* gf_emulator_map_shared_rank(void* address, unsigned rank) {
    return Worker::current().cluster().map_shared(address, rank, __builtin_return_address(0));
}

unsigned gf_emulator_rank_of(const void* shared) {
    return Worker::current().cluster().owner(shared, __builtin_return_address(0)).rank();
}

}  // extern "C"
