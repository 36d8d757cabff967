#include "shadow_memory.h"

namespace gf_emulator {

void ShadowMemory::start_block(std::size_t bytes) {
    const std::size_t cells = bytes / Cell::bytes + 1, words = cells * Cell::words;
    states_.assign(words, 0);
    if (cells_.size() < cells) cells_.resize(cells);
    if (first_.size() < words) first_.resize(words);
    block_met();
}

void ShadowMemory::prepend(std::size_t word, const Touch& touch) {
    ChainedTouch& first = first_[word];
    const ChainedTouch moved = first;
    static_cast<Touch&>(first) = touch;
    first.next = std::uint32_t(chained_.size());
    first.wrote = moved.wrote | writes(touch.action());
    chained_.push_back(moved);
}

void ShadowMemory::set_aside(Cell& cell) {
    ChainedTouch moved{cell.read};
    moved.next = cell.more_reads;
    cell.more_reads = std::uint32_t(chained_.size());
    chained_.push_back(moved);
}

}  // namespace gf_emulator
