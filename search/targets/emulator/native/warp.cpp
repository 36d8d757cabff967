#include "warp.h"

#include "worker.h"

namespace gf_emulator {

const char* name_of(Collective kind) {
    switch (kind) {
        case Collective::none: break;
        case Collective::sync_warp: return "__syncwarp";
        case Collective::shuffle_index: return "__shfl_sync";
        case Collective::shuffle_up: return "__shfl_up_sync";
        case Collective::shuffle_down: return "__shfl_down_sync";
        case Collective::shuffle_xor: return "__shfl_xor_sync";
        case Collective::ballot: return "__ballot_sync";
        case Collective::any: return "__any_sync";
        case Collective::all: return "__all_sync";
        case Collective::match_any: return "__match_any_sync";
        case Collective::reduce_add: return "__reduce_add_sync";
        case Collective::reduce_min_signed:
        case Collective::reduce_min_unsigned: return "__reduce_min_sync";
        case Collective::reduce_max_signed:
        case Collective::reduce_max_unsigned: return "__reduce_max_sync";
        case Collective::reduce_and: return "__reduce_and_sync";
        case Collective::reduce_or: return "__reduce_or_sync";
        case Collective::reduce_xor: return "__reduce_xor_sync";
        case Collective::ldmatrix: return "ldmatrix";
        case Collective::wmma: return "mma_sync";
        case Collective::mma: return "mma.sync";
    }
    return "?";
}

void Warp::start(Block& block, Fiber* lanes, unsigned index, unsigned lane_count) {
    block_ = &block;
    lanes_ = lanes;
    index_ = index;
    alive_ = ready_ = lane_count == 32 ? ~0u : (1u << lane_count) - 1;
    open_meetings_ = 0;
}

void Warp::set_ready(Fiber& fiber) {
    ready_ |= 1u << fiber.lane;
    fiber.waiting_for = nullptr;
    block_->warp_is_ready(index_, true);
}

void Warp::clear_ready(Fiber& fiber) {
    ready_ &= ~(1u << fiber.lane);
    if (!ready_) block_->warp_is_ready(index_, false);
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
    for (std::uint32_t left = done.arrived; left; left &= left - 1) set_ready(lanes_[__builtin_ctz(left)]);
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
    clear_ready(fiber);
    complete_if_all_came(meeting);
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
