// wmma's products of integers, doubles and bits. The lanes hold A's rows, B's columns and C's rows one after the other
// (gf_emulator/plain_fragments.h).
#include <algorithm>
#include <array>
#include <cstring>

#include "local_memory.h"
#include "worker.h"

namespace gf_emulator {

namespace {

struct PlainProduct {
    void* d;
    const void* a;
    const void* b;
    const void* c;
    int rows, columns, depth;
    PlainOperand operand;
    bool by_and;
};

constexpr std::size_t most_bytes = 2048;  // of a matrix

using Matrix = std::array<char, most_bytes>;

void gather(Warp& warp, const void* PlainProduct::*part, std::size_t bytes, Matrix& matrix) {
    for (unsigned lane = 0; lane < 32; lane++)
        std::memcpy(matrix.data() + lane * (bytes / 32),
                    reinterpret_cast<const PlainProduct*>(warp.lane(lane).value)->*part, bytes / 32);
}

long element(const Matrix& matrix, int at, PlainOperand operand) {
    const auto byte = [&](int place) { return static_cast<unsigned char>(matrix[std::size_t(place)]); };
    switch (operand) {
        case PlainOperand::int8: return static_cast<signed char>(byte(at));
        case PlainOperand::uint8: return byte(at);
        case PlainOperand::uint4: return byte(at / 2) >> at % 2 * 4 & 15;
        case PlainOperand::int4: return ((byte(at / 2) >> at % 2 * 4 & 15) ^ 8) - 8;
        default: return byte(at / 8) >> at % 8 & 1;
    }
}

int element_bits(PlainOperand operand) {
    switch (operand) {
        case PlainOperand::float64: return 64;
        case PlainOperand::bits: return 1;
        case PlainOperand::uint4:
        case PlainOperand::int4: return 4;
        default: return 8;
    }
}

template <class Sum, class Term>
void multiply(const PlainProduct& product, Matrix& sums, const Term& term) {
    for (int row = 0; row < product.rows; row++)
        for (int column = 0; column < product.columns; column++) {
            char* const place = sums.data() + std::size_t(row * product.columns + column) * sizeof(Sum);
            Sum sum;
            std::memcpy(&sum, place, sizeof sum);
            for (int k = 0; k < product.depth; k++)
                sum = Sum(sum + term(row * product.depth + k, column * product.depth + k));
            std::memcpy(place, &sum, sizeof sum);
        }
}

void complete(Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
    Fiber& first = warp.lane(unsigned(__builtin_ctz(arrived)));
    if (arrived != ~0u)
        worker.fail("divergence", first.site,
                    format("wmma needs all 32 lanes of its warp; %d came and the others exited",
                           __builtin_popcount(arrived)));
    const auto& product = *reinterpret_cast<const PlainProduct*>(warp.lane(0).value);
    const auto bytes_of = [&](int rows) {
        return std::size_t(rows * product.depth * element_bits(product.operand)) / 8;
    };
    const bool is_real = product.operand == PlainOperand::float64;
    const std::size_t sum_bytes = std::size_t(product.rows * product.columns) * (is_real ? 8 : 4);
    Matrix a, b, sums;
    gather(warp, &PlainProduct::a, bytes_of(product.rows), a);
    gather(warp, &PlainProduct::b, bytes_of(product.columns), b);
    gather(warp, &PlainProduct::c, sum_bytes, sums);
    if (is_real)
        multiply<double>(product, sums, [&](int i, int j) {
            double x, y;
            std::memcpy(&x, a.data() + i * 8, 8);
            std::memcpy(&y, b.data() + j * 8, 8);
            return x * y;
        });
    else if (product.operand == PlainOperand::bits)
        multiply<unsigned>(product, sums, [&](int i, int j) {
            const long x = element(a, i, product.operand), y = element(b, j, product.operand);
            return unsigned(product.by_and ? x & y : x ^ y);
        });
    else
        multiply<unsigned>(product, sums, [&](int i, int j) {
            return unsigned(element(a, i, product.operand) * element(b, j, product.operand));
        });
    for (unsigned lane = 0; lane < 32; lane++)
        std::memcpy(reinterpret_cast<const PlainProduct*>(warp.lane(lane).value)->d,
                    sums.data() + lane * (sum_bytes / 32), sum_bytes / 32);
}

// A lane's part of a matrix: its own variable, as a rule, but the kernel may name any memory.
void check_operand(Checker& checker, const void* registers, std::size_t bytes, Action action, const void* site) {
    if (!in_live_frames(registers, unsigned(bytes))) checker.access(registers, unsigned(bytes), action, site);
}

}  // namespace

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" void gf_emulator_plain_product(void* d, const void* a, const void* b, const void* c, int rows, int columns,
                                          int depth, PlainOperand operand, bool by_and) {
    const PlainProduct product{d, a, b, c, rows, columns, depth, operand, by_and};
    Worker& worker = Worker::current();
    Fiber& self = worker.fiber();
    const void* const site = __builtin_return_address(0);
    const auto lane_bytes = [](long elements, int bits) { return std::size_t(elements * bits / 8) / 32; };
    const std::size_t a_bytes = lane_bytes(long(rows) * depth, element_bits(operand)),
                      b_bytes = lane_bytes(long(columns) * depth, element_bits(operand)),
                      sum_bytes = lane_bytes(long(rows) * columns, operand == PlainOperand::float64 ? 64 : 32);
    if (rows <= 0 || columns <= 0 || depth <= 0 || std::max({a_bytes, b_bytes, sum_bytes}) * 32 > most_bytes)
        worker.fail("device_fault", site, format("wmma of %d by %d by %d", rows, columns, depth));
    if (Checker* checker = Checker::active()) {
        check_operand(*checker, a, a_bytes, Action::read, site);
        check_operand(*checker, b, b_bytes, Action::read, site);
        check_operand(*checker, c, sum_bytes, Action::read, site);
        check_operand(*checker, d, sum_bytes, Action::write, site);
    }
    self.aligned_operations++;
    self.value = reinterpret_cast<std::uint64_t>(&product);
    self.warp->meet(self, ~0u, Collective::wmma, complete, site);
}
