// How many registers each warp of a block has asked for.
#pragma once
#include <array>
#include <vector>

namespace gf_emulator {

class Block;

class RegisterBudget {
public:
    void start_block(unsigned thread_count);
    void set(Block& block, unsigned warp, unsigned registers, bool grow, const void* site);
    // The warps of a warpgroup must have run the same calls. More than the pool holds is a deadlock of those who grow.
    void finish(Block& block);

private:
    struct Call {
        unsigned registers;
        bool grow;
        const void* site;
        bool same_as(const Call& other) const { return registers == other.registers && grow == other.grow; }
    };
    bool whole_warpgroups(Block& block) const;

    std::array<unsigned, 32> of_warp_{};  // a thread
    std::array<std::vector<Call>, 32> calls_{};  // by warp
    unsigned share_ = 0, warps_ = 0;
    const void* grown_ = nullptr;
};

}  // namespace gf_emulator
