// One kernel launch, as all workers see it.
#pragma once
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
    const void* module_base = nullptr;
    const ModuleMemory* module = nullptr;
    const GlobalMemory* global = nullptr;
    GlobalShadow* global_shadow = nullptr;  // of a checked launch
    CarriedState* carried_state = nullptr;  // of a checked launch
    std::uint64_t blocks_total = 0;
    std::uint64_t blocks_executed = 0;  // fewer when only a sample runs
    std::vector<std::uint64_t> sample;  // clusters to run; empty: all

    mutable std::atomic<std::uint64_t> next{0};
    mutable std::atomic<bool> stop{false};

    unsigned cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
    std::uint64_t clusters_executed() const { return blocks_executed / cluster_blocks(); }

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
