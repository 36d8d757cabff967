// Which lane holds which element of a tensor-core operand, written down once more from the PTX ISA's formulas.
#include <array>
#include <random>

#include "device.h"
#include "gf/convert.cuh"
#include "gf/ldmatrix.cuh"
#include "gf/mma.cuh"
#include "gf/mma_fp8.cuh"
#include "gf/mma_tf32.cuh"
#include "gf/stmatrix.cuh"
#include "fragment_layout.h"

using namespace gf_emulator;

namespace {

template <int rows, int columns>
struct Matrix {
    std::array<float, rows * columns> values{};
    float& at(unsigned row, unsigned column) { return values[row * columns + column]; }
};

template <int rows, int columns>
Matrix<rows, columns> small_numbers(unsigned seed) {
    std::mt19937 random(seed);
    Matrix<rows, columns> made;
    for (float& one : made.values) one = float(int(random() % 17) - 8);
    return made;
}

template <int depth>
Matrix<16, 8> product(Matrix<16, depth> a, Matrix<depth, 8> b, Matrix<16, 8> c) {
    for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 8; column++)
            for (unsigned k = 0; k < depth; k++) c.at(row, column) += a.at(row, k) * b.at(k, column);
    return c;
}

// "Matrix Fragments for mma.m16n8k...": the accumulator's element i of a lane, the same for every type.
struct Place {
    unsigned row, column;
};
Place accumulator(unsigned lane, unsigned i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }

// Runs `multiply(lane, d)` in every lane of a warp and compares with the product plus what d held before.
template <int depth, class Multiply>
void compare(Matrix<16, depth>& a, Matrix<depth, 8>& b, const Multiply& multiply) {
    Matrix<16, 8> c = small_numbers<16, 8>(9), got, want = product<depth>(a, b, c);
    for (const Order& order : every_order()) {
        Shape shape;
        shape.order = order;
        const Told told = run(shape, [&] {
            const unsigned lane = gf_emulator_lane();
            float d[4];
            for (unsigned i = 0; i < 4; i++) d[i] = c.at(accumulator(lane, i).row, accumulator(lane, i).column);
            multiply(lane, d);
            for (unsigned i = 0; i < 4; i++) got.at(accumulator(lane, i).row, accumulator(lane, i).column) = d[i];
        });
        SAME(told.all(), "");
        CLAIM(got.values == want.values);
    }
}

template <class T>
unsigned pair(float low, float high) {
    using Format = std::conditional_t<std::is_same_v<T, __half>, HalfFormat, BFloat16Format>;
    return Format::from_float(low) | unsigned(Format::from_float(high)) << 16;
}

template <class T>
unsigned code(float value) {
    using Format = std::conditional_t<std::is_same_v<T, __nv_fp8_e4m3>, E4m3Format, E5m2Format>;
    return Format::from_float(value, false);
}

template <class T>
void sixteen_bit() {
    auto a = small_numbers<16, 16>(1);
    auto b = small_numbers<16, 8>(2);
    compare<16>(a, b, [&](unsigned lane, float (&d)[4]) {
        const auto a_at = [&](unsigned i) {
            return a.at(lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8), lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8));
        };
        const auto b_at = [&](unsigned i) { return b.at(lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane / 4); };
        unsigned part[4];
        for (unsigned r = 0; r < 4; r++) part[r] = pair<T>(a_at(2 * r), a_at(2 * r + 1));
        gf::mma_m16n8k16<T>(d, part, pair<T>(b_at(0), b_at(1)), pair<T>(b_at(2), b_at(3)));
    });
}

template <class TA, class TB>
void eight_bit() {
    auto a = small_numbers<16, 32>(3);
    auto b = small_numbers<32, 8>(4);
    for (auto* values : {a.values.data(), b.values.data()})
        for (int i = 0; i < 256; i++) values[i] = float(int(values[i]) % 4 * 2);     // exact in either format
    compare<32>(a, b, [&](unsigned lane, float (&d)[4]) {
        const auto a_at = [&](unsigned i) {
            return a.at(lane / 4 + (i < 4 || (i >= 8 && i < 12) ? 0 : 8), lane % 4 * 4 + (i & 3) + (i < 8 ? 0 : 16));
        };
        const auto b_at = [&](unsigned i) { return b.at(lane % 4 * 4 + (i & 3) + (i < 4 ? 0 : 16), lane / 4); };
        unsigned part_a[4] = {}, part_b[2] = {};
        for (unsigned i = 0; i < 16; i++) part_a[i / 4] |= code<TA>(a_at(i)) << i % 4 * 8;
        for (unsigned i = 0; i < 8; i++) part_b[i / 4] |= code<TB>(b_at(i)) << i % 4 * 8;
        gf::mma_m16n8k32<TA, TB>(d, part_a, part_b[0], part_b[1]);
    });
}

}  // namespace

CASE(m16n8k16_in_half) { sixteen_bit<__half>(); }
CASE(m16n8k16_in_bfloat16) { sixteen_bit<__nv_bfloat16>(); }
CASE(m16n8k32_in_e4m3) { eight_bit<__nv_fp8_e4m3, __nv_fp8_e4m3>(); }
CASE(m16n8k32_in_e5m2) { eight_bit<__nv_fp8_e5m2, __nv_fp8_e5m2>(); }
CASE(m16n8k32_of_both_formats) {
    eight_bit<__nv_fp8_e4m3, __nv_fp8_e5m2>();
    eight_bit<__nv_fp8_e5m2, __nv_fp8_e4m3>();
}

CASE(m16n8k8_in_tf32) {
    auto a = small_numbers<16, 8>(5);
    auto b = small_numbers<8, 8>(6);
    compare<8>(a, b, [&](unsigned lane, float (&d)[4]) {
        unsigned part[4];
        for (unsigned i = 0; i < 4; i++)
            part[i] = gf::to_tf32(a.at(lane / 4 + (i == 0 || i == 2 ? 0 : 8), lane % 4 + (i < 2 ? 0 : 4)));
        gf::mma_m16n8k8_tf32(d, part, gf::to_tf32(b.at(lane % 4, lane / 4)), gf::to_tf32(b.at(lane % 4 + 4, lane / 4)));
    });
}

CASE(a_tf32_operands_lowest_bits_are_not_seen) {
    run({}, [] {
        const unsigned one_and_little = float_bits(1.0f) | 0x1fffu, part[4] = {one_and_little, one_and_little, 0, 0};
        float d[4] = {};
        gf::mma_m16n8k8_tf32(d, part, float_bits(1.0f), 0);
        for (const float one : d) SAME(one, 4.0f);
    });
}

CASE(ldmatrix_and_stmatrix_follow_the_row_pointers) {
    for (const bool transposed : {false, true})
        for (const Order& order : every_order()) {
            Shape shape;
            shape.shared_bytes = 2 * 4 * 64 * sizeof(std::uint16_t);
            shape.order = order;
            const Told told = run(shape, [&] {
                auto* in = static_cast<std::uint16_t*>(gf_emulator_dynamic_shared());
                auto* out = in + 4 * 64;
                const unsigned lane = gf_emulator_lane(), row = lane % 8, matrix = lane / 8;
                for (unsigned i = lane; i < 256; i += 32) in[i] = std::uint16_t(i);
                barrier();
                unsigned four[4];
                transposed ? gf::ldmatrix_transposed(four, in + lane * 8) : gf::ldmatrix(four, in + lane * 8);
                for (unsigned m = 0; m < 4; m++)
                    for (unsigned i = 0; i < 2; i++) {
                        const unsigned r = lane / 4, c = lane % 4 * 2 + i;
                        SAME(four[m] >> 16 * i & 0xffffu, 64 * m + (transposed ? 8 * c + r : 8 * r + c));
                    }
                // Back again, the matrices in reverse.
                std::uint16_t* place = out + (3 - matrix) * 64 + row * 8;
                transposed ? gf::stmatrix_transposed(place, four) : gf::stmatrix(place, four);
                barrier();
                for (unsigned i = lane; i < 256; i += 32) SAME(out[i], (3 - i / 64) * 64 + i % 64);
            });
            SAME(told.all(), "");
        }
}

CASE(every_layout_holds_every_element_once) {
    for (int shape = 0; shape < 7; shape++)
        for (const TileUse use : {TileUse::matrix_a, TileUse::matrix_b, TileUse::accumulator}) {
            const FragmentLayout& layout = layout_of(TileShape(shape), use);
            if (layout.tiles == 0) continue;
            std::vector<int> times(std::size_t(layout.rows * layout.columns));
            for (int tile = 0; tile < layout.tiles; tile++)
                for (int element = 0; element < 64; element++) {
                    const int row = layout.tile[tile].row + element / 8;
                    const int column = layout.tile[tile].column + element % 8;
                    times[std::size_t(row * layout.columns + column)]++;
                }
            CLAIM(times == std::vector<int>(times.size(), 1));
        }
}
