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
    return format("named barrier %u, to which %u of %u threads came,", id, barriers_[id].arrived,
                  barriers_[id].expected);
}

}  // namespace gf_emulator
