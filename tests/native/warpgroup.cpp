// Matrix products of warpgroups: their layouts, and what is told of wrong pipelines.
#include "device.h"
#include "gf_emulator/float8.h"
#include "gf_emulator/float_formats.h"

extern "C" {
void __tsan_read4(void* address);
void __tsan_write4(void* address);
}

using namespace gf_emulator;

namespace {

char* shared() { return static_cast<char*>(gf_emulator_dynamic_shared()); }

struct Layout {
    unsigned swizzle;  // bytes
    bool transposed;
    Element element;
    unsigned lines;  // rows of A, columns of B

    unsigned bytes() const { return element == Element::float16 || element == Element::bfloat16 ? 2 : 1; }
    unsigned depth() const { return 32 / bytes(); }
    // By hand, from PTX ISA, "Shared Memory Matrix Layout".
    std::size_t place(unsigned line, unsigned k) const {
        const std::size_t byte = (transposed ? line : k) * bytes(), row = transposed ? k : line;
        if (swizzle == 0)
            return transposed ? byte / 16 * 256 + k / 8 * 128 + k % 8 * 16 + byte % 16
                              : line / 8 * 256 + byte / 16 * 128 + line % 8 * 16 + byte % 16;
        const std::size_t piece = transposed ? byte / swizzle : 0, rows = transposed ? depth() : lines;
        std::size_t address = piece * rows * swizzle + row * swizzle + byte % swizzle;
        return address ^ (address >> 7 & (swizzle / 16 - 1)) << 4;
    }
    std::uint64_t descriptor(std::size_t offset) const {
        const std::uint64_t mode = swizzle == 0 ? 0 : swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
        const std::uint64_t leading = swizzle == 0 ? 128 : depth() * swizzle, stride = swizzle == 0 ? 256 : 8 * swizzle;
        return offset >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62;
    }
};

float value_a(unsigned row, unsigned k) { return float(int((row * 7 + k * 3) % 9) - 4); }
float value_b(unsigned k, unsigned column) { return float(int((k * 5 + column * 11) % 7) - 3); }

unsigned code(Element element, float value) {
    switch (element) {
        case Element::float16: return HalfFormat::from_float(value);
        case Element::bfloat16: return BFloat16Format::from_float(value);
        case Element::float8_e4m3: return E4m3Format::from_float(value, true);
        default: return E5m2Format::from_float(value, true);
    }
}

template <class Value>
void fill(const Layout& layout, std::size_t offset, Value value) {
    for (unsigned line = 0; line < layout.lines; line++)
        for (unsigned k = 0; k < layout.depth(); k++) {
            const unsigned bits = code(layout.element, value(line, k));
            std::memcpy(shared() + offset + layout.place(line, k), &bits, layout.bytes());
        }
}

float expected(unsigned row, unsigned column, unsigned depth) {
    float sum = 0;
    for (unsigned k = 0; k < depth; k++) sum += value_a(row, k) * value_b(k, column);
    return sum;
}

constexpr std::size_t b_offset = 16384;

template <unsigned columns>
void multiply(const Layout& a, const Layout& b, bool from_registers) {
    if (thread() == 0) {
        fill(a, 0, [](unsigned row, unsigned k) { return value_a(row, k); });
        fill(b, b_offset, [](unsigned column, unsigned k) { return value_b(k, column); });
    }
    barrier();
    float acc[columns / 2];
    for (float& one : acc) one = 100;
    unsigned registers[4];
    const unsigned row = thread() / 32 * 16 + thread() % 32 / 4, in_register = 4 / a.bytes();
    for (unsigned r = 0; r < 4; r++) {
        registers[r] = 0;
        for (unsigned i = 0; i < in_register; i++)
            registers[r] |= code(a.element, value_a(row + 8 * (r % 2), r / 2 * a.depth() / 2 + thread() % 4 * in_register + i))
                            << 8 * a.bytes() * i;
    }
    gf_emulator_wgmma_fence();
    for (unsigned flags : {0u, 1u})
        gf_emulator_wgmma(acc, a.descriptor(0), from_registers ? registers : nullptr, b.descriptor(b_offset), columns,
                          a.element, flags | 2u * a.transposed | 4u * b.transposed);
    gf_emulator_wgmma_commit();
    CLAIM(acc[0] != acc[0]);
    gf_emulator_wgmma_wait(0);
    for (unsigned i = 0; i < columns / 2; i++)
        SAME(acc[i], 2 * expected(row + 8 * (i / 2 % 2), i / 4 * 8 + thread() % 4 * 2 + i % 2, a.depth()));
}

Told once(const std::function<void()>& kernel, Order order = Order(), bool check = false, unsigned threads = 128) {
    Shape shape{1, threads};
    shape.shared_bytes = 65536;
    shape.check = check;
    shape.order = order;
    return run(shape, kernel);
}

}  // namespace

CASE(products_of_every_layout) {
    for (const Element element : {Element::float16, Element::bfloat16})
        for (const unsigned swizzle : {0u, 32u, 64u, 128u})
            for (const unsigned transposes : {0u, 1u, 2u, 3u}) {
                const Layout a{swizzle, (transposes & 1) != 0, element, 64}, b{swizzle, (transposes & 2) != 0, element, 64};
                SAME(once([&] { multiply<64>(a, b, false); }).all(), "");
                if (!a.transposed) SAME(once([&] { multiply<64>(a, b, true); }).all(), "");
            }
    for (const Element element : {Element::float8_e4m3, Element::float8_e5m2})
        for (const bool from_registers : {false, true}) {
            const Layout a{32, false, element, 64}, b{128, false, element, 256};
            SAME(once([&] { multiply<256>(a, b, from_registers); }).all(), "");
        }
    const Layout a{128, false, Element::float16, 64}, b{0, false, Element::float16, 8};
    for (const Order& order : every_order()) SAME(once([&] { multiply<8>(a, b, false); }, order).all(), "");
}

namespace {

enum class Wrong {
    none, no_fence, no_wait, reads_early, writes_early, one_group_too_few, b_overwritten, one_warp_missing,
    unfenced_operand, unmet_operand, written_after_the_fence, one_warp_too_many, outside, crooked, never_waited
};

#define INLINED inline __attribute__((always_inline))
INLINED void put(void* address, unsigned value) {
    if (Worker::current().checker()) __tsan_write4(address);
    std::memcpy(address, &value, 4);
}
INLINED float get(float* address) {
    if (Worker::current().checker()) __tsan_read4(address);
    return *address;
}
INLINED void set(float* address, float value) {
    if (Worker::current().checker()) __tsan_write4(address);
    *address = value;
}

// Ones times ones, in three groups of one product.
std::function<void()> pipeline(Wrong wrong) {
    return [wrong] {
        const Layout a{128, false, Element::float16, 64}, b{128, false, Element::float16, 64};
        for (unsigned i = thread(); i < 64 * 128 / 4; i += 128) {
            put(shared() + 4 * i, 0x3c003c00);
            put(shared() + b_offset + 4 * i, 0x3c003c00);
        }
        if (wrong != Wrong::unfenced_operand) gf_emulator_proxy_fence(true, true);
        if (wrong != Wrong::unmet_operand) barrier();
        float acc[32], other[32];
        for (unsigned i = 0; i < 32; i++) set(acc + i, 0), set(other + i, 0);
        if (wrong != Wrong::no_fence) gf_emulator_wgmma_fence();
        std::uint64_t descriptor = b.descriptor(b_offset);
        if (wrong == Wrong::outside) descriptor += 65536 >> 4;
        if (wrong == Wrong::crooked) descriptor += 128 >> 4;
        for (unsigned k = 0; k < 3; k++) {
            if (wrong == Wrong::one_warp_missing && thread() / 32 == 2 && k == 2) continue;
            gf_emulator_wgmma(k == 1 ? other : acc, a.descriptor(0) + 2 * k, nullptr, descriptor + (k % 2) * 2, 64,
                              Element::float16, 1);
            gf_emulator_wgmma_commit();
        }
        if (wrong == Wrong::b_overwritten && thread() == 5) put(shared() + b_offset, 0);
        if (wrong == Wrong::reads_early) get(acc + 3);
        if (wrong == Wrong::writes_early) set(acc + 3, 5);
        if (wrong == Wrong::never_waited) return;
        gf_emulator_wgmma_wait(1);
        const float first = get(other);
        if (wrong == Wrong::none) SAME(first, 16.0f);
        if (wrong == Wrong::one_group_too_few) get(acc);
        if (wrong != Wrong::no_wait) gf_emulator_wgmma_wait(0);
        const float sum = get(acc + 31);
        if (wrong == Wrong::none) SAME(sum, 32.0f);
        if (wrong == Wrong::written_after_the_fence) {
            gf_emulator_wgmma_fence();
            set(other, 1);
            gf_emulator_wgmma(other, a.descriptor(0), nullptr, descriptor, 64, Element::float16, 1);
            gf_emulator_wgmma_commit();
            gf_emulator_wgmma_wait(0);
        }
    };
}

void every_order_says(Wrong wrong, const char* word, unsigned threads = 128) {
    for (const Order& order : every_order()) {
        const Told told = once(pipeline(wrong), order, true, threads);
        CLAIM(told.says(word));
        if (!told.says(word)) SAME(told.all(), std::to_string(int(wrong)));
    }
}

}  // namespace

CASE(a_pipeline_of_groups_is_right_in_every_schedule) {
    for (const Order& order : every_order()) {
        SAME(once(pipeline(Wrong::none), order, true).all(), "");
        SAME(once(pipeline(Wrong::none), order, false, 256).all(), "");
    }
}

CASE(accumulators_are_nobodys_until_the_wait) {
    every_order_says(Wrong::reads_early, "\"in_flight_read\"");
    every_order_says(Wrong::writes_early, "\"race\"");
    every_order_says(Wrong::one_group_too_few, "\"in_flight_read\"");
    every_order_says(Wrong::no_wait, "\"in_flight_read\"");
    every_order_says(Wrong::never_waited, "\"unwaited_copy\"");
}

CASE(registers_need_a_fence) {
    every_order_says(Wrong::no_fence, "gf::wgmma_fence()");
    every_order_says(Wrong::written_after_the_fence, "gf::wgmma_fence()");
}

CASE(operands_are_ordered_fenced_and_left_alone) {
    every_order_says(Wrong::b_overwritten, "\"race\"");
    every_order_says(Wrong::unfenced_operand, "gf::proxy_fence_shared()");
    for (const Order& order : every_order()) {
        const Told told = once(pipeline(Wrong::unmet_operand), order, true);
        CLAIM(told.says("\"race\"") || told.says("\"uninitialised\""));
    }
}

CASE(a_warpgroup_is_four_whole_warps) {
    every_order_says(Wrong::one_warp_missing, "\"divergence\"");
    every_order_says(Wrong::none, "\"divergence\"", 96);
}

CASE(descriptors_stay_inside_and_on_their_pattern) {
    every_order_says(Wrong::outside, "\"out_of_bounds\"");
    every_order_says(Wrong::crooked, "\"misaligned\"");
}

CASE(registers_come_out_of_one_pool) {
    const auto split = [](unsigned producer, unsigned consumer, unsigned then = 0) {
        return once([=] {
            gf_emulator_set_registers(thread() < 128 ? producer : consumer, thread() >= 128);
            if (then && thread() >= 128) gf_emulator_set_registers(then, true);
        }, Order(), false, 384).all();
    };
    SAME(split(24, 240), "");
    CLAIM(split(56, 240).find("\"deadlock\"") != std::string::npos);
    CLAIM(split(24, 200, 160).find("\"device_fault\"") != std::string::npos);
}

CASE(one_lane_is_elected_the_same_in_all_warps) {
    for (const Order& order : every_order()) {
        unsigned elected[64] = {};
        SAME(once([&] { elected[thread()] = gf_emulator_elect(); }, order, false, 64).all(), "");
        unsigned count = 0;
        for (unsigned t = 0; t < 32; t++) {
            count += elected[t];
            SAME(elected[t], elected[t + 32]);
        }
        SAME(count, 1u);
    }
}
