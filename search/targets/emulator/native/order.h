// Which of the ready warps, and which of its ready lanes, runs next. A correct kernel gives the same result in
// every order.
#pragma once
#include <cstdint>

namespace gf_emulator {

class Order {
public:
    enum class Kind { forward, reverse, seeded };

    Order() = default;
    Order(Kind kind, std::uint64_t seed) : kind_(kind), seed_(seed), state_(seed) {}

    // A block's choices depend on the seed and its own index only, not on what its OS thread ran before.
    void start_block(std::uint64_t block) {
        state_ = (seed_ + 1) * 0x9E3779B97F4A7C15ull ^ (block + 1) * 0xD1B54A32D192ED03ull;
    }

    // One of the set bits of a non-empty `ready`.
    unsigned pick(std::uint32_t ready) {
        if (kind_ == Kind::forward) return __builtin_ctz(ready);
        if (kind_ == Kind::reverse) return 31 - __builtin_clz(ready);
        for (unsigned skip = random() % __builtin_popcount(ready); skip; skip--) ready &= ready - 1;
        return __builtin_ctz(ready);
    }

    // The lane that elect.sync elects, of all warps: any may be, but always the same.
    unsigned elected() const {
        return kind_ == Kind::forward ? 0 : kind_ == Kind::reverse ? 31 : unsigned(seed_ * 0x9E3779B97F4A7C15ull >> 59);
    }

    // The same of some lanes.
    unsigned elected_of(std::uint32_t lanes) const {
        if (lanes >> elected() & 1) return elected();
        return kind_ == Kind::forward ? unsigned(__builtin_ctz(lanes)) : 31 - unsigned(__builtin_clz(lanes));
    }

    // Where a block runs: results may not depend on it.
    unsigned multiprocessor(std::uint64_t block) const {
        constexpr unsigned count = 132;
        if (kind_ == Kind::forward) return unsigned(block % count);
        if (kind_ == Kind::reverse) return count - 1 - unsigned(block % count);
        return unsigned((block * 5 + seed_ * 7 + count / 2) % count);
    }

    // Which of an SM's places a warp of a block has: unique in the block, and results may not depend on it.
    unsigned warp_slot(unsigned warp) const {
        constexpr unsigned count = 48;  // of the smallest SM
        if (kind_ == Kind::forward) return warp;
        return kind_ == Kind::reverse ? count - 1 - warp : (warp + count / 2) % count;
    }

    bool is_seeded() const { return kind_ == Kind::seeded; }

    // The position-th block to start, out of `total`.
    std::uint64_t block(std::uint64_t position, std::uint64_t total) const;

private:
    std::uint32_t random() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return std::uint32_t(state_ >> 32);
    }

    Kind kind_ = Kind::forward;
    std::uint64_t seed_ = 0;
    std::uint64_t state_ = 1;
};

}  // namespace gf_emulator
