// A block barrier: __syncthreads and its reducing forms. Threads that exited are not waited for.
#pragma once
#include "fiber.h"

namespace gf_emulator {

class Block;

const char* name_of(BarrierOperation operation);

class BlockBarrier {
public:
    void reset() { arrived_ = 0; }
    int meet(Block& block, Fiber& fiber, BarrierOperation operation, bool predicate, int line,
             const void* site);
    // True when the living threads are all here; they then have their result and are ready.
    bool complete_if_all_came(Block& block);

private:
    unsigned arrived_ = 0;
    unsigned true_predicates_ = 0;
    BarrierOperation operation_ = BarrierOperation::sync;
    int line_ = 0;
};

}  // namespace gf_emulator
