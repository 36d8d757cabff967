#include "shadow_memory.h"

namespace gf_emulator {

void ShadowMemory::start_block(std::size_t bytes) {
    const std::size_t cells = bytes / Cell::bytes + 1, words = cells * Cell::words;
    states_.assign(words, 0);
    if (cells_.size() < cells) cells_.resize(cells);
    if (first_.size() < words) first_.resize(words);
    block_met();
}

void ShadowMemory::append(std::size_t word, const Touch& touch) {
    ChainedTouch added{touch};
    added.next = first_[word].next;
    first_[word].next = std::uint32_t(chained_.size());
    chained_.push_back(added);
}

}  // namespace gf_emulator
