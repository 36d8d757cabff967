// D = A * B + C over one warp. The last lane to arrive gathers the warp's fragments into whole matrices,
// multiplies in float32 in order of k, and hands the result back. Real tensor cores round differently in the
// last places.
#include <array>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "gf_emulator/float_formats.h"
#include "fragment_layout.h"
#include "register_operands.h"
#include "worker.h"

namespace gf_emulator {

namespace {

constexpr int largest_tile = 512;  // elements of the largest operand

// What each lane publishes.
struct MatrixMultiply {
    void* d;
    const void* a;
    const void* b;
    const void* c;
    TileShape shape;
    Element input;
    Element input_b;
    Element accumulator;
};

void half_to_float8(const std::uint16_t* half, float* result) {
#if defined(__F16C__)
    _mm256_storeu_ps(result, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half))));
#else
    for (int i = 0; i < 8; i++) result[i] = HalfFormat::to_float(half[i]);
#endif
}

void bfloat_to_float8(const std::uint16_t* bfloat, float* result) {
    for (int i = 0; i < 8; i++) result[i] = BFloat16Format::to_float(bfloat[i]);
}

// A tile's pairs, lane after lane, are its 64 elements in the order of its own lines.
void gather16(const FragmentLayout& layout, const Registers& registers, Element element, float* matrix) {
    for (int p = 0; p < layout.tiles; p++) {
        std::uint16_t tile[8][8];
        for (int lane = 0; lane < 32; lane++)
            std::memcpy(&tile[lane / 4][lane % 4 * 2], registers[lane] + 4 * p, 4);
        float* corner = matrix + layout.tile[p].row * layout.columns + layout.tile[p].column;
        for (int line = 0; line < 8; line++) {
            float values[8];
            element == Element::float16 ? half_to_float8(tile[line], values)
                                        : bfloat_to_float8(tile[line], values);
            if (layout.pairs_along_columns)
                std::memcpy(corner + line * layout.columns, values, sizeof values);
            else
                for (int i = 0; i < 8; i++) corner[i * layout.columns + line] = values[i];
        }
    }
}

void gather32(const FragmentLayout& layout, const Registers& registers, float* matrix) {
    const int step = layout.pairs_along_columns ? 1 : layout.columns;
    const int line_step = layout.pairs_along_columns ? layout.columns : 1;
    for (int lane = 0; lane < 32; lane++)
        for (int p = 0; p < layout.tiles; p++) {
            float pair[2];
            std::memcpy(pair, registers[lane] + 8 * p, sizeof pair);
            float* place = matrix + layout.tile[p].row * layout.columns + layout.tile[p].column +
                           lane / 4 * line_step + lane % 4 * 2 * step;
            place[0] = pair[0];
            place[step] = pair[1];
        }
}

void scatter(const FragmentLayout& layout, const float* matrix, Element element,
             const std::array<char*, 32>& registers) {
    const int step = layout.pairs_along_columns ? 1 : layout.columns;
    const int line_step = layout.pairs_along_columns ? layout.columns : 1;
    for (int lane = 0; lane < 32; lane++)
        for (int p = 0; p < layout.tiles; p++) {
            const float* place = matrix + layout.tile[p].row * layout.columns + layout.tile[p].column +
                                 lane / 4 * line_step + lane % 4 * 2 * step;
            const float pair[2] = {place[0], place[step]};
            if (element == Element::float32) {
                std::memcpy(registers[lane] + 8 * p, pair, sizeof pair);
            } else {
                const std::uint16_t halves[2] = {HalfFormat::from_float(pair[0]),
                                                 HalfFormat::from_float(pair[1])};
                std::memcpy(registers[lane] + 4 * p, halves, sizeof halves);
            }
        }
}

using Vector = float __attribute__((vector_size(32)));
constexpr int lanes_of_vector = 8;

// Eight sums at a time stay in registers, enough of them to hide the latency of a multiply-add.
template <int columns, int depth>
void multiply(const float* a, const float* b, float* c, int rows) {
    constexpr int vectors = columns / lanes_of_vector, rows_at_once = 8 / vectors;
    const Vector* b_vectors = reinterpret_cast<const Vector*>(b);
    Vector* c_vectors = reinterpret_cast<Vector*>(c);
    for (int row = 0; row < rows; row += rows_at_once) {
        Vector sums[rows_at_once][vectors];
        for (int r = 0; r < rows_at_once; r++)
            for (int v = 0; v < vectors; v++) sums[r][v] = c_vectors[(row + r) * vectors + v];
        for (int k = 0; k < depth; k++)
            for (int r = 0; r < rows_at_once; r++)
                for (int v = 0; v < vectors; v++)
                    sums[r][v] += a[(row + r) * depth + k] * b_vectors[k * vectors + v];
        for (int r = 0; r < rows_at_once; r++)
            for (int v = 0; v < vectors; v++) c_vectors[(row + r) * vectors + v] = sums[r][v];
    }
}

template <int columns>
void multiply(const float* a, const float* b, float* c, int rows, int depth) {
    switch (depth) {
        case 8: multiply<columns, 8>(a, b, c, rows); break;
        case 16: multiply<columns, 16>(a, b, c, rows); break;
        default: multiply<columns, 32>(a, b, c, rows); break;
    }
}

void gather(const MatrixMultiply& operands, TileUse use, const Registers& registers, float* matrix) {
    const FragmentLayout& layout = layout_of(operands.shape, use);
    const Element element = use == TileUse::matrix_a ? operands.input : operands.input_b;
    if (in_whole_registers(element))
        gather_registers(registers, use, element,
                         layout.rows * layout.columns / 32 / elements_a_register(element), layout.columns,
                         matrix);
    else
        gather16(layout, registers, element, matrix);
}

void check_agreement(Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
    Fiber& first = warp.lane(__builtin_ctz(arrived));
    if (arrived != ~0u)
        worker.fail("divergence", first.site,
                    format("%s needs all 32 lanes of its warp; %d came and the others exited", name_of(kind),
                           __builtin_popcount(arrived)));
    for (unsigned lane = 1; lane < 32; lane++)
        if (warp.lane(lane).aligned_operations != first.aligned_operations)
            worker.fail("divergence", first.site,
                        format("lane %u went through %u warp-wide matrix operations and lane 0 through %u",
                               lane, warp.lane(lane).aligned_operations, first.aligned_operations));
}

void count_flop(Worker& worker, const MatrixMultiply& operands, const FragmentLayout& d, int depth) {
    const int kind = operands.accumulator == Element::float16 ? 2
                     : operands.input == Element::bfloat16    ? 1
                     : operands.input == Element::tf32        ? 3
                     : operands.input != Element::float16     ? 4
                                                              : 0;
    worker.counting().events.matrix_flop[std::size_t(kind)] +=
        2ull * unsigned(d.rows) * unsigned(d.columns) * unsigned(depth);
}

// A lane's part of an operand: its own variable, as a rule, but the kernel may name any memory.
inline void check_operand(Checker& checker, const void* registers, TileShape shape, TileUse use, Element element,
                   Action action, const void* site) {
    constexpr std::size_t most_bytes = 32;
    if (in_live_frames(registers, most_bytes)) return;
    const FragmentLayout& layout = layout_of(shape, use);
    const unsigned element_bytes = in_whole_registers(element) ? 4 / unsigned(elements_a_register(element))
                                   : element == Element::float32 ? 4
                                                                 : 2;
    checker.access(registers, unsigned(layout.rows * layout.columns) / 32 * element_bytes, action, site);
}

void complete_product(Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
    check_agreement(worker, warp, arrived, kind);
    Registers a_registers, b_registers, c_registers;
    std::array<char*, 32> d_registers;
    for (unsigned lane = 0; lane < 32; lane++) {
        const auto& operands = *reinterpret_cast<const MatrixMultiply*>(warp.lane(lane).value);
        a_registers[lane] = static_cast<const char*>(operands.a);
        b_registers[lane] = static_cast<const char*>(operands.b);
        c_registers[lane] = static_cast<const char*>(operands.c);
        d_registers[lane] = static_cast<char*>(operands.d);
    }
    const auto& operands = *reinterpret_cast<const MatrixMultiply*>(warp.lane(0).value);
    const FragmentLayout& d_layout = layout_of(operands.shape, TileUse::accumulator);
    const int depth = layout_of(operands.shape, TileUse::matrix_a).columns;
    alignas(64) float a[largest_tile], b[largest_tile], c[largest_tile];
    gather(operands, TileUse::matrix_a, a_registers, a);
    gather(operands, TileUse::matrix_b, b_registers, b);
    if (operands.accumulator == Element::float32)
        gather32(d_layout, c_registers, c);
    else
        gather16(d_layout, c_registers, Element::float16, c);
    switch (d_layout.columns) {
        case 8: multiply<8>(a, b, c, d_layout.rows, depth); break;
        case 16: multiply<16>(a, b, c, d_layout.rows, depth); break;
        default: multiply<32>(a, b, c, d_layout.rows, depth); break;
    }
    scatter(d_layout, c, operands.accumulator, d_registers);
    count_flop(worker, operands, d_layout, depth);
}

}  // namespace

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" void gf_emulator_matrix_multiply(void* d, const void* a, const void* b, const void* c,
                                            TileShape shape, Element input_a, Element input_b,
                                            Element accumulator, Collective kind) {
    const MatrixMultiply operands{d, a, b, c, shape, input_a, input_b, accumulator};
    Fiber& self = Worker::current().fiber();
    const void* site = __builtin_return_address(0);
    if (Checker* checker = Checker::active()) {
        check_operand(*checker, a, shape, TileUse::matrix_a, input_a, Action::read, site);
        check_operand(*checker, b, shape, TileUse::matrix_b, input_b, Action::read, site);
        check_operand(*checker, c, shape, TileUse::accumulator, accumulator, Action::read, site);
        check_operand(*checker, d, shape, TileUse::accumulator, accumulator, Action::write, site);
    }
    self.aligned_operations++;
    self.value = reinterpret_cast<std::uint64_t>(&operands);
    self.warp->meet(self, ~0u, kind, complete_product, site);
}
