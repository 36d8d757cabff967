// How many registers each warp of a block has asked for.
#pragma once
#include <array>

namespace gf_emulator {

class Block;

class RegisterBudget {
public:
    void start_block(unsigned thread_count);
    void set(Block& block, unsigned warp, unsigned registers, bool grow, const void* site);
    // More than the pool holds is a deadlock of those who grow.
    void finish(Block& block);

private:
    std::array<unsigned, 32> of_warp_{};  // a thread
    std::array<bool, 32> is_set_{};
    unsigned share_ = 0, warps_ = 0;
    const void* grown_ = nullptr;
};

}  // namespace gf_emulator
