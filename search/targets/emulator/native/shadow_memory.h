// What is known of one block's shared memory, word by word (4 bytes): which bytes were ever written, which
// are the destination of an asynchronous copy under way, and who touched them since the block last met.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "clocks.h"
#include "findings.h"

namespace gf_emulator {

// Accesses of one word, all by lanes of one warp, to the same bytes and in the same way.
struct Touch {
    Clocks::Time newest = 0;
    Clocks::Time oldest = 0;
    std::uint32_t lanes = 0;
    std::uint32_t site = 0;  // offset in the kernel library
    std::uint32_t next = 0;  // in the chain of the word; 0: none
    std::uint16_t who = 0;   // see below
    std::uint16_t unused = 0;

    static std::uint16_t pack(unsigned warp, unsigned bytes, Action action) {
        return std::uint16_t(warp | bytes << 5 | unsigned(action) << 9);
    }
    unsigned warp() const { return who & 31u; }
    unsigned bytes() const { return who >> 5 & 15u; }
    Action action() const { return Action(who >> 9); }
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

    std::uint8_t& written(std::size_t word) { return written_[word]; }
    std::uint8_t& in_flight(std::size_t word) { return in_flight_[word]; }
    Touch& first(std::size_t word) { return first_[word]; }
    Touch* next(const Touch& touch) { return touch.next ? &chained_[touch.next] : nullptr; }
    void append(std::size_t word, const Touch& touch);

private:
    std::vector<std::uint8_t> written_;    // one bit a byte
    std::vector<std::uint8_t> in_flight_;  // one bit a byte
    std::vector<Touch> first_;
    std::vector<Touch> chained_;  // beyond the first of each word; [0] is unused
};

}  // namespace gf_emulator
