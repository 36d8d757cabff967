#include "named_barrier.h"

#include "worker.h"

namespace gf_emulator {

void NamedBarriers::meet(Block& block, Fiber& fiber, unsigned id, unsigned thread_count, bool wait,
                         const void* site) {
    fiber.site = site;
    Worker& worker = block.worker();
    if (id == 0 || id >= count)
        worker.fail("divergence", site, format("named barrier %u: they are numbered from 1 to %u", id, count - 1));
    if (thread_count == 0 || thread_count % 32 || thread_count > 1024)
        worker.fail("divergence", site,
                    format("named barrier %u for %u threads: it takes a multiple of 32", id, thread_count));
    Barrier& barrier = barriers_[id];
    if (barrier.arrived && barrier.expected != thread_count)
        worker.fail("divergence", site,
                    format("thread %u comes to named barrier %u for %u threads while others came for %u",
                           fiber.thread, id, thread_count, barrier.expected));
    barrier.expected = thread_count;
    join(block, fiber, barrier, id, wait);
}

void NamedBarriers::meet_tile(Block& block, Fiber& fiber, unsigned threads, const void* site) {
    fiber.site = site;
    if (threads == 0 || block.thread_count() % threads)
        block.worker().fail("divergence", site,
                            format("tiles of %u threads in a block of %u", threads, block.thread_count()));
    const unsigned id = count + threads * 1024 + fiber.thread / threads;
    tiles_[id].expected = threads;
    join(block, fiber, tiles_[id], id, true);
}

void NamedBarriers::join(Block& block, Fiber& fiber, Barrier& barrier, unsigned id, bool wait) {
    Worker& worker = block.worker();
    barrier.arrived++;
    if (Checker* checker = worker.checker()) checker->publish(barrier.published);
    if (wait) {
        fiber.waiting_for = "";
        fiber.waiting_mask = 0;
        fiber.named_barrier = id;
        fiber.warp->clear_ready(fiber);
        barrier.waiting.push_back(&fiber);
    }
    if (barrier.arrived == barrier.expected) complete(block, barrier);
    if (wait) block.run_next();
}

void NamedBarriers::complete(Block& block, Barrier& barrier) {
    Checker* checker = block.worker().checker();
    block.worker().counting().events.barriers++;
    for (Fiber* fiber : barrier.waiting) {
        if (checker) checker->clocks().acquire(fiber->thread, barrier.published);
        fiber->named_barrier = 0;
        fiber->warp->set_ready(*fiber);
    }
    barrier = Barrier();
}

std::string NamedBarriers::describe(unsigned id) const {
    if (id >= count) {
        const Barrier& barrier = tiles_.at(id);
        return format("the barrier of a tile of %u threads, to which %u came,", barrier.expected, barrier.arrived);
    }
    return format("named barrier %u, to which %u of %u threads came,", id, barriers_[id].arrived,
                  barriers_[id].expected);
}

}  // namespace gf_emulator
