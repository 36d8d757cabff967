// Blocks of a cluster: who they are, their barrier, and each other's shared memory.
#include "device.h"

using namespace gf_emulator;

static float* shared() { return static_cast<float*>(gf_emulator_dynamic_shared()); }
static void meet() {
    gf_emulator_cluster_arrive();
    gf_emulator_cluster_wait();
}

CASE(blocks_of_a_cluster_are_neighbours_and_ranks_count_along_x_first) {
    Launch launch;
    launch.grid = {6, 4, 2};
    launch.cluster = {3, 2, 2};
    std::vector<int> times(6 * 4 * 2);
    for (std::uint64_t cluster = 0; cluster < 4; cluster++)
        for (unsigned rank = 0; rank < 12; rank++) {
            const std::uint64_t block = launch.block_of(cluster, rank);
            const std::uint64_t x = block % 6, y = block / 6 % 4, z = block / 24;
            times[block]++;
            SAME(x % 3 + y % 2 * 3 + z % 2 * 6, rank);
            SAME(x / 3 + y / 2 * 2, cluster);
        }
    CLAIM(times == std::vector<int>(48, 1));
}

CASE(a_sample_of_blocks_takes_whole_clusters) {
    Launch launch;
    launch.grid = {64, 1, 1};
    launch.cluster = {4, 1, 1};
    launch.blocks_total = 64;
    launch.blocks_executed = 8;
    launch.sample = {3, 15};
    SAME(launch.clusters_executed(), 2u);
    SAME(launch.cluster_at(0), 3u);
    SAME(launch.cluster_at(1), 15u);
}

CASE(all_threads_of_all_blocks_meet) {
    for (const Order& order : every_order()) {
        Shape shape{8, 40, 4};
        shape.order = order;
        unsigned came[2] = {}, wrong = 0;
        const Told told = run(shape, [&] {
            for (unsigned round = 1; round <= 3; round++) {
                came[block() / 4]++;
                meet();
                wrong += came[block() / 4] != round * 160;
                meet();
            }
        });
        SAME(wrong, 0u);
        SAME(told.all(), "");
    }
}

CASE(each_block_has_its_own_shared_memory_and_reaches_the_others) {
    for (const Order& order : every_order()) {
        Shape shape{4, 32, 4, 32 * sizeof(float)};
        shape.order = order;
        unsigned wrong = 0;
        const Told told = run(shape, [&] {
            const unsigned lane = thread();
            shared()[lane] = float(100 * block() + lane);
            meet();
            for (unsigned rank = 0; rank < 4; rank++) {
                const auto* other = static_cast<float*>(gf_emulator_map_shared_rank(shared() + lane, rank));
                wrong += *other != float(100 * rank + lane);
            }
            meet();
        });
        SAME(wrong, 0u);
        SAME(told.all(), "");
    }
}

CASE(arriving_twice_and_waiting_without_arriving_are_divergences) {
    CLAIM(run({2, 32, 2}, [] {
              gf_emulator_cluster_arrive();
              gf_emulator_cluster_arrive();
          }).says("thread 0 arrives at the cluster's barrier twice"));
    CLAIM(run({2, 32, 2}, [] { gf_emulator_cluster_wait(); }).says("without having arrived at it"));
}

CASE(a_rank_beyond_the_cluster_and_a_block_that_ended_are_faults) {
    const Shape shape{2, 32, 2, 64};
    CLAIM(run(shape, [] { gf_emulator_map_shared_rank(shared(), 2); }).says("asks for block 2 of a cluster of 2"));
    const Told told = run(shape, [] {
        if (block() == 1) return;
        for (int i = 0; i < 100; i++) gf_emulator_yield();
        gf_emulator_map_shared_rank(shared(), 1);
    });
    CLAIM(told.says("block 1 of the cluster, which has ended"));
}

CASE(blocks_that_left_are_not_waited_for) {
    const Told told = run({4, 32, 4}, [] {
        if (block() != 2) meet();
    });
    SAME(told.all(), "");
}
