#include "barrier.h"

#include "worker.h"

namespace gf_emulator {

const char* name_of(BarrierOperation operation) {
    switch (operation) {
        case BarrierOperation::sync: return "__syncthreads";
        case BarrierOperation::count: return "__syncthreads_count";
        case BarrierOperation::all: return "__syncthreads_and";
        case BarrierOperation::any: return "__syncthreads_or";
    }
    return "?";
}

int BlockBarrier::meet(Block& block, Fiber& fiber, BarrierOperation operation, bool predicate, const void* site) {
    fiber.site = site;
    Worker& worker = block.worker();
    if (arrived_ == 0) {
        operation_ = operation;
        site_ = site;
        true_predicates_ = 0;
    } else if (operation != operation_) {
        worker.fail("divergence", site, format("thread %u calls %s while others of its block wait in %s", fiber.thread,
                                               name_of(operation), name_of(operation_)));
    } else if (site != site_) {
        // Compilers copy barrier calls, so only the parent, who sees source lines, can tell whether these differ.
        worker.sites_differ(site_, site);
    }
    arrived_++;
    true_predicates_ += predicate;
    fiber.waiting_for = name_of(operation);
    fiber.waiting_mask = 0;
    fiber.warp->clear_ready(fiber);
    complete_if_all_came(block);
    block.run_next();
    return int(fiber.result);
}

bool BlockBarrier::complete_if_all_came(Block& block) {
    if (arrived_ == 0 || arrived_ != block.alive()) return false;
    const unsigned result = operation_ == BarrierOperation::all   ? true_predicates_ == arrived_
                            : operation_ == BarrierOperation::any ? true_predicates_ != 0
                                                                  : true_predicates_;
    arrived_ = 0;
    block.release_all(result);
    return true;
}

}  // namespace gf_emulator
