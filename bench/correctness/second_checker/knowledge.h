// What happens before what, for the threads of one cluster: plain vector clocks, one entry for each fact. There are no
// shortcuts for whole warps or blocks, so that nothing here can err in the way in which the emulator's checks could.
//
// Facts, by number: [0, T) how much of each thread's past is known; [T, 2T) how much of it is also known to have been
// fenced for the asynchronous proxy; from 2T on, how many ends of an asynchronous agent are known (phases of an
// mbarrier, groups of a warp's products, groups of a thread's bulk stores).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace second {

using Count = std::uint32_t;

class Knowledge {
public:
    Count of(std::size_t fact) const { return fact < counts_.size() ? counts_[fact] : 0; }
    void learn(std::size_t fact, Count count) {
        if (fact >= counts_.size()) counts_.resize(fact + 1, 0);
        counts_[fact] = std::max(counts_[fact], count);
    }
    void join(const Knowledge& other) {
        if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size(), 0);
        for (std::size_t i = 0; i < other.counts_.size(); i++) counts_[i] = std::max(counts_[i], other.counts_[i]);
    }
    // What both know.
    void meet(const Knowledge& other) {
        for (std::size_t i = 0; i < counts_.size(); i++) counts_[i] = std::min(counts_[i], other.of(i));
    }
    // All that is known of `threads` threads' pasts is fenced.
    void fence(std::size_t threads) {
        if (counts_.size() < 2 * threads) counts_.resize(2 * threads, 0);
        for (std::size_t i = 0; i < threads; i++) counts_[threads + i] = std::max(counts_[threads + i], counts_[i]);
    }

private:
    std::vector<Count> counts_;
};

// A generic access of a thread, or an asynchronous operation that is over once `fact` is known up to `end`.
struct Generic {
    unsigned thread;
    Count time;
    const void* site;
    unsigned bytes;  // of its word, one bit each
};
struct Operation {
    std::size_t fact;
    Count end;
    const void* site;
};

struct Word {
    std::vector<Generic> writes, reads;
};
struct Chunk {  // of 16 bytes
    bool is_written_by_copy = false;
    Operation copy{};
    std::vector<Operation> reads;
    std::uint16_t written = 0;  // one bit a byte
    std::uint16_t barrier = 0;  // the same, of live mbarriers
};

// The recorded past of one block's shared memory.
struct Past {
    std::vector<Word> words;
    std::vector<Chunk> chunks;
    void start(std::size_t bytes) {
        words.assign(bytes / 4 + 4, {});
        chunks.assign(bytes / 16 + 1, {});
    }
};

}  // namespace second
