// Warps: partial ones, collectives of some lanes, lanes that have left.
#include "device.h"

using namespace gf_emulator;

static std::uint64_t meet(unsigned mask, Collective kind, std::uint64_t value, int argument = 0, int width = 32) {
    return gf_emulator_warp_collective(mask, kind, value, argument, width);
}

CASE(shuffles_move_values_as_the_isa_says) {
    for (const Order& order : every_order()) {
        Shape shape;
        shape.order = order;
        run(shape, [] {
            const unsigned lane = gf_emulator_lane();
            SAME(meet(~0u, Collective::shuffle_xor, lane, 5), lane ^ 5u);
            SAME(meet(~0u, Collective::shuffle_up, lane, 3), lane < 3 ? lane : lane - 3);
            SAME(meet(~0u, Collective::shuffle_down, lane, 3), lane + 3 > 31 ? lane : lane + 3);
            SAME(meet(~0u, Collective::shuffle_index, lane, 9), 9u);
            // Parts of eight lanes: what would leave the part stays.
            SAME(meet(~0u, Collective::shuffle_up, lane, 2, 8), lane % 8 < 2 ? lane : lane - 2);
            SAME(meet(~0u, Collective::shuffle_down, lane, 2, 8), lane % 8 + 2 > 7 ? lane : lane + 2);
            SAME(meet(~0u, Collective::shuffle_index, lane, 3, 8), lane / 8 * 8 + 3);
        });
    }
}

CASE(votes_and_reductions_take_every_lane) {
    run({}, [] {
        const unsigned lane = gf_emulator_lane();
        SAME(meet(~0u, Collective::ballot, lane % 3 == 0), 0x49249249u);
        SAME(meet(~0u, Collective::any, lane == 31), 1u);
        SAME(meet(~0u, Collective::all, lane != 31), 0u);
        SAME(unsigned(meet(~0u, Collective::reduce_add, lane)), 496u);
        SAME(unsigned(meet(~0u, Collective::reduce_xor, lane)), 0u);
        SAME(int(meet(~0u, Collective::reduce_min_signed, unsigned(-int(lane)))), -31);
        SAME(unsigned(meet(~0u, Collective::reduce_max_unsigned, unsigned(-int(lane)))), 0xffffffffu);
        SAME(unsigned(meet(~0u, Collective::match_any, lane / 16)), lane < 16 ? 0xffffu : 0xffff0000u);
    });
}

CASE(disjoint_masks_meet_at_once) {
    for (const Order& order : every_order()) {
        Shape shape;
        shape.order = order;
        const Told told = run(shape, [] {
            const unsigned lane = gf_emulator_lane(), mask = lane % 2 ? 0xaaaaaaaau : 0x55555555u;
            SAME(meet(mask, Collective::ballot, 1), mask);
            SAME(meet(mask, Collective::shuffle_xor, lane, 2), lane ^ 2u);
        });
        SAME(told.all(), "");
    }
}

CASE(lanes_that_left_are_not_waited_for) {
    const Told told = run({1, 64}, [] {
        const unsigned lane = gf_emulator_lane();
        if (lane >= 20) return;
        SAME(meet(~0u, Collective::ballot, 1), 0xfffffu);
        meet(~0u, Collective::sync_warp, 0);
    });
    SAME(told.all(), "");
}

CASE(the_last_warp_has_only_the_lanes_that_exist) {
    run({1, 32 + 5}, [] {
        const unsigned there = thread() < 32 ? ~0u : 31u;
        SAME(meet(~0u, Collective::ballot, 1), there);
        SAME(gf_emulator_active_mask() | 1u << gf_emulator_lane(), gf_emulator_active_mask());
    });
}

CASE(a_lane_outside_its_own_mask_is_a_divergence) {
    const Told told = run({}, [] { meet(0xfffffffeu, Collective::sync_warp, 0); });
    CLAIM(told.says("\"divergence\"") && told.says("lane 0 calls __syncwarp with mask 0xfffffffe"));
}

CASE(lanes_in_different_collectives_of_one_mask_are_a_divergence) {
    const Told told = run({}, [] {
        meet(~0u, gf_emulator_lane() == 9 ? Collective::ballot : Collective::sync_warp, 1);
    });
    CLAIM(told.says("\"divergence\"") && told.says("lane 9 calls __ballot_sync while other lanes"));
}

CASE(waiting_for_a_lane_that_never_comes_is_a_deadlock_that_says_where_each_stands) {
    const Told told = run({}, [] {
        if (gf_emulator_lane() == 0) {
            barrier(5);
            return;
        }
        meet(~0u, Collective::sync_warp, 0);
    });
    CLAIM(told.says("\"deadlock\"") && told.says("32 of 32 threads wait for others that never come"));
    CLAIM(told.says("\"operation\":\"__syncthreads\""));
    CLAIM(told.says("\"operation\":\"__syncwarp\",\"mask\":4294967295"));
}

CASE(a_thread_that_spins_lets_others_go_on) {
    for (const Order& order : every_order()) {
        Shape shape{1, 64};
        shape.order = order;
        volatile unsigned flags = 0;
        const Told told = run(shape, [&] {
            if (thread() % 7 == 0)
                while (flags < 54) gf_emulator_yield();
            else
                flags = flags + 1;
        });
        SAME(told.all(), "");
        SAME(unsigned(flags), 54u);
    }
}
