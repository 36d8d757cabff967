// What a checked run says of accesses that it was told of, and what it must not say. The hooks are called here as the
// compiler calls them in a kernel.
#include "device.h"

extern "C" {
void __tsan_read1(void* address);
void __tsan_read4(void* address);
void __tsan_write1(void* address);
void __tsan_write4(void* address);
}

using namespace gf_emulator;

namespace {

#define INLINED inline __attribute__((always_inline))

INLINED void store(unsigned* address, unsigned value = 1) {
    __tsan_write4(address);
    *address = value;
}
INLINED unsigned load(unsigned* address) {
    __tsan_read4(address);
    return *address;
}
INLINED void add(unsigned* address, unsigned value = 1) {
    unsigned before;
    gf_emulator_atomic(address, &value, &value, &before, AtomicOperation::add, AtomicType::uint32);
}
unsigned* shared() { return static_cast<unsigned*>(gf_emulator_dynamic_shared()); }
void sync_warp(unsigned mask = ~0u) { gf_emulator_warp_collective(mask, Collective::sync_warp, 0, 0, 32); }

// In every schedule: a race shows whoever ran first, and silence is silence in each.
std::vector<Told> checked(Shape shape, const std::function<void()>& kernel, std::size_t outputs = 0,
                          unsigned** output = nullptr, BufferSpec::Fill fill = BufferSpec::Fill::poison) {
    std::vector<BufferSpec> buffers(outputs);
    for (std::size_t i = 0; i < outputs; i++) {
        buffers[i].name = "y" + std::to_string(i);
        buffers[i].bytes = 64 * sizeof(unsigned);
        buffers[i].is_output = true;
        buffers[i].fill = fill;
    }
    shape.check = true;
    if (!shape.shared_bytes) shape.shared_bytes = 4096;
    std::vector<Told> all;
    for (const Order& order : every_order()) {
        shape.order = order;
        all.push_back(run(shape, kernel, buffers, [&](const GlobalMemory& memory) {
            for (std::size_t i = 0; i < outputs; i++) output[i] = reinterpret_cast<unsigned*>(memory.address(i));
        }));
    }
    return all;
}

bool all_say(const std::vector<Told>& all, const char* kind) {
    bool every = true;
    for (const Told& told : all) every &= told.says("\"kind\":\"" + std::string(kind) + '"');
    return every;
}
std::string first_words(const std::vector<Told>& all) {
    for (const Told& told : all)
        if (!told.lines.empty()) return told.lines[0];
    return "";
}

}  // namespace

CASE(a_barrier_orders_all_that_came_before_it) {
    SAME(first_words(checked({3, 100}, [] {
        for (int round = 0; round < 3; round++) {
            store(shared() + thread());
            barrier();
            load(shared() + 99 - thread());
            barrier();
        }
    })), "");
}

CASE(without_a_barrier_a_write_and_a_read_are_a_race_whoever_ran_first) {
    CLAIM(all_say(checked({1, 64}, [] {
        if (thread() == 0) store(shared());
        if (thread() == 40) load(shared());
    }), "race"));
}

CASE(a_barrier_missing_at_the_end_of_a_loop_is_a_race) {
    CLAIM(all_say(checked({1, 64}, [] {
        for (int round = 0; round < 2; round++) {
            if (thread() == 0) store(shared());
            barrier();
            load(shared());
        }
    }), "race"));
}

CASE(two_writers_race_and_two_readers_or_two_atomics_do_not) {
    CLAIM(all_say(checked({1, 64}, [] { store(shared(), thread()); }), "race"));
    const std::vector<Told> same = checked({1, 64}, [] { store(shared(), 7); });
    CLAIM(all_say(same, "same_value_writes"));
    for (const Told& told : same) CLAIM(!told.says("\"race\""));
    SAME(first_words(checked({1, 64}, [] {
        if (thread() == 0) store(shared());
        barrier();
        load(shared());
        barrier();
        add(shared());
    })), "");
    CLAIM(all_say(checked({1, 64}, [] {
        if (thread() == 0) store(shared());
        barrier();
        thread() < 32 ? add(shared()) : store(shared());
    }), "race"));
}

CASE(neighbouring_bytes_of_one_word_are_not_the_same_memory) {
    SAME(first_words(checked({1, 128}, [] { __tsan_write1(reinterpret_cast<char*>(shared()) + thread()); })), "");
}

CASE(a_warps_barrier_orders_its_own_lanes_only) {
    SAME(first_words(checked({1, 64}, [] {
        store(shared() + thread());
        sync_warp();
        load(shared() + (thread() ^ 31));
    })), "");
    CLAIM(all_say(checked({1, 64}, [] {
        store(shared() + thread());
        sync_warp();
        load(shared() + (thread() ^ 32));
    }), "race"));
}

CASE(a_shuffle_orders_no_memory) {
    CLAIM(all_say(checked({1, 32}, [] {
        store(shared() + thread());
        gf_emulator_warp_collective(~0u, Collective::shuffle_xor, 0, 1, 32);
        load(shared() + (thread() ^ 1));
    }), "race"));
}

CASE(a_partial_mask_orders_the_lanes_that_it_names) {
    const auto exchange = [](unsigned with) {
        return [=] {
            store(shared() + thread());
            sync_warp(thread() < 16 ? 0xffffu : 0xffff0000u);
            load(shared() + (thread() ^ with));
        };
    };
    SAME(first_words(checked({1, 32}, exchange(15))), "");
    CLAIM(all_say(checked({1, 32}, exchange(16)), "race"));
}

CASE(a_named_barrier_orders_arrivals_before_waits) {
    const auto pass = [](bool late) {
        return [=] {
            if (thread() < 32) {
                if (!late) store(shared() + thread());
                gf_emulator_named_barrier(1, 64, false);
                if (late) store(shared() + thread());
            } else {
                gf_emulator_named_barrier(1, 64, true);
                load(shared() + thread() - 32);
            }
        };
    };
    SAME(first_words(checked({1, 64}, pass(false))), "");
    CLAIM(all_say(checked({1, 64}, pass(true)), "race"));
}

CASE(order_is_handed_on) {
    // Warp 0 tells warp 1, warp 1 tells warp 2: warp 2 may read what warp 0 wrote.
    SAME(first_words(checked({1, 96}, [] {
        const unsigned warp = thread() / 32;
        if (warp == 0) store(shared() + thread());
        if (warp < 2) gf_emulator_named_barrier(1, 64, warp == 1);
        if (warp > 0) gf_emulator_named_barrier(2, 64, warp == 2);
        if (warp == 2) load(shared() + thread() - 64);
    })), "");
}

CASE(a_flag_orders_with_fences_on_both_sides_only) {
    unsigned* y[2] = {};
    const auto pass = [&](bool fence) {
        return [&y, fence] {
            if (block() == 0 && thread() == 0) {
                store(y[0], 5);
                if (fence) gf_emulator_fence(true);
                add(y[1]);
            }
            if (block() == 1 && thread() == 0) {
                unsigned seen = 0, zero = 0;
                for (int turn = 0; seen == 0 && turn < 100000; turn++)
                    gf_emulator_atomic(y[1], &zero, &zero, &seen, AtomicOperation::add, AtomicType::uint32);
                gf_emulator_fence(true);
                load(y[0]);
            }
        };
    };
    // One worker runs block 0 first in this order: the other block would wait for it for ever.
    const auto forward = [&](bool fence) {
        Shape shape{2, 32};
        shape.check = true;
        std::vector<BufferSpec> buffers(2);
        buffers[0].name = "data", buffers[1].name = "flag";
        for (BufferSpec& one : buffers) one.bytes = 64, one.fill = BufferSpec::Fill::zero, one.is_output = true;
        return run(shape, pass(fence), buffers, [&](const GlobalMemory& memory) {
            for (std::size_t i = 0; i < 2; i++) y[i] = reinterpret_cast<unsigned*>(memory.address(i));
        });
    };
    SAME(forward(true).all(), "");
    CLAIM(forward(false).says("\"race\"") && forward(false).says("global:data"));
}

CASE(shared_memory_that_nobody_wrote_is_uninitialised_in_every_block_anew) {
    CLAIM(all_say(checked({1, 32}, [] { load(shared() + thread()); }), "uninitialised"));
    CLAIM(all_say(checked({2, 32}, [] {
        if (block() == 0) store(shared() + thread());
        barrier();
        load(shared() + thread());
    }), "uninitialised"));
    CLAIM(all_say(checked({1, 32}, [] {
        if (thread() == 0) __tsan_write1(shared());
        barrier();
        load(shared());                  // three of its four bytes
    }), "uninitialised"));
}

CASE(a_copy_in_flight_must_not_be_read_even_by_who_started_it) {
    alignas(16) static unsigned source[4];
    CLAIM(all_say(checked({1, 32}, [] {
        if (thread()) return;
        gf_emulator_async_copy(shared(), source, 16, 0);
        gf_emulator_async_copy_commit();
        load(shared());
        gf_emulator_async_copy_wait(0);
    }), "in_flight_read"));
    SAME(first_words(checked({1, 64}, [] {
        if (thread() == 0) {
            gf_emulator_async_copy(shared(), source, 16, 0);
            gf_emulator_async_copy_commit();
            gf_emulator_async_copy_wait(0);
        }
        barrier();
        load(shared());
    })), "");
    CLAIM(all_say(checked({1, 64}, [] {
        if (thread() == 0) {
            gf_emulator_async_copy(shared(), source, 16, 0);
            gf_emulator_async_copy_commit();
        }
        barrier();                       // the barrier waits for threads, not for copies
        load(shared());
        barrier();
        gf_emulator_async_copy_wait(0);
    }), "in_flight_read"));
}

CASE(accesses_outside_are_told_with_the_memory_that_they_miss) {
    unsigned* y[1] = {};
    const auto told = checked({1, 32}, [&] {
        if (thread() == 0) __tsan_read4(y[0] + 66);
    }, 1, y);
    CLAIM(all_say(told, "out_of_bounds") && told[0].says("8 bytes past the end of 'y0'"));
    CLAIM(all_say(checked({1, 32}, [] {
        if (thread() == 0) __tsan_write4(shared() + 1024);
    }), "out_of_bounds"));
}

CASE(blocks_race_in_global_memory_where_they_meet) {
    unsigned* y[1] = {};
    CLAIM(all_say(checked({2, 32}, [&] {
        if (thread() == 0) store(y[0], 1 + block());
    }, 1, y), "race"));
    SAME(first_words(checked({2, 32}, [&] { store(y[0] + 32 * block() + thread()); }, 1, y)), "");
    SAME(first_words(checked({2, 32}, [&] { add(y[0]); }, 1, y, BufferSpec::Fill::zero)), "");
}

CASE(an_output_that_nobody_wrote_is_uninitialised) {
    unsigned* y[1] = {};
    CLAIM(all_say(checked({1, 32}, [&] {
        if (thread() == 0) load(y[0] + 3);
    }, 1, y), "uninitialised"));
}

CASE(a_threads_own_variables_are_nobody_elses) {
    SAME(first_words(checked({2, 64}, [] {
        unsigned own[8] = {};
        for (unsigned& one : own) store(&one, thread());
        barrier();
        for (unsigned& one : own) SAME(load(&one), thread());
    })), "");
}

CASE(blocks_of_a_cluster_are_ordered_by_its_barrier) {
    const auto exchange = [](bool meet) {
        return [=] {
            const auto sync = [] {
                gf_emulator_cluster_arrive();
                gf_emulator_cluster_wait();
            };
            sync();
            store(shared() + thread());
            meet ? sync() : void(barrier());
            load(static_cast<unsigned*>(gf_emulator_map_shared_rank(shared() + thread(), 1 - block())));
            sync();
        };
    };
    SAME(first_words(checked({2, 32, 2}, exchange(true))), "");
    CLAIM(all_say(checked({2, 32, 2}, exchange(false)), "race"));
}

CASE(distributed_shared_memory_is_reached_between_the_first_meeting_and_the_end_only) {
    CLAIM(all_say(checked({2, 32, 2}, [] {
        store(shared() + thread());
        load(static_cast<unsigned*>(gf_emulator_map_shared_rank(shared() + thread(), 1 - block())));
        gf_emulator_cluster_arrive();
        gf_emulator_cluster_wait();
    }), "device_fault"));
}
