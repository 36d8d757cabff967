// `__device__` objects keep their values from call to call on a GPU. A run begins with their initial values, so what a
// run reads before it has written it, and leaves changed, is another value in the kernel's next call.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "findings.h"
#include "module_memory.h"

namespace gf_emulator {

class CarriedState {
public:
    // `bytes`: one bit for each byte of the word that the run has not written yet. Of a read that synchronises, too:
    // an atomic's or a volatile one's.
    void read(const ModuleMemory::Object& object, std::size_t word, unsigned bytes, const Party& reader);
    // At the end of the run: a finding for each reader of a byte that has changed. Counters and flags that synchronise
    // may go on from call to call, while nothing else does: beside other bytes that stay, or pieces of the heap, or
    // where they are many, they tell a call whether an earlier one has left its answer.
    // Whether anything has changed.
    bool report(const ModuleMemory& module) const;

private:
    static constexpr std::size_t most_counter_bytes = 256;
    static constexpr std::size_t kept_readers = 255;  // of an object; fewer source sites
    struct Reads {
        std::vector<std::uint8_t> bytes;     // by word, of plain reads
        std::vector<std::uint8_t> counters;  // by word, of reads that synchronise
        std::vector<std::uint8_t> reader;  // by word: the first, counted from 1
        std::vector<Party> readers;
    };
    bool report_counters(const ModuleMemory& module) const;
    std::mutex mutex_;
    std::map<const ModuleMemory::Object*, Reads> reads_;
};

}  // namespace gf_emulator
