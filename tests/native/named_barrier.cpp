// Numbered barriers with a thread count: bar.sync and bar.arrive.
#include "device.h"

using namespace gf_emulator;

CASE(half_a_block_meets_without_the_other) {
    for (const Order& order : every_order()) {
        Shape shape{1, 128};
        shape.order = order;
        unsigned came[2] = {}, wrong = 0;
        const Told told = run(shape, [&] {
            const unsigned half = thread() / 64;
            for (unsigned round = 1; round <= 3; round++) {
                came[half]++;
                gf_emulator_named_barrier(1 + half, 64, true);
                wrong += came[half] != round * 64;
                gf_emulator_named_barrier(1 + half, 64, true);
            }
        });
        SAME(wrong, 0u);
        SAME(told.all(), "");
    }
}

CASE(who_arrives_goes_on_and_who_waits_sees_what_it_did) {
    for (const Order& order : every_order()) {
        Shape shape{1, 64};
        shape.order = order;
        unsigned written = 0, seen = 0;
        const Told told = run(shape, [&] {
            if (thread() < 32) {
                written++;
                gf_emulator_named_barrier(3, 64, false);
            } else {
                gf_emulator_named_barrier(3, 64, true);
                seen += written == 32;
            }
        });
        SAME(seen, 32u);
        SAME(told.all(), "");
    }
}

CASE(counts_that_differ_are_a_divergence) {
    const Told told = run({1, 64}, [] { gf_emulator_named_barrier(1, thread() < 32 ? 64 : 96, true); });
    CLAIM(told.says("\"divergence\"") && told.says("named barrier 1 for 96 threads while others came for 64"));
}

CASE(only_numbers_1_to_15_and_whole_warps) {
    for (unsigned number : {0u, 16u, 99u})
        CLAIM(run({}, [=] { gf_emulator_named_barrier(number, 32, true); }).says("they are numbered from 1 to 15"));
    for (unsigned count : {0u, 16u, 33u, 1056u})
        CLAIM(run({}, [=] { gf_emulator_named_barrier(1, count, true); }).says("it takes a multiple of 32"));
}

CASE(too_large_a_count_is_a_deadlock_that_names_the_barrier) {
    const Told told = run({1, 64}, [] { gf_emulator_named_barrier(2, 96, true); });
    CLAIM(told.says("\"deadlock\"") && told.says("named barrier 2, to which 64 of 96 threads came,"));
}
