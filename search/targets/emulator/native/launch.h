// One kernel launch, as all workers see it.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "order.h"
#include "gf_emulator/vector_types.h"

namespace gf_emulator {

class GlobalMemory;

using Entry = void (*)(void** arguments);

struct Launch {
    Entry entry = nullptr;
    void** arguments = nullptr;
    uint3 grid{};
    uint3 block{};
    std::size_t dynamic_bytes = 0;
    Order order;
    bool count = false;
    const void* module_base = nullptr;
    const GlobalMemory* global = nullptr;
    std::uint64_t blocks_total = 0;
    std::uint64_t blocks_executed = 0;  // fewer when only a sample runs

    mutable std::atomic<std::uint64_t> next{0};
    mutable std::atomic<bool> stop{false};

    // The linear index of the position-th block to run: evenly spread over the grid, in the order's order.
    std::uint64_t block_at(std::uint64_t position) const {
        const std::uint64_t sample = order.block(position, blocks_executed);
        return blocks_executed == blocks_total ? sample : sample * blocks_total / blocks_executed;
    }
};

}  // namespace gf_emulator
