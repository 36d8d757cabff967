// mbarriers and bulk copies: what right pipelines compute in every schedule, and what is told of wrong ones.
#include "device.h"
#include "tensor_map.h"

extern "C" {
void __tsan_read4(void* address);
void __tsan_write4(void* address);
}

using namespace gf_emulator;

namespace {

#define INLINED inline __attribute__((always_inline))

INLINED void store(unsigned* address, unsigned value = 1) {
    if (Worker::current().checker()) __tsan_write4(address);
    *address = value;
}
INLINED unsigned load(unsigned* address) {
    if (Worker::current().checker()) __tsan_read4(address);
    return *address;
}
char* shared() { return static_cast<char*>(gf_emulator_dynamic_shared()); }
unsigned* slot(unsigned number) { return reinterpret_cast<unsigned*>(shared() + 1024 * (number + 1)); }
void* bar(unsigned number) { return shared() + 8 * number; }

constexpr unsigned words = 64;  // of a slot
unsigned* source;  // of 1000, 1001, ...

std::vector<Told> told(Shape shape, const std::function<void()>& kernel, bool check) {
    shape.check = check;
    shape.shared_bytes = 16384;
    std::vector<BufferSpec> buffers(1);
    buffers[0].name = "x", buffers[0].bytes = 16 * words * 4, buffers[0].is_output = true;
    buffers[0].fill = BufferSpec::Fill::zero;
    std::vector<Told> all;
    for (const Order& order : every_order()) {
        shape.order = order;
        all.push_back(run(shape, kernel, buffers, [](const GlobalMemory& memory) {
            source = reinterpret_cast<unsigned*>(memory.address(0));
            for (unsigned i = 0; i < 16 * words; i++) source[i] = 1000 + i;
        }));
    }
    return all;
}

bool all_say(const std::vector<Told>& all, const std::string& words) {
    bool every = true;
    for (const Told& told : all) every &= told.says(words);
    return every;
}
std::string first_words(const std::vector<Told>& all) {
    for (const Told& told : all)
        if (!told.lines.empty()) return told.all();
    return "";
}

// Runs plain and checked in every schedule: no word of it.
std::string any_word(const Shape& shape, const std::function<void()>& kernel) {
    return first_words(told(shape, kernel, false)) + first_words(told(shape, kernel, true));
}

// A ring of two slots that thread 0 fills and warp 1 empties.
enum class Wrong {
    none, no_wait, no_release, early_release, one_lane_releases, wrong_parity, too_few_bytes, too_many_bytes,
    no_init_fence, no_sync_after_init, one_arrival_too_many, one_arrival_too_few, consumer_writes_unfenced,
    release_and_read_again, no_expect
};

std::function<void()> ring(Wrong fault) {
    return [fault] {
        constexpr unsigned stages = 2, tiles = 7;
        if (thread() == 0) {
            for (unsigned s = 0; s < stages; s++) {
                gf_emulator_mbarrier_init(bar(s), 1);
                gf_emulator_mbarrier_init(bar(stages + s), fault == Wrong::one_arrival_too_many  ? 33
                                                           : fault == Wrong::one_arrival_too_few ? 16
                                                                                                 : 32);
            }
            if (fault != Wrong::no_init_fence) gf_emulator_mbarrier_init_fence();
        }
        if (fault != Wrong::no_sync_after_init) barrier();
        if (thread() == 0)
            for (unsigned tile = 0; tile < tiles; tile++) {
                const unsigned s = tile % stages, round = tile / stages;
                if (fault != Wrong::no_release) gf_emulator_mbarrier_wait(bar(stages + s), round % 2 ^ 1);
                const unsigned bytes = 4 * words;
                if (fault != Wrong::no_expect)
                    gf_emulator_mbarrier_expect(bar(s), fault == Wrong::too_few_bytes ? bytes / 2
                                                        : fault == Wrong::too_many_bytes ? 2 * bytes
                                                                                         : bytes, true);
                else
                    gf_emulator_mbarrier_arrive(bar(s));
                gf_emulator_bulk_load(slot(s), source + words * tile, bytes, bar(s));
            }
        if (thread() >= 32) {
            const unsigned lane = thread() - 32;
            for (unsigned tile = 0; tile < tiles; tile++) {
                const unsigned s = tile % stages, round = tile / stages;
                const auto release = [&] {
                    if (fault != Wrong::one_lane_releases)
                        gf_emulator_mbarrier_arrive(bar(stages + s));
                    else if (lane == 0)
                        for (int i = 0; i < 32; i++) gf_emulator_mbarrier_arrive(bar(stages + s));
                };
                if (fault != Wrong::no_wait)
                    gf_emulator_mbarrier_wait(bar(s), fault == Wrong::wrong_parity ? round % 2 ^ 1 : round % 2);
                if (fault == Wrong::early_release) release();
                for (unsigned i = lane; i < words; i += 32) {
                    const unsigned value = load(slot(s) + i);
                    if (fault == Wrong::none) SAME(value, 1000 + words * tile + i);
                }
                if (fault == Wrong::consumer_writes_unfenced) store(slot(s) + lane);
                if (fault != Wrong::early_release) release();
                if (fault == Wrong::release_and_read_again) load(slot(s) + lane);
            }
        }
    };
}

}  // namespace

CASE(a_ring_of_two_slots_is_right_in_every_schedule) { SAME(any_word({2, 64}, ring(Wrong::none)), ""); }

CASE(bytes_that_have_not_landed_are_not_read) {
    // Whoever reads before the copy has even begun reads what nobody wrote.
    for (const Wrong wrong : {Wrong::no_wait, Wrong::wrong_parity})
        for (const Told& one : told({1, 64}, ring(wrong), true))
            CLAIM(one.says("\"in_flight_read\"") || one.says("\"uninitialised\""));
}

CASE(a_slot_is_refilled_after_its_release_only) {
    CLAIM(all_say(told({1, 64}, ring(Wrong::no_release), true), "\"race\""));
    CLAIM(all_say(told({1, 64}, ring(Wrong::early_release), true), "\"race\""));
    CLAIM(all_say(told({1, 64}, ring(Wrong::release_and_read_again), true), "\"race\"") ||
          all_say(told({1, 64}, ring(Wrong::release_and_read_again), true), "in_flight_read"));
    CLAIM(all_say(told({1, 64}, ring(Wrong::one_lane_releases), true), "\"race\""));
}

CASE(a_barrier_is_seen_after_its_fence_and_a_meeting) {
    CLAIM(all_say(told({1, 64}, ring(Wrong::no_init_fence), true), "gf::mbarrier_init_fence()"));
    const auto unmet = told({1, 64}, ring(Wrong::no_sync_after_init), true);
    for (const Told& one : unmet) CLAIM(one.says("\"race\"") || one.says("\"uninitialised\""));
}

CASE(a_phase_that_never_ends_is_told_with_its_arrivals_and_bytes) {
    const auto many = told({1, 64}, ring(Wrong::too_many_bytes), false);
    CLAIM(all_say(many, "\"deadlock\"") && all_say(many, "expects 256 bytes that no copy brings"));
    const auto lacks = told({1, 64}, ring(Wrong::one_arrival_too_many), false);
    CLAIM(all_say(lacks, "\"deadlock\"") && all_say(lacks, "to which 32 of 33 arrivals came"));
}

CASE(expected_bytes_and_copied_bytes_are_the_same) {
    CLAIM(all_say(told({1, 64}, ring(Wrong::too_few_bytes), true), "expects fewer bytes than are copied"));
    for (const Told& one : told({1, 64}, ring(Wrong::no_expect), true)) CLAIM(!one.lines.empty());
}

CASE(too_few_arrivals_let_a_slot_be_refilled_early) {
    for (const Told& one : told({1, 64}, ring(Wrong::one_arrival_too_few), true)) CLAIM(!one.lines.empty());
}

CASE(generic_writes_before_a_copy_need_a_proxy_fence) {
    CLAIM(all_say(told({1, 64}, ring(Wrong::consumer_writes_unfenced), true), "gf::proxy_fence_shared()"));
}

namespace {

std::function<void()> store_back(bool fenced, bool met, bool waited, bool fence_by_the_storer, unsigned* target) {
    return [=] {
        for (unsigned round = 0; round < 2; round++) {
            store(slot(0) + thread(), 7 + thread() + round);
            if (fenced) gf_emulator_proxy_fence(true, true);
            if (met) barrier(1);
            if (thread() == 0) {
                if (fence_by_the_storer) gf_emulator_proxy_fence(true, true);
                gf_emulator_bulk_store(target, slot(0), 4 * 64);
                gf_emulator_bulk_commit();
                if (waited) gf_emulator_bulk_wait(0, false);
            }
            barrier(2);
        }
    };
}

std::vector<Told> stored(bool check, bool fenced, bool met, bool waited, bool late_fence = false, bool* right = nullptr) {
    std::vector<Told> all;
    for (const Order& order : every_order()) {
        Shape shape{1, 64};
        shape.check = check;
        shape.shared_bytes = 16384;
        shape.order = order;
        std::vector<BufferSpec> buffers(1);
        buffers[0].name = "y", buffers[0].bytes = 256, buffers[0].is_output = true;
        unsigned* y = nullptr;
        unsigned got[64];
        all.push_back(run(shape, [&] {
            store_back(fenced, met, waited, late_fence, y)();
            if (thread() == 0) std::memcpy(got, y, sizeof got);
        }, buffers, [&](const GlobalMemory& memory) { y = reinterpret_cast<unsigned*>(memory.address(0)); }));
        if (right) *right = got[5] == 7 + 5 + 1 && got[63] == 7 + 63 + 1;
    }
    return all;
}

}  // namespace

CASE(a_store_needs_a_fence_a_meeting_and_a_wait) {
    bool right = false;
    SAME(first_words(stored(true, true, true, true, false, &right)), "");
    CLAIM(right);
    SAME(first_words(stored(true, false, true, true, true)), "");  // the fence may lie behind the barrier
    SAME(first_words(stored(false, false, true, true)), "");
    CLAIM(all_say(stored(true, false, true, true), "gf::proxy_fence_shared()"));
    CLAIM(all_say(stored(true, true, false, true), "\"race\""));
    CLAIM(all_say(stored(true, true, true, false), "\"race\""));
    CLAIM(all_say(stored(true, true, true, false), "\"unwaited_copy\""));
}

CASE(a_flag_hands_on_a_proxy_fence_as_well) {
    const auto hand_over = [](bool fenced) {
        return [fenced] {
            unsigned* const flag = slot(4);
            unsigned before, zero = 0, increment = 1;
            if (thread() == 0) store(flag, 0);
            barrier();
            const auto add = [&](unsigned& value) {
                gf_emulator_atomic(flag, &value, &value, &before, AtomicOperation::add, AtomicType::uint32);
            };
            if (thread() == 32) {
                for (unsigned i = 0; i < words; i++) store(slot(0) + i, i);
                if (fenced) gf_emulator_proxy_fence(true, true);
                gf_emulator_fence(false);
                add(increment);
            }
            if (thread() == 0) {
                do add(zero);
                while (before == 0);
                gf_emulator_fence(false);
                gf_emulator_bulk_store(source, slot(0), 4 * words);
                gf_emulator_bulk_commit();
                gf_emulator_bulk_wait(0, false);
            }
        };
    };
    SAME(any_word({1, 64}, hand_over(true)), "");
    CLAIM(all_say(told({1, 64}, hand_over(false), true), "gf::proxy_fence_shared()"));
}

namespace {

EmulatedTensorMap map_of(unsigned* base, unsigned columns, unsigned rows, unsigned box_columns, unsigned box_rows,
                         unsigned swizzle = 0) {
    EmulatedTensorMap map{};
    map.base = reinterpret_cast<unsigned char*>(base);
    map.sizes[0] = columns, map.sizes[1] = rows;
    map.strides_bytes[0] = columns * 4;
    map.box[0] = box_columns, map.box[1] = box_rows;
    map.rank = 2, map.element_bytes = 4, map.swizzle_bytes = swizzle, map.tag = tensor_map_tag;
    return map;
}

void load_box(const EmulatedTensorMap& map, int c0, int c1, unsigned bytes) {
    if (thread() == 0) {
        gf_emulator_mbarrier_init(bar(0), 1);
        gf_emulator_mbarrier_init_fence();
        gf_emulator_mbarrier_expect(bar(0), bytes, true);
        const int at[] = {c0, c1};
        gf_emulator_tensor_load(slot(0), &map, bar(0), nullptr, 2, at);
    }
    barrier();
    gf_emulator_mbarrier_wait(bar(0), 0);
}

}  // namespace

CASE(a_box_of_a_tensor_lands_where_its_swizzle_puts_it_and_zeros_lie_outside) {
    for (const unsigned swizzle : {0u, 32u, 64u, 128u}) {
        const unsigned columns = swizzle ? swizzle / 4 : 32;
        SAME(any_word({1, 64}, [&] {
            const EmulatedTensorMap map = map_of(source, 40, 12, columns, 16, swizzle);
            load_box(map, 20, 4, columns * 4 * 16);
            if (thread()) return;
            for (unsigned row = 0; row < 16; row++)
                for (unsigned column = 0; column < columns; column++) {
                    unsigned byte = (row * columns + column) * 4;
                    if (swizzle) byte ^= (byte >> 7 & (swizzle / 16 - 1)) << 4;
                    const bool inside = 20 + column < 40 && 4 + row < 12;
                    SAME(load(slot(0) + byte / 4), inside ? 1000 + (4 + row) * 40 + 20 + column : 0);
                }
        }), "");
    }
    SAME(any_word({1, 64}, [&] {
        const EmulatedTensorMap map = map_of(source, 40, 12, 32, 4);
        load_box(map, -8, -2, 32 * 4 * 4);
        SAME(load(slot(0) + 7), 0u);
        SAME(load(slot(0) + 2 * 32 + 7), 0u);
        SAME(load(slot(0) + 2 * 32 + 8), 1000u);
        SAME(load(slot(0) + 3 * 32 + 31), 1000u + 40 + 23);
    }), "");
}

CASE(what_is_no_map_and_what_is_misaligned_is_refused) {
    EmulatedTensorMap map = map_of(nullptr, 40, 12, 32, 4);
    const auto run_with = [&](const EmulatedTensorMap& used, unsigned shift) {
        return told({1, 32}, [&, shift] {
            if (thread()) return;
            EmulatedTensorMap copied = used;
            copied.base = reinterpret_cast<unsigned char*>(source);
            gf_emulator_mbarrier_init(bar(0), 1);
            gf_emulator_mbarrier_init_fence();
            const int at[] = {0, 0};
            gf_emulator_tensor_load(reinterpret_cast<char*>(slot(0)) + shift, &copied, bar(0), nullptr, 2, at);
        }, false);
    };
    CLAIM(all_say(run_with(map, 16), "\"misaligned\""));
    map.swizzle_bytes = 128;
    CLAIM(all_say(run_with(map, 64), "\"misaligned\""));
    CLAIM(!all_say(run_with(map, 128), "\"misaligned\""));  // within the pattern of 1024 bytes
    map.tag = copied_tensor_map_tag;
    CLAIM(all_say(run_with(map, 0), "not __grid_constant__"));
    map.tag = 0;
    CLAIM(all_say(run_with(map, 0), "has not made a tensor map"));
    CLAIM(all_say(run_with(map_of(nullptr, 40, 12, 32, 256), 0), "\"out_of_bounds\""));
    CLAIM(all_say(run_with(map_of(nullptr, 40, 12, 32, 257), 0), "sizes that no map has"));
    map = map_of(nullptr, 40, 12, 32, 4);
    map.element_bytes = 0;
    CLAIM(all_say(run_with(map, 0), "sizes that no map has"));
}

namespace {

// Each block of a pair brings half of a slot to both; both release it to both.
std::function<void()> multicast(bool released, bool all_read_before) {
    return [=] {
        const unsigned rank = block() % 2;
        if (thread() == 0) {
            gf_emulator_mbarrier_init(bar(0), 1);
            gf_emulator_mbarrier_init(bar(1), 2);
            gf_emulator_mbarrier_init_fence();
        }
        gf_emulator_cluster_arrive();
        gf_emulator_cluster_wait();
        EmulatedTensorMap map = map_of(source, words / 2, 32, words / 2, 1);
        for (unsigned tile = 0; tile < 5; tile++) {
            if (thread() == 0) {
                if (released) gf_emulator_mbarrier_wait(bar(1), tile % 2 ^ 1);
                gf_emulator_mbarrier_expect(bar(0), 4 * words, true);
                const int at[] = {0, int(2 * tile + rank)};
                const unsigned both = 3;
                gf_emulator_tensor_load(slot(0) + rank * words / 2, &map, bar(0), &both, 2, at);
            }
            if (thread() < 32) continue;
            gf_emulator_mbarrier_wait(bar(0), tile % 2);
            const auto release = [&] {
                gf_emulator_warp_collective(~0u, Collective::sync_warp, 0, 0, 32);
                if (thread() == 32)
                    for (unsigned other = 0; other < 2; other++) gf_emulator_mbarrier_arrive_rank(bar(1), other);
            };
            if (!all_read_before) release();
            for (unsigned i = thread() - 32; i < words; i += 32) {
                const unsigned value = load(slot(0) + i);
                if (released && all_read_before) SAME(value, 1000 + words * tile + i);
            }
            if (all_read_before) release();
        }
        gf_emulator_cluster_arrive();
        gf_emulator_cluster_wait();
    };
}

}  // namespace

CASE(blocks_of_a_cluster_release_a_slot_to_each_other) {
    SAME(any_word({4, 64, 2}, multicast(true, true)), "");
    CLAIM(all_say(told({2, 64, 2}, multicast(true, false), true), "\"race\""));
    for (const Told& one : told({2, 64, 2}, multicast(false, true), true)) CLAIM(one.says("\"race\"") || one.says("in_flight"));
}
