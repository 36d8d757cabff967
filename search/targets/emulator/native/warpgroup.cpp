#include "warpgroup.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "gf_emulator/float8.h"
#include "gf_emulator/float_formats.h"
#include "worker.h"

namespace gf_emulator {

namespace {

constexpr std::uint32_t accumulator_poison = 0x7fe57f1e;  // a NaN, also as two of float16
constexpr std::size_t most_fresh_writes = 256;
constexpr unsigned warpgroup_rows = 64, most_columns = 256, most_depth = 32;

float operand_to_float(Element element, const char* bytes) {
    std::uint16_t bits;
    std::uint32_t word;
    switch (element) {
        case Element::float16: return std::memcpy(&bits, bytes, 2), HalfFormat::to_float(bits);
        case Element::bfloat16: return std::memcpy(&bits, bytes, 2), BFloat16Format::to_float(bits);
        case Element::tf32: return std::memcpy(&word, bytes, 4), float_from_bits(word & 0xffffe000u);
        case Element::int8: return float(static_cast<signed char>(*bytes));
        case Element::uint8: return float(static_cast<unsigned char>(*bytes));
        case Element::float8_e4m3: return E4m3Format::to_float(std::uint8_t(*bytes));
        default: return E5m2Format::to_float(std::uint8_t(*bytes));
    }
}

// One operand in shared memory: its lines, and the chunks of each.
struct SharedOperand {
    MatrixDescriptor descriptor;
    bool transposed;
    unsigned lines, chunks;

    SharedOperand(std::uint64_t bits, bool transposed, unsigned size, const WgmmaOperands& operands)
        : descriptor(MatrixDescriptor::of(bits)), transposed(transposed),
          lines(transposed ? operands.depth() : size),
          chunks((transposed ? size : operands.depth()) * operands.element_bytes() / 16) {}
};

void check_operand_place(Block& block, const SharedOperand& operand, const char* name, const void* site) {
    Worker& worker = block.worker();
    const MatrixDescriptor& descriptor = operand.descriptor;
    const std::size_t pattern = 8 * std::size_t(descriptor.swizzle_bytes);
    const SharedMemory& shared = block.shared();
    for (const unsigned line : {0u, operand.lines - 1})
        for (const unsigned chunk : {0u, operand.chunks - 1}) {
            const std::size_t offset = descriptor.start + descriptor.offset(operand.transposed, line, chunk);
            if (!shared.at(offset) || !shared.at(offset + 15))
                worker.fail("out_of_bounds", site,
                            format("the descriptor of %s of a matrix product reaches shared memory at +%zu, which the "
                                   "block does not have", name, offset));
        }
    if (!pattern) return;
    if (descriptor.base_offset)
        worker.fail("unsupported", site,
                    format("the descriptor of %s of a matrix product has the base offset %u; the emulator has only the base "
                           "offset 0, for patterns that start at multiples of their %zu bytes", name,
                           descriptor.base_offset, pattern));
    const char* start = shared.at(descriptor.start);
    if (std::uintptr_t(start) % pattern >= descriptor.swizzle_bytes)
        worker.fail("misaligned", site,
                    format("%s of a matrix product starts in shared memory at +%zu; with a swizzle of %u bytes tiles start "
                           "at multiples of %zu", name, descriptor.start, descriptor.swizzle_bytes, pattern));
    const bool by_stride = operand.lines > 8,
               by_leading = operand.transposed && operand.chunks * 16 > descriptor.swizzle_bytes;
    if ((by_stride && descriptor.stride_bytes % pattern) || (by_leading && descriptor.leading_bytes % pattern))
        worker.fail("misaligned", site,
                    format("%s of a matrix product has a distance that is no multiple of its swizzle's %zu bytes", name,
                           pattern));
}

// As `lines` of `depth` floats; a transposed one is turned over.
void gather_operand(Block& block, const SharedOperand& operand, const WgmmaOperands& operands, Element element,
                    float* matrix, std::size_t line_step, std::size_t k_step) {
    char* first = block.shared().at(operand.descriptor.start);
    const unsigned bytes = operands.element_bytes(), in_chunk = 16 / bytes;
    for (unsigned line = 0; line < operand.lines; line++)
        for (unsigned chunk = 0; chunk < operand.chunks; chunk++) {
            const char* source = operand.descriptor.at(first, operand.transposed, line, chunk);
            for (unsigned i = 0; i < in_chunk; i++) {
                const std::size_t across = line, along = chunk * in_chunk + i;
                matrix[operand.transposed ? along * line_step + across * k_step : across * line_step + along * k_step] =
                    operand_to_float(element, source + i * bytes);
            }
        }
}

void gather_operand_registers(const std::array<std::array<unsigned, 4>, 32>& registers, const WgmmaOperands& operands,
                              float* matrix) {
    const unsigned depth = operands.depth(), bytes = operands.element_bytes(), in_register = 4 / bytes;
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned r = 0; r < 4; r++) {
            char word[4];
            std::memcpy(word, &registers[lane][r], sizeof word);
            const unsigned row = lane / 4 + 8 * (r % 2), k = r / 2 * depth / 2 + lane % 4 * in_register;
            for (unsigned i = 0; i < in_register; i++)
                matrix[row * depth + k + i] = operand_to_float(operands.of_a, word + i * bytes);
        }
}

// Where number `i` of a lane's part of an accumulator lies in its warp's 16 rows.
std::size_t accumulator_place(unsigned lane, unsigned i, unsigned columns) {
    const unsigned row = lane / 4 + 8 * (i / 2 % 2), column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    return std::size_t(row) * columns + column;
}

// One row of A by some columns of B, in order of k; the sums stay in registers.
template <int vectors>
void add_products(const float* a, const float* b, float* d, unsigned depth, unsigned columns) {
    using Eight = float __attribute__((vector_size(32), aligned(4), may_alias));
    Eight sums[vectors];
    for (int v = 0; v < vectors; v++) sums[v] = reinterpret_cast<const Eight*>(d)[v];
    for (unsigned k = 0; k < depth; k++)
        for (int v = 0; v < vectors; v++) sums[v] += a[k] * reinterpret_cast<const Eight*>(b + k * columns)[v];
    for (int v = 0; v < vectors; v++) reinterpret_cast<Eight*>(d)[v] = sums[v];
}

std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    return std::memcpy(&bits, &value, sizeof bits), bits;
}

std::uint32_t integer_sum(std::uint32_t sum, float more, bool saturates) {
    const long long exact = std::int32_t(sum) + static_cast<long long>(more);
    using Limits = std::numeric_limits<std::int32_t>;
    return std::uint32_t(saturates ? std::clamp<long long>(exact, Limits::min(), Limits::max()) : exact);
}

void count_product(Worker& worker, const WgmmaOperands& operands) {
    const Element element = operands.of_a;
    const std::size_t kind = element == Element::float16 ? 0 : operands.element_bytes() > 1 ? 1 : 2;
    // A product of tf32 takes the time of one of bfloat16 with twice the depth.
    const unsigned depth = element == Element::tf32 ? 2 * operands.depth() : operands.depth();
    worker.counting().events.wgmma_flop[kind] += 2ull * Warpgroups::rows_of_warp * operands.columns * depth;
}

const WgmmaOperands& operands_of(Warp& warp, unsigned lane) {
    return *reinterpret_cast<const WgmmaOperands*>(warp.lane(lane).value);
}

}  // namespace

void Warpgroups::start_block() {
    if (used_) warpgroups_ = {};
    used_ = false;
}

Warpgroups::Warpgroup& Warpgroups::of(Warp& warp) {
    used_ = true;
    return warpgroups_[warp.index() / warps];
}

void Warpgroups::fence(Warp& warp) {
    Warpgroup& warpgroup = of(warp);
    const unsigned w = warp.index() % warps;
    warpgroup.fenced[w] = warpgroup.between[w] = true;
    if (Worker::current().checker()) watched = true;
    warpgroup.fresh_writes[w].clear();
    for (auto& accumulator : warpgroup.accumulators[w]) accumulator->changed = false;
}

Warpgroups::Group& Warpgroups::group(Block& block, Warpgroup& warpgroup, std::size_t number) {
    while (warpgroup.groups.size() <= number) {
        Group fresh;
        if (block.checker().enabled()) {
            fresh.completion = std::make_shared<Completion>(block.checker(), block.thread_count());
            if (!warpgroup.groups.empty()) warpgroup.groups.back().completion->later = fresh.completion;
        }
        warpgroup.groups.push_back(std::move(fresh));
    }
    return warpgroup.groups[number];
}

// The warp's accumulator at its lanes' addresses, in flight from now on.
Warpgroups::Accumulator& Warpgroups::accumulator(Block& block, Warpgroup& warpgroup, Warp& warp, const void* site) {
    const unsigned w = warp.index() % warps;
    const WgmmaOperands& operands = operands_of(warp, 0);
    Accumulator* known = nullptr;
    for (auto& one : warpgroup.accumulators[w])
        if (one->lies_at(operands)) known = one.get();
    if (!known) {
        warpgroup.accumulators[w].push_back(std::make_unique<Accumulator>());
        known = warpgroup.accumulators[w].back().get();
        known->columns = operands.columns;
        known->words = operands.words();
        known->element = operands.of_d;
        known->changed = !warpgroup.fenced[w];
        for (unsigned lane = 0; lane < 32; lane++) {
            const WgmmaOperands& own = operands_of(warp, lane);
            known->lanes[lane] = own.d;
            for (unsigned i = 0; own.places && i < known->words; i++)
                known->places.push_back(static_cast<std::uint32_t*>(own.places[i]));
        }
        // Only a value that the product adds to is surely the accumulator's own.
        for (const auto& [start, bytes] : warpgroup.fresh_writes[w])
            known->changed |= operands.accumulate() &&
                              (known->offset(0, start) >= 0 || known->offset(0, start + bytes - 1) >= 0);
    }
    if (!known->sums.empty()) return *known;  // in flight, or done and not waited for by this warp
    if (block.checker().enabled() && known->changed) {
        Finding finding{"race", "local:accumulators", 0, operands.columns * 2,
                        block.checker().party_of(warp.lane(0), Action::wgmma_read, site)};
        finding.detail = "async:which this warp has written since its last gf::wgmma_fence() (wgmma.fence)";
        findings().add(finding);
    }
    known->issued = block.checker().enabled() ? block.checker().party_of(warp.lane(0), Action::wgmma_read, site) : Party();
    known->sums.assign(std::size_t(rows_of_warp) * operands.columns, 0);
    if (operands.accumulate()) known->take_registers();
    known->poison_registers();
    return *known;
}

// The first lane speaks for its warp.
bool Warpgroups::Accumulator::lies_at(const WgmmaOperands& operands) const {
    if (lanes[0] != operands.d || columns != operands.columns || element != operands.of_d) return false;
    if (places.empty() || !operands.places) return places.empty() == !operands.places;
    return std::equal(places.begin(), places.begin() + words, operands.places);
}

void Warpgroups::Accumulator::take_registers() {
    const bool halves = element == Element::float16;
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < columns / 2; i++) {
            std::uint32_t& sum = sums[accumulator_place(lane, i, columns)];
            const std::uint32_t word = at(lane, halves ? i / 2 : i);
            sum = halves ? bits_of(HalfFormat::to_float(std::uint16_t(word >> i % 2 * 16))) : word;
        }
}

void Warpgroups::Accumulator::poison_registers() {
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < words; i++) at(lane, i) = accumulator_poison;
}

void Warpgroups::Accumulator::hand_over() {
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < words; i++) {
            const auto sum = [&](unsigned number) { return sums[accumulator_place(lane, number, columns)]; };
            const auto half = [&](unsigned number) {
                return std::uint32_t(HalfFormat::from_float(float_from_bits(sum(number))));
            };
            at(lane, i) = element == Element::float16 ? half(2 * i) | half(2 * i + 1) << 16 : sum(i);
        }
    sums.clear();
}

void Warpgroups::read_operands(Block& block, Warpgroup& warpgroup, Warp& warp, const WgmmaOperands& operands,
                               const void* site) {
    const unsigned w = warp.index() % warps, first_thread = warp.index() * 32;
    Checker& checker = block.checker();
    const auto operation = checker.operation(warp.lane(0), Action::wgmma_read, site,
                                             group(block, warpgroup, warpgroup.committed[w]).completion);
    const Checker::AsyncIssue issue{checker, {first_thread, first_thread + 31}, operation};
    const auto read = [&](const SharedOperand& operand, unsigned first_line, unsigned end_line, unsigned first_chunk,
                          unsigned end_chunk) {
        char* start = block.shared().at(operand.descriptor.start);
        for (unsigned line = first_line; line < end_line; line++)
            for (unsigned chunk = first_chunk; chunk < end_chunk; chunk++)
                checker.async_read(block.shared().offset(operand.descriptor.at(start, operand.transposed, line, chunk)), 16,
                                   issue);
    };
    const SharedOperand b(operands.b, operands.transpose_b(), operands.columns, operands);
    read(b, 0, b.lines, 0, b.chunks);
    if (operands.a_registers) return;
    const SharedOperand a(operands.a, operands.transpose_a(), warpgroup_rows, operands);
    if (operands.transpose_a())
        read(a, 0, a.lines, w * a.chunks / warps, (w + 1) * a.chunks / warps);
    else
        read(a, w * rows_of_warp, (w + 1) * rows_of_warp, 0, a.chunks);
}

void Warpgroups::issue(Block& block, Warp& warp, const void* site) {
    Worker& worker = block.worker();
    const WgmmaOperands& operands = operands_of(warp, 0);
    for (unsigned lane = 1; lane < 32; lane++)
        if (!operands.same_product(operands_of(warp, lane)))
            worker.fail("divergence", site, format("lane %u brings other operands to a matrix product than lane 0", lane));
    Warpgroup& warpgroup = of(warp);
    const unsigned w = warp.index() % warps, first_warp = warp.index() - w;
    if (block.thread_count() < (first_warp + warps) * 32)
        worker.fail("divergence", site,
                    format("warp %u issues a matrix product: its warpgroup, warps %u to %u, is not whole", warp.index(),
                           first_warp, first_warp + warps - 1));
    const std::uint64_t number = warpgroup.issued[w]++;
    if (number == warpgroup.done + warpgroup.products.size()) {
        check_operand_place(block, {operands.b, operands.transpose_b(), operands.columns, operands}, "B", site);
        if (!operands.a_registers)
            check_operand_place(block, {operands.a, operands.transpose_a(), warpgroup_rows, operands}, "A", site);
        worker.counting().events.operand_bytes += 32ull * (operands.columns + (operands.a_registers ? 0 : warpgroup_rows));
        warpgroup.products.emplace_back();
        warpgroup.products.back().operands = operands;
    }
    Product& product = warpgroup.products[number - warpgroup.done];
    if (!product.operands.same_product(operands))
        worker.fail("divergence", site,
                    format("warp %u issues another matrix product than the warps of its warpgroup before it", warp.index()));
    product.came |= 1u << w;
    if (block.checker().enabled()) {
        watched = true;
        product.issued = block.checker().party_of(warp.lane(0), Action::wgmma_read, site);
        read_operands(block, warpgroup, warp, operands, site);
    }
    Accumulator& d = accumulator(block, warpgroup, warp, site);
    product.d[w] = &d;
    d.in_flight++;
    d.last = number;
    if (operands.a_registers)
        for (unsigned lane = 0; lane < 32; lane++)
            std::memcpy(product.a_registers[w][lane].data(), operands_of(warp, lane).a_registers, 16);
    count_product(worker, operands);
}

void Warpgroups::commit(Block& block, Warp& warp, const void* site) {
    Warpgroup& warpgroup = of(warp);
    const unsigned w = warp.index() % warps;
    warpgroup.between[w] = false;
    Group& closed = group(block, warpgroup, warpgroup.committed[w]++);
    if (closed.committed && closed.end != warpgroup.issued[w])
        block.worker().fail("divergence", site,
                            format("warp %u commits another number of matrix products than the warps of its warpgroup "
                                   "before it", warp.index()));
    closed.end = warpgroup.issued[w];
    closed.committed |= 1u << w;
    if (closed.committed != (1u << warps) - 1) return;
    for (Fiber* fiber : warpgroup.waiting) fiber->warp->set_ready(*fiber);
    warpgroup.waiting.clear();
}

void Warpgroups::wait(Block& block, Fiber& fiber, unsigned groups_left_in_flight, const void* site) {
    Warpgroup& warpgroup = of(*fiber.warp);
    const unsigned w = fiber.warp->index() % warps;
    if (warpgroup.committed[w] <= groups_left_in_flight) return;
    const std::size_t last = warpgroup.committed[w] - groups_left_in_flight - 1;
    while (warpgroup.groups[last].committed != (1u << warps) - 1) {
        fiber.site = site;
        fiber.waiting_for = "wgmma_wait for products that not all four warps of the warpgroup have issued";
        fiber.waiting_mask = 0;
        fiber.warp->clear_ready(fiber);
        warpgroup.waiting.push_back(&fiber);
        block.run_next();
    }
    const std::uint64_t end = warpgroup.groups[last].end;
    for (; warpgroup.done < end; warpgroup.done++) {
        multiply(block, warpgroup.products.front());
        warpgroup.products.pop_front();
    }
    hand_over(warpgroup, w, end);
    if (block.checker().enabled()) block.checker().saw(*warpgroup.groups[last].completion, fiber.thread);
}

void Warpgroups::multiply(Block& block, Product& product) {
    const WgmmaOperands& operands = product.operands;
    const unsigned depth = operands.depth(), columns = operands.columns;
    alignas(64) float a[warpgroup_rows * most_depth], b[most_depth * most_columns];
    gather_operand(block, {operands.b, operands.transpose_b(), columns, operands}, operands, operands.of_b, b, 1, columns);
    if (!operands.a_registers)
        gather_operand(block, {operands.a, operands.transpose_a(), warpgroup_rows, operands}, operands, operands.of_a, a,
                       depth, 1);
    for (unsigned w = 0; w < warps; w++) {
        float* own = a + w * rows_of_warp * depth;
        if (operands.a_registers) gather_operand_registers(product.a_registers[w], operands, own);
        if (operands.negated())
            for (unsigned i = 0; i < rows_of_warp * depth; i++) own[i] = -own[i];
        add_to(*product.d[w], operands, own, b);
        product.d[w]->in_flight--;
    }
}

// 16 rows of A by B. Products of integers are small enough to be exact as floats.
void Warpgroups::add_to(Accumulator& to, const WgmmaOperands& operands, const float* a, const float* b) {
    const unsigned depth = operands.depth(), columns = operands.columns, count = rows_of_warp * columns;
    if (!operands.accumulate()) std::fill_n(to.sums.data(), count, 0u);
    const bool integers = operands.of_d == Element::int32;
    std::array<float, rows_of_warp * most_columns> apart;
    if (integers) std::fill_n(apart.data(), count, 0.0f);
    float* const d = integers ? apart.data() : reinterpret_cast<float*>(to.sums.data());
    for (unsigned row = 0; row < rows_of_warp; row++) {
        unsigned column = 0;
        for (; column + 32 <= columns; column += 32)
            add_products<4>(a + row * depth, b + column, d + row * columns + column, depth, columns);
        for (; column < columns; column += 8)
            add_products<1>(a + row * depth, b + column, d + row * columns + column, depth, columns);
    }
    if (operands.of_d == Element::float32) return;
    for (unsigned i = 0; i < count; i++)
        to.sums[i] = integers ? integer_sum(to.sums[i], apart[i], operands.saturates())
                              : bits_of(HalfFormat::to_float(HalfFormat::from_float(float_from_bits(to.sums[i]))));
}

// What products before `end` left in accumulators that no later product uses.
void Warpgroups::hand_over(Warpgroup& warpgroup, unsigned warp, std::uint64_t end) {
    for (auto& one : warpgroup.accumulators[warp]) {
        if (one->sums.empty() || one->in_flight || one->last >= end) continue;
        one->hand_over();
    }
}

void Warpgroups::own_access(Block& block, Fiber& fiber, const void* address, std::size_t bytes, bool write,
                            const void* site) {
    if (!used_) return;
    Warpgroup& warpgroup = of(*fiber.warp);
    const unsigned w = fiber.warp->index() % warps;
    if (write && fiber.lane == 0 && warpgroup.between[w] && warpgroup.fresh_writes[w].size() < most_fresh_writes)
        warpgroup.fresh_writes[w].push_back({static_cast<const char*>(address), bytes});
    for (auto& one : warpgroup.accumulators[w]) {
        const char* last = static_cast<const char*>(address) + bytes - 1;
        const long offset = std::max(one->offset(fiber.lane, address), one->offset(fiber.lane, last));
        if (offset < 0) continue;
        if (write) one->changed = true;
        if (one->sums.empty()) continue;
        Finding finding{write ? "race" : "in_flight_read", "local:accumulators", std::max(offset - long(bytes) + 1, 0l),
                        unsigned(bytes), block.checker().party_of(fiber, write ? Action::write : Action::read, site),
                        one->issued};
        finding.detail = "async:while {other} is under way: no gf::wgmma_wait() (wgmma.wait_group) for its group lies "
                         "between";
        findings().add(finding);
    }
}

bool Warpgroups::someone_waits() const {
    for (const Warpgroup& warpgroup : warpgroups_)
        if (!warpgroup.waiting.empty()) return true;
    return false;
}

void Warpgroups::finish(Block& block) {
    if (!used_) return;
    for (Warpgroup& warpgroup : warpgroups_) {
        for (const Product& product : warpgroup.products) {
            if (!block.checker().enabled()) break;
            const bool whole = product.came == (1u << warps) - 1;
            Finding finding{whole ? "unwaited_copy" : "divergence", "local:accumulators", 0, product.operands.columns * 2,
                            product.issued};
            finding.detail = whole ? "async:and nobody waits for it before the block ends"
                                   : "async:that not all four warps of the warpgroup have issued";
            findings().add(finding);
        }
    }
}

}  // namespace gf_emulator

using namespace gf_emulator;

namespace {

// A step that all lanes of a warp take together.
void meet_as_warp(Collective kind, Warp::Complete complete, const void* site) {
    Fiber& self = Worker::current().fiber();
    self.warp->meet(self, ~0u, kind, complete, site);
}

void whole_warp(Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
    if (arrived != ~0u)
        worker.fail("divergence", warp.lane(unsigned(__builtin_ctz(arrived))).site,
                    format("%s needs all 32 lanes of its warp", name_of(kind)));
}

void issue_as_warp(const WgmmaOperands& operands, const void* site) {
    Worker::current().fiber().value = reinterpret_cast<std::uint64_t>(&operands);
    meet_as_warp(Collective::wgmma, [](Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
        whole_warp(worker, warp, arrived, kind);
        worker.block().warpgroups().issue(worker.block(), warp, warp.lane(0).site);
    }, site);
}

}  // namespace

extern "C" {

void gf_emulator_wgmma(float* d, unsigned long long a, const unsigned* a_registers, unsigned long long b, int columns,
                       Element element, unsigned flags) {
    issue_as_warp({reinterpret_cast<std::uint32_t*>(d), nullptr, a, a_registers, b, unsigned(columns), Element::float32, element,
                   element, flags}, __builtin_return_address(0));
}
void gf_emulator_wgmma_mixed(void* const* d, unsigned long long a, const unsigned* a_registers, unsigned long long b,
                             int columns, Element of_d, Element of_a, Element of_b, unsigned flags) {
    const unsigned words = unsigned(columns) / (of_d == Element::float16 ? 4 : 2);
    auto* const first = static_cast<std::uint32_t*>(d[0]);
    bool is_array = true;
    for (unsigned i = 1; i < words; i++) is_array &= d[i] == first + i;
    issue_as_warp({first, is_array ? nullptr : d, a, a_registers, b, unsigned(columns), of_d, of_a, of_b, flags},
                  __builtin_return_address(0));
}

void gf_emulator_wgmma_fence() {
    meet_as_warp(Collective::wgmma_fence, [](Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
        whole_warp(worker, warp, arrived, kind);
        worker.block().warpgroups().fence(warp);
    }, __builtin_return_address(0));
}

void gf_emulator_wgmma_commit() {
    meet_as_warp(Collective::wgmma_commit, [](Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
        whole_warp(worker, warp, arrived, kind);
        worker.block().warpgroups().commit(worker.block(), warp, warp.lane(0).site);
    }, __builtin_return_address(0));
}

void gf_emulator_wgmma_wait(int groups_left_in_flight) {
    const void* site = __builtin_return_address(0);
    meet_as_warp(Collective::wgmma_wait, whole_warp, site);
    Block& block = Worker::current().block();
    block.warpgroups().wait(block, block.current(), unsigned(groups_left_in_flight), site);
}

bool gf_emulator_elect() {
    meet_as_warp(Collective::elect, [](Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
        whole_warp(worker, warp, arrived, kind);
        for (unsigned lane = 0; lane < 32; lane++) warp.lane(lane).result = lane == worker.launch().order.elected();
    }, __builtin_return_address(0));
    return Worker::current().fiber().result != 0;
}

bool gf_emulator_elect_of(unsigned lanes) {
    Fiber& self = Worker::current().fiber();
    const auto answer = [](Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
        const unsigned named = worker.launch().order.elected_of(arrived);
        for (unsigned lane = 0; lane < 32; lane++)
            if (arrived >> lane & 1) warp.lane(lane).result = lane == named;
    };
    self.warp->meet(self, lanes, Collective::elect, answer, __builtin_return_address(0));
    return self.result != 0;
}

}  // extern "C"
