// One kernel launch, as all workers see it.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "order.h"
#include "gf_emulator/vector_types.h"

namespace gf_emulator {

class CarriedState;
class GlobalMemory;
class GlobalShadow;
class ModuleMemory;

using Entry = void (*)(void** arguments);

struct Launch {
    Entry entry = nullptr;
    void** arguments = nullptr;
    uint3 grid{};
    uint3 block{};
    uint3 cluster{1, 1, 1};  // in blocks; divides the grid
    std::size_t dynamic_bytes = 0;
    Order order;
    bool count = false;
    bool check = false;
    std::uint64_t undefined = 0;  // what a shuffle gives that reads a lane which takes no part in it
    const void* module_base = nullptr;
    const ModuleMemory* module = nullptr;
    const GlobalMemory* global = nullptr;
    GlobalShadow* global_shadow = nullptr;  // of a checked launch
    CarriedState* carried_state = nullptr;  // of a checked launch
    std::uint64_t blocks_total = 0;
    std::uint64_t blocks_executed = 0;  // fewer when only a sample runs
    std::uint64_t resident_blocks = 1;  // that may run beside each other, if they wait for each other
    std::vector<std::uint64_t> sample;  // clusters to run; empty: all

    mutable std::atomic<std::uint64_t> next{0};
    mutable std::atomic<std::uint64_t> next_outside{0};  // the sample
    mutable std::atomic<bool> stop{false};
    // What workers tell each other of blocks that wait for other blocks.
    mutable std::atomic<std::uint64_t> progress{0};  // changes when any block does more than wait
    mutable std::atomic<int> busy_workers{0};        // with blocks that do not only wait
    mutable std::atomic<std::uint64_t> resident{0};  // clusters that have started and not ended
    // Of the barrier of the whole grid.
    mutable std::atomic<std::uint64_t> grid_arrived{0};  // blocks
    mutable std::atomic<std::uint32_t> grid_phase{0};

    unsigned cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
    std::uint64_t clusters_executed() const { return blocks_executed / cluster_blocks(); }
    std::uint64_t clusters_outside() const { return sample.empty() ? 0 : blocks_total / cluster_blocks() - sample.size(); }
    // The linear index of the position-th cluster that the sample leaves out.
    std::uint64_t cluster_outside(std::uint64_t position) const {
        std::vector<std::uint64_t> sorted(sample);
        std::sort(sorted.begin(), sorted.end());
        for (const std::uint64_t number : sorted) position += number <= position;
        return position;
    }
    std::uint64_t resident_clusters() const { return std::max<std::uint64_t>(1, resident_blocks / cluster_blocks()); }

    // The linear index of the position-th cluster to run, in the order's order.
    std::uint64_t cluster_at(std::uint64_t position) const {
        const std::uint64_t number = order.block(position, clusters_executed());
        return sample.empty() ? number : sample[number];
    }

    // The linear index of a cluster's block. Ranks count x first (PTX ISA, "%cluster_ctarank").
    std::uint64_t block_of(std::uint64_t cluster_index, unsigned rank) const {
        const std::uint64_t columns = grid.x / cluster.x, rows = grid.y / cluster.y;
        const std::uint64_t x = cluster_index % columns * cluster.x + rank % cluster.x,
                            y = cluster_index / columns % rows * cluster.y + rank / cluster.x % cluster.y,
                            z = cluster_index / columns / rows * cluster.z + rank / cluster.x / cluster.y;
        return (z * grid.y + y) * grid.x + x;
    }
};

}  // namespace gf_emulator
