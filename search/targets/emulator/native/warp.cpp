#include "warp.h"

#include <iterator>
#include <utility>

#include "worker.h"

namespace gf_emulator {

// In Collective's order.
constexpr const char* collective_names[] = {
    "?",
    "__syncwarp",
    "__shfl_sync",
    "__shfl_up_sync",
    "__shfl_down_sync",
    "__shfl_xor_sync",
    "__ballot_sync",
    "__any_sync",
    "__all_sync",
    "__match_any_sync",
    "__reduce_add_sync",
    "__reduce_min_sync",
    "__reduce_min_sync",
    "__reduce_max_sync",
    "__reduce_max_sync",
    "__reduce_and_sync",
    "__reduce_or_sync",
    "__reduce_xor_sync",
    "ldmatrix",
    "stmatrix",
    "mma_sync",
    "mma.sync",
    "wgmma",
    "wgmma_fence",
    "wgmma_commit",
    "wgmma_wait",
    "elect_thread",
    "setmaxnreg",
};
static_assert(std::size(collective_names) == std::size_t(Collective::set_registers) + 1);

const char* name_of(Collective kind) { return collective_names[int(kind)]; }

void Warp::start(Block& block, Fiber* lanes, unsigned index, unsigned lane_count) {
    block_ = &block;
    lanes_ = lanes;
    index_ = index;
    started_ = alive_ = ready_ = lane_count == 32 ? ~0u : (1u << lane_count) - 1;
    open_meetings_ = 0;
    asking_ = 0;
}

void Warp::set_ready(Fiber& fiber) {
    ready_ |= 1u << fiber.lane;
    block_->warp_is_ready(index_, true);
}

void Warp::clear_ready(Fiber& fiber) {
    ready_ &= ~(1u << fiber.lane);
    settle();
}

void Warp::settle() {
    if (!ready_ && asking_) answer_active_masks();
    if (!ready_) block_->warp_is_ready(index_, false);
}

std::uint32_t Warp::active_mask(Fiber& fiber, const void* site) {
    fiber.site = site;
    fiber.waiting_for = "__activemask";
    fiber.waiting_mask = 0;
    asking_ |= 1u << fiber.lane;
    clear_ready(fiber);
    block_->run_next();
    return std::uint32_t(fiber.result);
}

void Warp::answer_active_masks() {
    const std::uint32_t asking = std::exchange(asking_, 0);
    for (std::uint32_t left = asking; left; left &= left - 1) {
        Fiber& fiber = lanes_[__builtin_ctz(left)];
        fiber.result = 0;
        for (std::uint32_t others = asking; others; others &= others - 1) {
            const unsigned lane = unsigned(__builtin_ctz(others));
            if (lanes_[lane].site == fiber.site) fiber.result |= 1u << lane;
        }
    }
    ready_ = asking;
    block_->warp_is_ready(index_, true);
}

Warp::Meeting& Warp::meeting_of(std::uint32_t mask) {
    for (unsigned i = 0; i < open_meetings_; i++)
        if (meetings_[i].mask == mask) return meetings_[i];
    Meeting& fresh = meetings_[open_meetings_++];
    fresh = Meeting();
    fresh.mask = mask;
    return fresh;
}

bool Warp::complete_if_all_came(Meeting& meeting) {
    if (meeting.arrived == 0 || (meeting.mask & alive_) != meeting.arrived) return false;
    const Meeting done = meeting;
    meeting = meetings_[--open_meetings_];
    Worker& worker = block_->worker();
    if (done.complete) done.complete(worker, *this, done.arrived, done.kind);
    worker.counting().lanes_agree(*this, done.arrived);
    // Shuffles and votes order no memory (PTX ISA, "bar.warp.sync" does, "shfl.sync" does not). A lane that has exited is
    // ordered where the mask names it: another schedule may run it later than those that do not wait for it.
    if (block_->checker().enabled() && done.kind == Collective::sync_warp)
        block_->checker().lanes_met(index_, done.arrived, (done.mask & started_) == started_);
    ready_ |= done.arrived;
    block_->warp_is_ready(index_, true);
    return true;
}

void Warp::meet(Fiber& fiber, std::uint32_t mask, Collective kind, Complete complete, const void* site) {
    fiber.site = site;
    Worker& worker = block_->worker();
    if (!(mask >> fiber.lane & 1))
        worker.fail("divergence", site,
                    format("lane %u calls %s with mask 0x%08x, which does not name the lane itself",
                           fiber.lane, name_of(kind), mask));
    Meeting& meeting = meeting_of(mask);
    if (meeting.arrived == 0) {
        meeting.kind = kind;
        meeting.complete = complete;
        meeting.site = site;
    } else if (meeting.kind != kind) {
        worker.fail("divergence", site,
                    format("lane %u calls %s while other lanes of its mask 0x%08x wait in %s", fiber.lane,
                           name_of(kind), mask, name_of(meeting.kind)));
    }
    meeting.arrived |= 1u << fiber.lane;
    fiber.waiting_for = name_of(kind);
    fiber.waiting_mask = mask;
    // The lanes of a meeting that is complete go on, so nobody who asks for the active lanes is answered before.
    ready_ &= ~(1u << fiber.lane);
    complete_if_all_came(meeting);
    settle();
    block_->run_next();
}

void Warp::exit(Fiber& fiber) {
    clear_ready(fiber);
    alive_ &= ~(1u << fiber.lane);
    // Lanes that exited are waited for no longer (PTX ISA, "shfl.sync": all *non-exited* threads of the
    // mask).
    for (unsigned i = 0; i < open_meetings_;)
        if (!complete_if_all_came(meetings_[i])) i++;
}

}  // namespace gf_emulator
