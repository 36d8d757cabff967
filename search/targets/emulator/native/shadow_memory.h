// What is known of one block's shared memory, word by word (4 bytes): which bytes were ever written, which
// are the destination of an asynchronous copy under way, and who touched them since the block last met.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "clocks.h"
#include "findings.h"

namespace gf_emulator {

// Accesses of the same bytes of one word in the same way since the block last met: by any of `lanes` of any of
// `warps`. Who of them exactly is known while there is one warp.
struct Touch {
    Clocks::Time newest = 0;
    Clocks::Time oldest = 0;
    std::uint32_t warps = 0;
    std::uint32_t lanes = 0;
    std::uint32_t site = 0;  // offset in the kernel library
    std::uint32_t how = 0;   // see below
    std::uint32_t next = 0;  // in the chain of the word; 0: none
    std::uint32_t unused = 0;

    static std::uint32_t pack(unsigned bytes, Action action) { return bytes | unsigned(action) << 4; }
    unsigned bytes() const { return how & 15u; }
    Action action() const { return Action(how >> 4); }
    unsigned warp() const { return unsigned(__builtin_ctz(warps)); }  // the first
    // Adds an access that comes after all of these, or beside them.
    void add(const Touch& other, bool after) {
        if (after) {
            const std::uint32_t kept = next;
            *this = other;
            next = kept;
        } else {
            newest = other.newest, site = other.site;
            warps |= other.warps, lanes |= other.lanes;
        }
    }
};

// Whether two accesses of unordered threads to the same byte are a race.
inline bool conflict(Action one, Action other) {
    return (writes(one) || writes(other)) && !(one == Action::atomic && other == Action::atomic);
}

// A lane's own accesses come in program order. Which lane moves which byte of a matrix is not specified, so
// an access of either kind knows nothing of the other kind's before the warp has met.
inline bool program_ordered(Action one, Action other) { return of_matrix(one) == of_matrix(other); }

class ShadowMemory {
public:
    void start_block(std::size_t bytes);
    void block_met() { chained_.resize(1); }

    // One bit a byte: written in the low four, in flight in the high four.
    std::uint8_t& state(std::size_t word) { return states_[word]; }
    Touch& first(std::size_t word) { return first_[word]; }
    Touch* next(const Touch& touch) { return touch.next ? &chained_[touch.next] : nullptr; }
    void append(std::size_t word, const Touch& touch);

private:
    std::vector<std::uint8_t> states_;
    std::vector<Touch> first_;
    std::vector<Touch> chained_;  // beyond the first of each word; [0] is unused
};

}  // namespace gf_emulator
