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

int BlockBarrier::meet(Block& block, Fiber& fiber, BarrierOperation operation, bool predicate, int line,
                       const void* site) {
    fiber.site = site;
    if (arrived_ == 0) {
        operation_ = operation;
        line_ = line;
        true_predicates_ = 0;
    } else if (operation != operation_ || line != line_) {
        block.worker().fail(
            "divergence", site,
            format("thread %u comes to the %s of line %d while others of its block wait in the %s of line %d",
                   fiber.thread, name_of(operation), line, name_of(operation_), line_));
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
