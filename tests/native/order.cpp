// Which thread runs next, and which block starts next.
#include "order.h"

#include <set>

#include "device.h"

using namespace gf_emulator;

CASE(every_order_starts_every_block_once) {
    for (const Order& order : every_order())
        for (std::uint64_t total = 1; total <= 130; total++) {
            std::set<std::uint64_t> started;
            for (std::uint64_t position = 0; position < total; position++) started.insert(order.block(position, total));
            SAME(started.size(), total);
            CLAIM(*started.rbegin() == total - 1);
        }
}

CASE(forward_and_reverse_pick_the_ends) {
    Order forward(Order::Kind::forward, 0), reverse(Order::Kind::reverse, 0);
    for (std::uint32_t ready : {1u, 0x80000000u, 0xffffffffu, 0x00f0u, 0x90000002u}) {
        SAME(forward.pick(ready), unsigned(__builtin_ctz(ready)));
        SAME(reverse.pick(ready), 31u - unsigned(__builtin_clz(ready)));
    }
}

CASE(a_seeded_order_picks_set_bits_only_and_reaches_all_of_them) {
    Order order(Order::Kind::seeded, 7);
    const std::uint32_t ready = 0x81002411u;
    std::uint32_t picked = 0;
    for (int i = 0; i < 1000; i++) picked |= 1u << order.pick(ready);
    SAME(picked, ready);
}

CASE(a_blocks_choices_follow_from_the_seed_and_its_index) {
    std::set<std::vector<unsigned>> different;
    for (std::uint64_t block = 0; block < 8; block++) {
        std::vector<unsigned> picks[2];
        for (auto& one : picks) {
            Order order(Order::Kind::seeded, 3);
            for (std::uint64_t skip = 0; skip < block; skip++) order.pick(~0u);
            order.start_block(block);
            for (int i = 0; i < 16; i++) one.push_back(order.pick(~0u));
        }
        CLAIM(picks[0] == picks[1]);
        different.insert(picks[0]);
    }
    SAME(different.size(), 8u);
}

CASE(threads_run_in_the_order_that_is_asked_for) {
    for (unsigned threads : {1u, 31u, 32u, 33u, 96u, 1024u}) {
        std::vector<unsigned> seen;
        run({1, threads}, [&] { seen.push_back(thread()); });
        bool forward = seen.size() == threads;
        for (unsigned i = 0; i < seen.size(); i++) forward &= seen[i] == i;
        CLAIM(forward);
        std::vector<unsigned> reversed;
        Shape shape{1, threads};
        shape.order = Order(Order::Kind::reverse, 0);
        run(shape, [&] { reversed.push_back(thread()); });
        CLAIM(std::vector<unsigned>(seen.rbegin(), seen.rend()) == reversed);
    }
}

CASE(every_order_runs_every_thread_of_every_block_once) {
    for (const Order& order : every_order()) {
        std::vector<int> runs(7 * 70);
        Shape shape{7, 70};
        shape.order = order;
        run(shape, [&] {
            barrier();
            runs[block() * 70 + thread()]++;
        });
        CLAIM(runs == std::vector<int>(7 * 70, 1));
    }
}
