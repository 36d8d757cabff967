// What is known of one block's shared memory, word by word (4 bytes): which bytes were ever written, which
// are the destination of an asynchronous copy under way, and who touched them since the block last met. What touches
// four words at once (a row of a matrix, a vector, a copy) is kept once for them all, in their cell.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "clocks.h"
#include "findings.h"

namespace gf_emulator {

// Accesses of the same bytes of one word in the same way since the block last met: by any of `lanes` of any of
// `warps`. There are several warps only while no two of them can be ordered; whoever then touches the word races with
// one of them. Otherwise all accesses of a record lie between two events of its warp (Clocks::event), so that
// whoever knows one of a lane's accesses knows them all.
struct Touch {
    Clocks::Time newest = 0;
    Clocks::Time oldest = 0;
    std::uint32_t warps = 0;
    std::uint32_t lanes = 0;
    std::uint32_t site = 0;  // offset in the kernel library
    std::uint32_t how = 0;   // see below

    // `mapping`: of a warp's access of a matrix, which lane moves which byte of it; 0: not known, or one lane's.
    static std::uint32_t pack(unsigned bytes, Action action, std::uint32_t mapping = 0) {
        return bytes | unsigned(action) << 4 | mapping << 8;
    }
    unsigned bytes() const { return how & 15u; }
    Action action() const { return Action(how >> 4 & 15u); }
    std::uint32_t mapping() const { return how >> 8; }
    unsigned warp() const { return unsigned(__builtin_ctz(warps)); }  // the first
    // Adds an access in the same way, beside these.
    void add(const Touch& other) {
        newest = other.newest, site = other.site;
        warps |= other.warps, lanes |= other.lanes;
    }
};

struct ChainedTouch : Touch {
    std::uint32_t next = 0;  // in the chain of the word; 0: none
    std::uint32_t wrote = 0;  // of the word's first: whether the chain holds a write
};

// Of four words: the last access that wrote them all and those that read them all since, and what the words'
// own touches are, in short.
struct alignas(64) Cell {
    static constexpr std::size_t words = 4, bytes = 16;
    static constexpr std::uint32_t all_written = 0x0f0f0f0f, all_in_flight = 0xf0f0f0f0;
    Touch write, read;
    Clocks::Time words_newest = 0;
    Clocks::Time words_wrote = 0;
    std::uint32_t words_warps = 0;
    std::uint32_t more_reads = 0;  // of other warps or times, in ShadowMemory's chain; 0: none
};

inline bool is_cell(std::size_t offset, std::size_t bytes) { return bytes == Cell::bytes && offset % Cell::bytes == 0; }

// Whether two accesses of unordered threads to the same byte are a race. Volatile loads and stores are relaxed
// operations (PTX ISA, "Memory Consistency Model"), so a flag may be volatile on one side or on both. Two volatile
// stores are still reported, since one of them is lost, and so are volatile loads and stores of shared memory by lanes
// of one warp, which once relied on its lockstep ("Independent Thread Scheduling", CUDA C++ Programming Guide).
inline bool conflict(Action one, Action other, bool one_warp) {
    if (!writes(one) && !writes(other)) return false;
    if (is_atomic(one)) return !is_atomic(other) && !is_volatile(other);
    if (is_atomic(other)) return !is_volatile(one);
    if (!is_volatile(one) || !is_volatile(other)) return true;
    return one_warp || (writes(one) && writes(other));
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
    // The states of a cell's words together.
    std::uint32_t states(std::size_t cell) const {
        std::uint32_t all;
        std::memcpy(&all, &states_[cell * Cell::words], sizeof all);
        return all;
    }
    void set_states(std::size_t cell, std::uint32_t all) {
        std::memcpy(&states_[cell * Cell::words], &all, sizeof all);
    }
    Cell& cell(std::size_t number) { return cells_[number]; }
    ChainedTouch& first(std::size_t word) { return first_[word]; }
    ChainedTouch* next(const ChainedTouch& touch) { return at(touch.next); }
    ChainedTouch* at(std::uint32_t number) { return number ? &chained_[number] : nullptr; }
    const ChainedTouch* next(const ChainedTouch& touch) const { return at(touch.next); }
    const ChainedTouch* at(std::uint32_t number) const { return number ? &chained_[number] : nullptr; }
    // Puts `touch` first in its word's chain.
    void prepend(std::size_t word, const Touch& touch);
    // Moves a cell's reads to its chain, to make room for others.
    void set_aside(Cell& cell);

private:
    std::vector<std::uint8_t> states_;
    std::vector<Cell> cells_;
    std::vector<ChainedTouch> first_;
    std::vector<ChainedTouch> chained_;  // beyond the first of each word; [0] is unused
};

}  // namespace gf_emulator
