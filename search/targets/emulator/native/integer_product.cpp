// mma.sync of 8- and 4-bit integers. A register holds `n` neighbours along k, 4 or 8 of them. With g = lane / 4 and
// t = lane % 4, register r of A holds row g + 8 (r % 2) from k = n (t + 4 (r / 2)) on, register r of B column g from
// k = n (t + 4 r) on, and sum i is in row g + 8 (i / 2) and column 2 t + i % 2 (PTX ISA, "Matrix Fragments for
// mma.m16n8k32" and its kin; m8n8 has the first eight rows alone).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "local_memory.h"
#include "worker.h"

namespace gf_emulator::integer_mma {

namespace {

constexpr int most_rows = 16, most_depth = 64, columns = 8;

struct IntegerProduct {
    int* d;
    const unsigned* a;
    const unsigned* b;
    const int* c;
    int rows, depth;
    PlainOperand input_a, input_b;
    bool saturates;
    int register_elements() const { return is_narrow(input_a) ? 8 : 4; }
    int a_registers() const { return rows * depth / 32 / register_elements(); }
    int b_registers() const { return columns * depth / 32 / register_elements(); }
    int sums() const { return rows * columns / 32; }
    static bool is_narrow(PlainOperand operand) {
        return operand == PlainOperand::int4 || operand == PlainOperand::uint4;
    }
};

int part(unsigned bits, int i, PlainOperand operand) {
    switch (operand) {
        case PlainOperand::int8: return static_cast<std::int8_t>(bits >> 8 * i);
        case PlainOperand::uint8: return static_cast<std::uint8_t>(bits >> 8 * i);
        case PlainOperand::int4: return static_cast<int>((bits >> 4 * i & 15) ^ 8) - 8;
        default: return static_cast<int>(bits >> 4 * i & 15);
    }
}

struct Matrices {
    int a[most_rows][most_depth], b[columns][most_depth];
};

void gather(Warp& warp, Matrices& matrices) {
    for (unsigned lane = 0; lane < 32; lane++) {
        const auto& product = *reinterpret_cast<const IntegerProduct*>(warp.lane(lane).value);
        const int g = int(lane / 4), t = int(lane % 4), n = product.register_elements();
        for (int r = 0; r < product.a_registers(); r++)
            for (int i = 0; i < n; i++)
                matrices.a[g + 8 * (r % 2)][n * (t + 4 * (r / 2)) + i] = part(product.a[r], i, product.input_a);
        for (int r = 0; r < product.b_registers(); r++)
            for (int i = 0; i < n; i++) matrices.b[g][n * (t + 4 * r) + i] = part(product.b[r], i, product.input_b);
    }
}

bool same_kind(Warp& warp, unsigned lane) {
    const auto& ours = *reinterpret_cast<const IntegerProduct*>(warp.lane(0).value);
    const auto& other = *reinterpret_cast<const IntegerProduct*>(warp.lane(lane).value);
    return ours.rows == other.rows && ours.depth == other.depth && ours.input_a == other.input_a &&
           ours.input_b == other.input_b;
}

void complete(Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
    Fiber& first = warp.lane(unsigned(__builtin_ctz(arrived)));
    if (arrived != ~0u)
        worker.fail("divergence", first.site,
                    format("mma.sync needs all 32 lanes of its warp; %d came and the others exited",
                           __builtin_popcount(arrived)));
    for (unsigned lane = 1; lane < 32; lane++)
        if (warp.lane(lane).aligned_operations != first.aligned_operations || !same_kind(warp, lane))
            worker.fail("divergence", first.site, format("lane %u is at another mma.sync than lane 0", lane));
    Matrices matrices;
    gather(warp, matrices);
    for (unsigned lane = 0; lane < 32; lane++) {
        const auto& product = *reinterpret_cast<const IntegerProduct*>(warp.lane(lane).value);
        for (int i = 0; i < product.sums(); i++) {
            const int* const row = matrices.a[lane / 4 + 8 * unsigned(i / 2)];
            const int* const column = matrices.b[lane % 4 * 2 + unsigned(i % 2)];
            long long sum = product.c[i];
            for (int k = 0; k < product.depth; k++) sum += row[k] * column[k];
            if (product.saturates)
                sum = std::clamp(sum, static_cast<long long>(std::numeric_limits<int>::min()),
                                 static_cast<long long>(std::numeric_limits<int>::max()));
            product.d[i] = static_cast<int>(sum);
        }
    }
}

// A lane's registers: its own variables, as a rule, but the kernel may name any memory.
void check_operand(Checker& checker, const void* registers, int count, Action action, const void* site) {
    const unsigned bytes = 4 * unsigned(count);
    if (!in_live_frames(registers, bytes)) checker.access(registers, bytes, action, site);
}

}  // namespace

}  // namespace gf_emulator::integer_mma

using namespace gf_emulator;

extern "C" void gf_emulator_integer_product(int* d, const unsigned* a, const unsigned* b, const int* c, int rows,
                                            int depth, PlainOperand input_a, PlainOperand input_b, bool saturates) {
    using namespace integer_mma;
    const IntegerProduct product{d, a, b, c, rows, depth, input_a, input_b, saturates};
    Worker& worker = Worker::current();
    Fiber& self = worker.fiber();
    const void* const site = __builtin_return_address(0);
    const int n = product.register_elements();
    if ((rows != 8 && rows != 16) || depth < 4 * n || depth > 8 * n || depth % (4 * n) || (rows == 8 && depth != 4 * n))
        worker.fail("device_fault", site, format("mma.sync of %d by 8 by %d", rows, depth));
    if (Checker* checker = Checker::active()) {
        integer_mma::check_operand(*checker, a, product.a_registers(), Action::read, site);
        integer_mma::check_operand(*checker, b, product.b_registers(), Action::read, site);
        integer_mma::check_operand(*checker, c, product.sums(), Action::read, site);
        integer_mma::check_operand(*checker, d, product.sums(), Action::write, site);
    }
    self.aligned_operations++;
    self.value = reinterpret_cast<std::uint64_t>(&product);
    self.warp->meet(self, ~0u, Collective::mma, integer_mma::complete, site);
}
