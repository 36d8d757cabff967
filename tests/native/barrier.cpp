// The block's barrier and its reducing forms.
#include "device.h"

using namespace gf_emulator;

CASE(nobody_passes_before_all_have_come) {
    for (const Order& order : every_order()) {
        Shape shape{3, 70};
        shape.order = order;
        std::vector<unsigned> came(3), passed_too_early(3);
        run(shape, [&] {
            for (unsigned round = 1; round <= 5; round++) {
                came[block()]++;
                barrier();
                passed_too_early[block()] += came[block()] != round * 70;
                barrier();
            }
        });
        CLAIM(passed_too_early == std::vector<unsigned>(3));
    }
}

CASE(reducing_forms_count_the_predicates) {
    run({1, 100}, [] {
        const auto meet = [](BarrierOperation operation, bool predicate) {
            return gf_emulator_block_barrier(operation, predicate, 1);
        };
        SAME(meet(BarrierOperation::count, thread() % 3 == 0), 34);
        SAME(meet(BarrierOperation::count, false), 0);
        SAME(meet(BarrierOperation::all, true), 1);
        SAME(meet(BarrierOperation::all, thread() != 99), 0);
        SAME(meet(BarrierOperation::any, thread() == 99), 1);
        SAME(meet(BarrierOperation::any, false), 0);
    });
}

CASE(threads_that_left_are_not_waited_for) {
    for (const Order& order : every_order()) {
        Shape shape{1, 70};
        shape.order = order;
        int passed = 0;
        const Told told = run(shape, [&] {
            if (thread() >= 40) return;
            passed += gf_emulator_block_barrier(BarrierOperation::count, 1, 1) == 40;
        });
        SAME(passed, 40);
        SAME(told.all(), "");
    }
}

CASE(barriers_of_different_lines_are_a_divergence_that_names_both) {
    const Told told = run({1, 64}, [] { barrier(thread() < 32 ? 10 : 20); });
    CLAIM(told.says("\"divergence\""));
    CLAIM(told.says("thread 32 comes to the __syncthreads of line 20 while others of its block wait in the "
                    "__syncthreads of line 10"));
}

CASE(a_plain_and_a_reducing_barrier_do_not_meet) {
    const Told told = run({1, 64}, [] {
        gf_emulator_block_barrier(thread() ? BarrierOperation::sync : BarrierOperation::any, 0, 1);
    });
    CLAIM(told.says("\"divergence\"") && told.says("__syncthreads_or"));
}

CASE(a_fault_in_one_block_ends_the_launch) {
    std::vector<unsigned> begun;
    run({50, 32}, [&] {
        if (thread() == 0) begun.push_back(block());
        if (block() == 3) gf_emulator_trap("it was meant to");
        barrier();
    });
    SAME(begun.size(), 4u);
}
