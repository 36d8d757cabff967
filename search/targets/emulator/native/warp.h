// A warp: its fibers, who of them can run, and the collectives they meet in.
#pragma once
#include <array>
#include <cstdint>

#include "fiber.h"

namespace gf_emulator {

class Block;
class Worker;

const char* name_of(Collective kind);

class Warp {
public:
    // Run by the lane that arrives last, for the whole warp: reads Fiber::value of each lane in `arrived`,
    // writes Fiber::result.
    using Complete = void (*)(Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind);

    void start(Block& block, Fiber* lanes, unsigned index, unsigned lane_count);

    // The calling fiber joins the collective of `mask`; returns once every living lane of the mask has come.
    // Anything that needs the whole warp at once is this: a shuffle, a vote, a tensor-core product.
    void meet(Fiber& fiber, std::uint32_t mask, Collective kind, Complete complete, const void* site);

    // The lanes that come here together: those that are at the same call when no other lane of the warp can go on.
    std::uint32_t active_mask(Fiber& fiber, const void* site);

    void exit(Fiber& fiber);
    void set_ready(Fiber& fiber);
    void clear_ready(Fiber& fiber);

    Fiber& lane(unsigned index) { return lanes_[index]; }
    unsigned index() const { return index_; }
    std::uint32_t alive() const { return alive_; }
    std::uint32_t ready() const { return ready_; }

private:
    // One collective in the making. Disjoint masks may be under way at once.
    struct Meeting {
        std::uint32_t mask = 0;  // 0: free
        std::uint32_t arrived = 0;
        Collective kind = Collective::none;
        Complete complete = nullptr;
        const void* site = nullptr;
    };
    Meeting& meeting_of(std::uint32_t mask);
    bool complete_if_all_came(Meeting& meeting);
    // After lanes were taken from those that can run.
    void settle();
    void answer_active_masks();

    Block* block_ = nullptr;
    Fiber* lanes_ = nullptr;
    unsigned index_ = 0;
    std::uint32_t started_ = 0;
    std::uint32_t alive_ = 0;
    std::uint32_t ready_ = 0;
    std::uint32_t asking_ = 0;  // in active_mask
    unsigned open_meetings_ = 0;  // those in use are the first ones
    std::array<Meeting, 33> meetings_;
};

}  // namespace gf_emulator
