#include "mbarrier.h"

#include <algorithm>
#include <cstring>

#include "copy_landing.h"
#include "worker.h"

namespace gf_emulator {

namespace {

constexpr unsigned most_arrivals = (1u << 20) - 1;
constexpr unsigned of_another_block = ~0u;

// What an mbarrier's 8 bytes hold here. Whatever else they hold has been written over it.
std::uint64_t mark(std::size_t offset) { return 0x6d62617272696572ull ^ std::uint64_t(offset) << 1; }

}  // namespace

void Mbarriers::init(Block& block, Fiber& fiber, void* address, unsigned arrivals, const void* site) {
    fiber.site = site;
    Worker& worker = block.worker();
    char* bytes = static_cast<char*>(address);
    if (!block.shared().contains(bytes) || !block.shared().contains(bytes + 7))
        worker.fail("device_fault", site, "mbarrier_init is given an address outside its block's shared memory");
    if (std::uintptr_t(address) % 8)
        worker.fail("misaligned", site, "mbarrier_init is given an address that is not a multiple of 8");
    if (arrivals == 0 || arrivals > most_arrivals)
        worker.fail("device_fault", site,
                    format("mbarrier_init for %u arrivals; a phase takes 1 to %u", arrivals, most_arrivals));
    const std::size_t offset = block.shared().offset(address);
    const auto old = barriers_.find(offset);
    if (Checker* checker = worker.checker()) {
        if (old != barriers_.end())
            checker->async_finding("race", offset, 8, checker->party_of(fiber, Action::barrier, site),
                                   checker->party_of(*old->second.initialiser, Action::barrier, old->second.init_site),
                                   "async:as a new mbarrier while that of {other} lives: no mbarrier_invalidate (mbarrier.inval) between");
        checker->barrier_lies_at(offset, false, fiber, site);
        checker->access(address, 8, Action::write, site);
        checker->barrier_lies_at(offset, true, fiber, site);
    }
    worker.counting().events.mbarrier_operations++;
    Barrier& barrier = barriers_[offset];
    barrier = Barrier();
    barrier.expected = barrier.pending = arrivals;
    barrier.initialiser = &fiber;
    barrier.init_site = site;
    if (Checker* checker = worker.checker()) {
        barrier.initialised = checker->clocks().tick();
        barrier.completion = std::make_shared<Completion>(block.checker(), block.thread_count());
    }
    const std::uint64_t word = mark(offset);
    std::memcpy(address, &word, sizeof word);
}

void Mbarriers::invalidate(Block& block, Fiber& fiber, void* address, const void* site) {
    fiber.site = site;
    Barrier& barrier = at(block, block, fiber, address, "mbarrier_invalidate", site);
    const std::size_t offset = block.shared().offset(address);
    if (!barrier.waiting.empty())
        block.worker().fail("deadlock", site,
                            format("mbarrier_invalidate ends a barrier for which %zu threads wait", barrier.waiting.size()));
    if (Checker* checker = block.worker().checker()) {
        checker->barrier_lies_at(offset, false, fiber, site);
        checker->access(address, 8, Action::write, site);
    }
    barriers_.erase(offset);
}

void Mbarriers::init_fence(Block& block, const Fiber& fiber) {
    Checker* checker = block.worker().checker();
    if (!checker) return;
    for (auto& [offset, barrier] : barriers_)
        if (barrier.initialiser == &fiber && !barrier.fenced) barrier.fenced = checker->clocks().now();
    checker->init_fence();
    checker->clocks().tick();
}

Mbarriers::Barrier& Mbarriers::at(Block& block, Block& from, Fiber& fiber, void* address, const char* operation,
                                  const void* site) {
    Worker& worker = block.worker();
    const SharedMemory& shared = block.shared();
    if (!shared.contains(address))
        worker.fail("device_fault", site, format("%s is given an address outside its block's shared memory", operation));
    if (std::uintptr_t(address) % 8)
        worker.fail("misaligned", site, format("%s is given an address that is not a multiple of 8", operation));
    const std::size_t offset = shared.offset(address);
    const auto place = barriers_.find(offset);
    Checker* checker = worker.checker();
    if (place == barriers_.end()) {
        if (checker)
            checker->async_finding("uninitialised", offset, 8, from.checker().party_of(fiber, Action::barrier, site), {},
                                   "async:as an mbarrier, and no mbarrier_init has made it one");
        worker.fail("device_fault", site,
                    format("%s: no mbarrier_init has made the 8 bytes of shared memory at +%zu a barrier", operation,
                           offset));
    }
    Barrier& barrier = place->second;
    std::uint64_t word;
    std::memcpy(&word, address, sizeof word);
    if (word != mark(offset))
        worker.fail("device_fault", site,
                    format("%s: the mbarrier in shared memory at +%zu was written over", operation, offset));
    worker.counting().events.mbarrier_operations++;
    if (checker && &from == &block && &fiber != barrier.initialiser &&
        checker->clocks().known(fiber.thread, barrier.initialiser->thread) < barrier.initialised)
        checker->async_finding("race", offset, 8, checker->party_of(fiber, Action::barrier, site),
                               checker->party_of(*barrier.initialiser, Action::barrier, barrier.init_site),
                               "async:as an mbarrier while {other} is not ordered before it: no barrier between them");
    // A cluster's barrier orders an mbarrier_init like a write; a relaxed one does so after an mbarrier_init_fence.
    if (checker && &from != &block &&
        !block.checker().did_before(barrier.initialiser->thread, barrier.initialised, from.checker(), fiber, site))
        checker->async_finding("race", offset, 8, from.checker().party_of(fiber, Action::barrier, site),
                               checker->party_of(*barrier.initialiser, Action::barrier, barrier.init_site),
                               barrier.fenced ? "async:as an mbarrier of another block while {other} is not ordered before "
                                                "it: no barrier of the cluster between them"
                                              : "async:as an mbarrier of another block while {other} may be invisible to "
                                                "the cluster: no gf::mbarrier_init_fence() (fence.mbarrier_init) "
                                                "follows it, and no barrier of the cluster that releases");
    return barrier;
}

void Mbarriers::arrive(Block& block, Block& from, Fiber& fiber, void* address, const void* site) {
    fiber.site = site;
    Barrier& barrier = at(block, from, fiber, address, "mbarrier_arrive", site);
    release(block, from, barrier, fiber, address, site);
    count_arrival(block, from, barrier, fiber, block.shared().offset(address), site);
    complete_if_all_came(block, barrier, block.shared().offset(address));
    from.bulk_copies().stir(from);
}

// Whoever waits for the phase knows what the thread has done until now.
void Mbarriers::release(Block& block, Block& from, Barrier& barrier, Fiber& fiber, const void* address, const void* site) {
    const bool remote = &from != &block;
    barrier.has_remote |= remote;
    Checker* checker = from.worker().checker();
    if (!checker) return;
    if (!remote) return checker->publish(barrier.published);
    block.checker().is_visited(from.checker(), fiber, site);
    // Generic accesses of other blocks are ordered as by a fence and an atomic on the barrier.
    checker->fence(true);
    checker->before_atomic(address, false);
    checker->publish_to_cluster(fiber.thread, barrier.published_afar);
}

void Mbarriers::complete_bytes(Block& block, Block& from, Fiber& fiber, void* address, unsigned bytes, bool releases,
                               const void* site) {
    fiber.site = site;
    Barrier& barrier = at(block, from, fiber, address, "an asynchronous store", site);
    if (releases) release(block, from, barrier, fiber, address, site);
    bytes_landed(block, address, bytes);
}

void Mbarriers::count_arrival(Block& block, Block& from, Barrier& barrier, Fiber& fiber, std::size_t offset,
                              const void* site) {
    const bool remote = &from != &block;
    if (Checker* checker = block.worker().checker()) {
        if (barrier.pending <= barrier.with_copies.size())  // it waits for bytes only
            checker->async_finding(
                "race", offset, 8, from.checker().party_of(fiber, Action::barrier, site),
                block.checker().party_of(*barrier.initialiser, Action::barrier, barrier.init_site),
                format("async:to arrive in a phase that has all %u arrivals of {other} already", barrier.expected));
        const auto follows = [&](const Expectation& one) {
            return remote || one.fiber == &fiber || block.checker().clocks().known(fiber.thread, one.fiber->thread) >= one.time;
        };
        barrier.open.erase(std::remove_if(barrier.open.begin(), barrier.open.end(), follows), barrier.open.end());
    }
    barrier.came.push_back(remote ? of_another_block : fiber.thread);
    barrier.arrived_last = remote ? nullptr : &fiber;
    barrier.arrival_site = site;
    if (barrier.pending > barrier.with_copies.size()) barrier.pending--;
}

void Mbarriers::arrive_with_copies(Block& block, Fiber& fiber, void* address, bool adds, const void* site) {
    fiber.site = site;
    Barrier& barrier = at(block, block, fiber, address, "cp.async.mbarrier.arrive", site);
    fiber.copy_arrivals++;
    for (AsyncCopy& copy : fiber.copies)
        if (!copy.arrival) copy.arrival = fiber.copy_arrivals;
    if (adds) barrier.pending++;
    barrier.with_copies.push_back({&fiber, fiber.copy_arrivals, site});
    complete_if_all_came(block, barrier, block.shared().offset(address));
}

void Mbarriers::arrive_and_drop(Block& block, Fiber& fiber, void* address, const void* site) {
    Barrier& barrier = at(block, block, fiber, address, "mbarrier_arrive_drop", site);
    if (barrier.expected) barrier.expected--;
    arrive(block, block, fiber, address, site);
}

unsigned Mbarriers::parity(Block& block, Fiber& fiber, void* address, const void* site) {
    fiber.site = site;
    return unsigned(at(block, block, fiber, address, "mbarrier_arrive", site).phase & 1);
}

// All other arrivals of the phase have come: the copies end as late as they can.
void Mbarriers::land_copies(Block& block, Barrier& barrier) {
    Checker* checker = block.worker().checker();
    for (const CopyArrival& arrival : barrier.with_copies)
        block.on_behalf_of(*arrival.fiber, [&] {
            land_copies_of_arrival(*arrival.fiber, arrival.number, checker);
            if (checker) checker->publish(barrier.published);
        });
    for (const CopyArrival& arrival : barrier.with_copies) barrier.came.push_back(arrival.fiber->thread);
    barrier.pending -= unsigned(barrier.with_copies.size());
    barrier.with_copies.clear();
}

void Mbarriers::expect_bytes(Block& block, Block& from, Fiber& fiber, void* address, unsigned bytes, const void* site) {
    fiber.site = site;
    Barrier& barrier = at(block, from, fiber, address, "mbarrier_expect_bytes", site);
    if (bytes > most_arrivals)
        block.worker().fail("device_fault", site,
                            format("mbarrier_expect_bytes of %u bytes; a phase counts up to %u", bytes, most_arrivals));
    barrier.bytes += bytes;
    barrier.is_filling |= bytes != 0;
    if (barrier.bytes > long(most_arrivals))
        block.worker().fail("device_fault", site,
                            format("mbarrier_expect_bytes makes a phase expect %ld bytes; it counts up to %u", barrier.bytes,
                                   most_arrivals));
    Checker* checker = block.worker().checker();
    if (checker && &from != &block) block.checker().is_visited(from.checker(), fiber, site);
    barrier.expect_site = site;
    barrier.expecting = &from == &block ? &fiber : barrier.initialiser;
    if (checker && &from == &block) barrier.open.push_back({&fiber, checker->clocks().now(), site});
    complete_if_all_came(block, barrier, block.shared().offset(address));
}

std::shared_ptr<Completion> Mbarriers::completion_of_copy(Block& block, Block& from, Fiber& fiber, void* address,
                                                          const void* site) {
    Barrier& barrier = at(block, from, fiber, address, "an asynchronous copy", site);
    Checker* checker = block.worker().checker();
    if (!checker) return nullptr;
    const unsigned initialiser = barrier.initialiser->thread;
    Clocks& clocks = block.checker().clocks();
    const bool by_init_fence =
        barrier.fenced && (&from != &block || fiber.thread == initialiser ||
                           clocks.known(fiber.thread, initialiser) >= barrier.fenced);
    const unsigned fencing = &from == &block ? fiber.thread : initialiser;
    const bool by_proxy_fence = clocks.fenced(fencing, initialiser) >= barrier.initialised;
    if (!by_init_fence && !by_proxy_fence)
        checker->async_finding("race", block.shared().offset(address), 8,
                               from.checker().party_of(fiber, Action::bulk_write, site),
                               block.checker().party_of(*barrier.initialiser, Action::barrier, barrier.init_site),
                               "async:with the mbarrier of {other}, which may be invisible to the asynchronous proxy: no "
                               "gf::mbarrier_init_fence() (fence.mbarrier_init) lies between the two");
    return barrier.completion;
}

void Mbarriers::bytes_landed(Block& block, void* address, unsigned bytes) {
    const std::size_t offset = block.shared().offset(address);
    const auto place = barriers_.find(offset);
    if (place == barriers_.end()) return;  // invalidated: reported when the block ends
    place->second.bytes -= bytes;
    complete_if_all_came(block, place->second, offset);
}

void Mbarriers::complete_if_all_came(Block& block, Barrier& barrier, std::size_t offset) {
    if (barrier.pending != barrier.with_copies.size() || barrier.bytes) return;
    if (barrier.pending) land_copies(block, barrier);
    const bool checked = block.checker().enabled();
    if (checked) report_early_completion(block, barrier);
    if (checked) report_open_expectations(block, barrier, offset);
    barrier.phase++;
    if (barrier.is_filling && ++barrier.fills > most_fills_) {
        most_fills_ = barrier.fills;
        block.worker().counting().events.copy_rounds++;
    }
    barrier.is_filling = false;
    barrier.pending = barrier.expected;
    barrier.known = std::move(barrier.published);
    barrier.published.clear();
    barrier.known_remote = barrier.has_remote;
    barrier.known_afar = std::move(barrier.published_afar);
    barrier.published_afar.clear();
    barrier.has_remote = false;
    barrier.came_before = std::move(barrier.came);
    barrier.came.clear();
    if (checked) {
        barrier.last_completion = barrier.completion;
        barrier.completion = std::make_shared<Completion>(block.checker(), block.thread_count());
        barrier.last_completion->later = barrier.completion;
    }
    block.progresses();
    for (Fiber* fiber : barrier.waiting) fiber->warp->set_ready(*fiber);
    barrier.waiting.clear();
}

void Mbarriers::report_open_expectations(Block& block, Barrier& barrier, std::size_t offset) {
    for (const Expectation& one : barrier.open)
        block.checker().async_finding(
            "race", offset, 8, block.checker().party_of(*one.fiber, Action::barrier, one.site),
            barrier.arrived_last ? block.checker().party_of(*barrier.arrived_last, Action::barrier, barrier.arrival_site)
                                 : Party(),
            "async:to expect bytes in a phase that may end before: no arrival of the phase is ordered after this call");
    barrier.open.clear();
}

// A phase that ends while copies that it should have waited for are under way.
void Mbarriers::report_early_completion(Block& block, const Barrier& barrier) {
    if (const BulkCopies::Load* late = block.bulk_copies().under_way_for(barrier.completion.get()))
        block.checker().async_finding(
            "in_flight_read", block.shared().offset(late->box.shared), unsigned(late->box.bytes()), late->operation->party,
            barrier.expecting ? block.checker().party_of(*barrier.expecting, Action::barrier, barrier.expect_site) : Party(),
            "async:with an mbarrier whose phase ends before all its bytes have landed: it expects fewer bytes than are "
            "copied");
}

bool Mbarriers::try_wait(Block& block, Fiber& fiber, void* address, unsigned parity, const void* site) {
    fiber.site = site;
    Barrier& barrier = at(block, block, fiber, address, "mbarrier_wait", site);
    if ((barrier.phase & 1) == (parity & 1)) {
        fiber.mbarrier = address;
        fiber.mbarrier_parity = parity & 1;
        return false;
    }
    fiber.mbarrier = nullptr;
    Checker* checker = block.worker().checker();
    if (barrier.phase) {
        barrier.seen.resize(block.thread_count());
        barrier.seen[fiber.thread] = barrier.phase;
    }
    if (!checker || barrier.phase == 0) return true;  // what comes before the first phase orders nothing
    checker->clocks().acquire(fiber.thread, barrier.known);
    checker->saw(*barrier.last_completion, fiber.thread);
    if (barrier.known_remote) {
        checker->after_atomic(address, false);
        checker->fence(true);
        checker->learn_from_cluster(fiber.thread, barrier.known_afar);
    }
    return true;
}

void Mbarriers::wait(Block& block, Fiber& fiber, void* address, unsigned parity, const void* site) {
    block.bulk_copies().stir(block);
    while (!try_wait(block, fiber, address, parity, site)) {
        fiber.waiting_for = "";
        fiber.waiting_mask = 0;
        fiber.warp->clear_ready(fiber);
        barriers_[block.shared().offset(address)].waiting.push_back(&fiber);
        block.run_next();
    }
}

std::string Mbarriers::describe(const Block& block, const Fiber& fiber) const {
    const std::size_t offset = const_cast<Block&>(block).shared().offset(fiber.mbarrier);
    const auto place = barriers_.find(offset);
    if (place == barriers_.end()) return "mbarrier_wait for a barrier that is gone";
    const Barrier& barrier = place->second;
    std::string text = format("mbarrier_wait for phase %lu (parity %u) of the mbarrier at +%zu, to which %u of %u arrivals "
                              "came",
                              barrier.phase, fiber.mbarrier_parity, offset, barrier.expected - barrier.pending,
                              barrier.expected);
    if (barrier.bytes > 0) text += format(" and which expects %ld bytes that no copy brings", barrier.bytes);
    if (barrier.bytes < 0) text += format(" and which got %ld bytes more than it expects", -barrier.bytes);
    // Phases that passed by: an arrival too many in each, or a wait too few.
    const std::uint64_t seen = fiber.thread < barrier.seen.size() ? barrier.seen[fiber.thread] : 0;
    if (barrier.phase > seen)
        text += barrier.phase - seen == 1
                    ? format(" (this thread has not waited for the end of phase %lu, which is over)", seen)
                    : format(" (this thread has not waited for the ends of phases %lu to %lu, which are over)", seen,
                             barrier.phase - 1);
    for (const unsigned thread : barrier.came_before)
        if (barrier.pending && std::find(barrier.came.begin(), barrier.came.end(), thread) == barrier.came.end()) {
            text += thread == of_another_block ? ", but none from another block as in the phase before"
                                               : format(", but none of thread %u as in the phase before", thread);
            break;
        }
    return text + ",";
}

void Mbarriers::finish(Block& block) {
    if (!block.checker().enabled()) return;
    for (auto& [offset, barrier] : barriers_) {
        for (const CopyArrival& arrival : barrier.with_copies) block.checker().copies_abandoned(*arrival.fiber);
        barrier.with_copies.clear();
        if (barrier.bytes == 0 || !barrier.expecting) continue;
        block.checker().async_finding(
            "unwaited_copy", offset, 8, block.checker().party_of(*barrier.expecting, Action::barrier, barrier.expect_site),
            {}, format("async:for bytes of which %ld %s when the block ends", std::abs(barrier.bytes),
                       barrier.bytes > 0 ? "are still missing" : "too many have come"));
    }
}

}  // namespace gf_emulator

#define SITE __builtin_return_address(0)
using namespace gf_emulator;

extern "C" {

void gf_emulator_mbarrier_init(void* barrier, unsigned arrivals) {
    Block& block = Worker::current().block();
    block.mbarriers().init(block, block.current(), barrier, arrivals, SITE);
}
void gf_emulator_mbarrier_invalidate(void* barrier) {
    Block& block = Worker::current().block();
    block.mbarriers().invalidate(block, block.current(), barrier, SITE);
}
void gf_emulator_mbarrier_init_fence() {
    Block& block = Worker::current().block();
    block.mbarriers().init_fence(block, block.current());
}
void gf_emulator_mbarrier_arrive(void* barrier) {
    Block& block = Worker::current().block();
    block.mbarriers().arrive(block, block, block.current(), barrier, SITE);
}
void gf_emulator_mbarrier_drop(void* barrier) {
    Block& block = Worker::current().block();
    block.mbarriers().arrive_and_drop(block, block.current(), barrier, SITE);
}
unsigned gf_emulator_mbarrier_parity(void* barrier) {
    Block& block = Worker::current().block();
    return block.mbarriers().parity(block, block.current(), barrier, SITE);
}
void gf_emulator_async_copy_arrive(void* barrier, bool adds) {
    Block& block = Worker::current().block();
    block.mbarriers().arrive_with_copies(block, block.current(), barrier, adds, SITE);
}
void gf_emulator_mbarrier_arrive_rank(void* barrier, unsigned rank) {
    Worker& worker = Worker::current();
    Block& from = worker.block();
    const void* site = SITE;
    Block& to = worker.cluster().block_of_rank(barrier, rank, site);
    void* there = to.shared().at_same_place(from.shared(), barrier);
    to.mbarriers().arrive(to, from, from.current(), there, site);
}
void gf_emulator_mbarrier_arrive_there(void* barrier) {
    Worker& worker = Worker::current();
    Block& from = worker.block();
    const void* site = SITE;
    Block& to = worker.cluster().owner(barrier, site);
    to.mbarriers().arrive(to, from, from.current(), barrier, site);
}
void gf_emulator_mbarrier_expect(void* barrier, unsigned bytes, bool arrives) {
    Worker& worker = Worker::current();
    Block& from = worker.block();
    const void* site = SITE;
    const bool own = from.shared().contains(barrier) || !worker.cluster().owner_of(barrier, 8);
    Block& block = own ? from : worker.cluster().owner(barrier, site);
    block.mbarriers().expect_bytes(block, from, from.current(), barrier, bytes, site);
    if (arrives) block.mbarriers().arrive(block, from, from.current(), barrier, site);
}
void gf_emulator_mbarrier_complete(void* barrier, unsigned bytes, bool releases) {
    Worker& worker = Worker::current();
    Block& from = worker.block();
    const void* site = SITE;
    Block& block = worker.cluster().owner(barrier, site);
    block.mbarriers().complete_bytes(block, from, from.current(), barrier, bytes, releases, site);
}
bool gf_emulator_mbarrier_try_wait(void* barrier, unsigned parity) {
    Block& block = Worker::current().block();
    const void* site = SITE;
    Fiber& fiber = block.current();
    if (block.mbarriers().try_wait(block, fiber, barrier, parity, site)) return true;
    block.pause();
    return block.mbarriers().try_wait(block, fiber, barrier, parity, site);
}
void gf_emulator_mbarrier_wait(void* barrier, unsigned parity) {
    Block& block = Worker::current().block();
    block.mbarriers().wait(block, block.current(), barrier, parity, SITE);
}

void gf_emulator_proxy_fence(bool of_shared, bool of_global) {
    const unsigned thread = Worker::current().block().current().thread;
    Checker* checker = Worker::current().checker();
    if (!checker) return;
    if (of_shared) checker->clocks().proxy_fence(thread);
    if (of_global) checker->global_proxy_fence(thread);
}

}  // extern "C"
