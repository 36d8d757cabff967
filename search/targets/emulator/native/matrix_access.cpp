// wmma's loads and stores, and ldmatrix. A wmma load is each lane's own: what another lane has not yet
// written is not there, so a missing __syncwarp shows in the result.
#include <cstring>

#include "fragment_layout.h"
#include "register_operands.h"
#include "worker.h"

namespace gf_emulator {

namespace {

unsigned bytes_of(Element element) { return element == Element::float32 || element == Element::tf32 ? 4 : 2; }

// Where the two elements of a lane's pair lie in memory, in elements from the matrix's start.
struct PairPlace {
    std::size_t first, second;
    bool adjacent() const { return second == first + 1; }
};

PairPlace place_of(const FragmentLayout& layout, int tile, unsigned lane, std::size_t leading_dimension,
                   bool column_major) {
    const std::size_t g = lane / 4, t = lane % 4;
    const bool along = layout.pairs_along_columns;
    const std::size_t row = std::size_t(layout.tile[tile].row) + (along ? g : 2 * t);
    const std::size_t column = std::size_t(layout.tile[tile].column) + (along ? 2 * t : g);
    const std::size_t first =
        column_major ? column * leading_dimension + row : row * leading_dimension + column;
    return {first, first + (along == column_major ? leading_dimension : 1)};
}

// The hardware reads a transposed 16-bit tile by its memory rows and turns it over on the way
// (ldmatrix.trans), so what its banks see are pairs of neighbours here too.
PairPlace place_read(const FragmentLayout& layout, int tile, unsigned lane, std::size_t leading_dimension,
                     bool column_major) {
    const FragmentLayout::Offset corner = layout.tile[tile];
    const std::size_t line = std::size_t(column_major ? corner.column : corner.row) + lane / 4;
    const std::size_t first =
        line * leading_dimension + std::size_t(column_major ? corner.row : corner.column) + lane % 4 * 2;
    return {first, first + 1};
}

void check_alignment(Worker& worker, const void* matrix, unsigned leading_dimension, unsigned element_bytes,
                     const void* site) {
    if (std::uintptr_t(matrix) % 32)
        worker.fail("misaligned", site, "a wmma matrix must start at a multiple of 32 bytes");
    if (leading_dimension * element_bytes % 16)
        worker.fail("misaligned", site,
                    format("a wmma leading dimension of %u elements is not a multiple of 16 bytes",
                           leading_dimension));
}

void count_pair(Worker& worker, const char* matrix, PairPlace place, unsigned element_bytes, bool write,
                const void* site) {
    if (place.adjacent()) {
        worker.count_access(matrix + place.first * element_bytes, 2 * element_bytes, write, site);
    } else {
        worker.count_access(matrix + place.first * element_bytes, element_bytes, write, site);
        worker.count_access(matrix + place.second * element_bytes, element_bytes, write, site);
    }
}

// What the lane itself moves; the banks see another order (place_read).
void check_pairs(Checker* checker, const void* matrix, const FragmentLayout& layout, unsigned lane,
                 unsigned leading_dimension, unsigned element_bytes, bool column_major, Action action,
                 const void* site) {
    const unsigned layout_number =
        unsigned(&layout - &layout_of(TileShape{}, TileUse{})) * 2 + unsigned(column_major);
    const unsigned lines = unsigned(column_major ? layout.columns : layout.rows),
                   line_elements = unsigned(column_major ? layout.rows : layout.columns);
    const Checker::Matrix whole{matrix, lines, line_elements * element_bytes,
                                std::size_t(leading_dimension) * element_bytes, layout_number};
    if (checker->warp_access(whole, action, site)) return;
    for (int tile = 0; tile < layout.tiles; tile++) {
        const PairPlace place = place_of(layout, tile, lane, leading_dimension, column_major);
        const char* first = static_cast<const char*>(matrix) + place.first * element_bytes;
        const char* second = static_cast<const char*>(matrix) + place.second * element_bytes;
        checker->lane_access(whole, first, place.adjacent() ? 2 * element_bytes : element_bytes, action, site);
        if (!place.adjacent()) checker->lane_access(whole, second, element_bytes, action, site);
    }
}

template <class Word, class Pair>
void load_pairs(void* registers, const void* matrix, const FragmentLayout& layout, unsigned lane,
                unsigned leading_dimension, bool column_major) {
    Word* target = static_cast<Word*>(registers);
    const Word* source = static_cast<const Word*>(matrix);
    for (int tile = 0; tile < layout.tiles; tile++, target += 2) {
        const PairPlace place = place_of(layout, tile, lane, leading_dimension, column_major);
        if (place.adjacent()) {
            std::memcpy(target, source + place.first, sizeof(Pair));
        } else {
            target[0] = source[place.first];
            target[1] = source[place.second];
        }
    }
}

template <class Word, class Pair>
void store_pairs(const void* registers, void* matrix, const FragmentLayout& layout, unsigned lane,
                 unsigned leading_dimension, bool column_major) {
    const Word* source = static_cast<const Word*>(registers);
    Word* target = static_cast<Word*>(matrix);
    for (int tile = 0; tile < layout.tiles; tile++, source += 2) {
        const PairPlace place = place_of(layout, tile, lane, leading_dimension, column_major);
        if (place.adjacent()) {
            std::memcpy(target + place.first, source, sizeof(Pair));
        } else {
            target[place.first] = source[0];
            target[place.second] = source[1];
        }
    }
}

// A lane's tf32 operand: one element a register, each on its own.
void load_tf32(Worker& worker, void* registers, const void* matrix, int register_count, TileUse use,
               unsigned lane, unsigned leading_dimension, bool column_major, const void* site) {
    for (int r = 0; r < register_count; r++) {
        const OperandPlace place = operand_place(use, Element::tf32, lane, r);
        const bool k_is_contiguous = (use == TileUse::matrix_a) != column_major;
        const std::size_t index = k_is_contiguous
                                      ? std::size_t(place.line) * leading_dimension + std::size_t(place.k)
                                      : std::size_t(place.k) * leading_dimension + std::size_t(place.line);
        const char* element = static_cast<const char*>(matrix) + 4 * index;
        if (Checker* checker = worker.checker()) checker->access(element, 4, Action::matrix_read, site);
        std::memcpy(static_cast<char*>(registers) + 4 * r, element, 4);
        if (worker.counting().enabled()) worker.count_access(element, 4, false, site);
    }
}

// What one lane brings to ldmatrix or stmatrix.
struct MatrixLane {
    unsigned* registers;
    char* row;
    int count;
    bool transposed;
};

void complete_ldmatrix(Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
    if (arrived != ~0u)
        worker.fail("divergence", warp.lane(__builtin_ctz(arrived)).site,
                    "ldmatrix needs all 32 lanes of its warp");
    const auto lane_data = [&](unsigned lane) {
        return reinterpret_cast<const MatrixLane*>(warp.lane(lane).value);
    };
    const int count = lane_data(0)->count;
    for (int m = 0; m < count; m++) {
        std::uint16_t matrix[8][8];
        for (unsigned r = 0; r < 8; r++) std::memcpy(matrix[r], lane_data(unsigned(m) * 8 + r)->row, 16);
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned g = lane / 4, t = lane % 4 * 2;
            const MatrixLane& target = *lane_data(lane);
            const std::uint16_t low = target.transposed ? matrix[t][g] : matrix[g][t];
            const std::uint16_t high = target.transposed ? matrix[t + 1][g] : matrix[g][t + 1];
            target.registers[m] = unsigned(high) << 16 | low;
        }
    }
}

void complete_stmatrix(Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
    if (arrived != ~0u)
        worker.fail("divergence", warp.lane(__builtin_ctz(arrived)).site,
                    "stmatrix needs all 32 lanes of its warp");
    const auto lane_data = [&](unsigned lane) {
        return reinterpret_cast<const MatrixLane*>(warp.lane(lane).value);
    };
    for (int m = 0; m < lane_data(0)->count; m++) {
        std::uint16_t matrix[8][8];
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned g = lane / 4, t = lane % 4 * 2, bits = lane_data(lane)->registers[m];
            const bool turned = lane_data(lane)->transposed;
            matrix[turned ? t : g][turned ? g : t] = std::uint16_t(bits);
            matrix[turned ? t + 1 : g][turned ? g : t + 1] = std::uint16_t(bits >> 16);
        }
        for (unsigned r = 0; r < 8; r++) std::memcpy(lane_data(unsigned(m) * 8 + r)->row, matrix[r], 16);
    }
}

}  // namespace

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" void gf_emulator_wmma_load(void* registers, const void* matrix, unsigned leading_dimension,
                                      int register_count, TileShape shape, TileUse use, Element element,
                                      bool column_major) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    Fiber& self = worker.fiber();
    self.site = site;
    self.aligned_operations++;
    const unsigned bytes = bytes_of(element);
    check_alignment(worker, matrix, leading_dimension, bytes, site);
    Checker* checker = Checker::active();
    if (checker) checker->access(registers, unsigned(register_count) * bytes, Action::write, site);
    if (element == Element::tf32)
        return load_tf32(worker, registers, matrix, register_count, use, self.lane, leading_dimension,
                         column_major, site);
    const FragmentLayout& layout = layout_of(shape, use);
    if (checker && !checker->warp_was_here(self, matrix, site))
        check_pairs(checker, matrix, layout, self.lane, leading_dimension, bytes, column_major,
                    Action::matrix_read, site);
    if (bytes == 2)
        load_pairs<std::uint16_t, std::uint32_t>(registers, matrix, layout, self.lane, leading_dimension,
                                                 column_major);
    else
        load_pairs<std::uint32_t, std::uint64_t>(registers, matrix, layout, self.lane, leading_dimension,
                                                 column_major);
    // A half operand smaller than its 16 registers' halves is repeated through them.
    for (int i = 2 * layout.tiles; i < register_count; i += 2 * layout.tiles)
        std::memcpy(static_cast<char*>(registers) + unsigned(i) * bytes, registers,
                    std::size_t(2 * layout.tiles) * bytes);
    if (worker.counting().enabled())
        for (int tile = 0; tile < layout.tiles; tile++) {
            const PairPlace place = bytes == 2
                                        ? place_read(layout, tile, self.lane, leading_dimension, column_major)
                                        : place_of(layout, tile, self.lane, leading_dimension, column_major);
            count_pair(worker, static_cast<const char*>(matrix), place, bytes, false, site);
        }
}

extern "C" void gf_emulator_wmma_store(const void* registers, void* matrix, unsigned leading_dimension,
                                       TileShape shape, Element element, bool column_major) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    Fiber& self = worker.fiber();
    self.site = site;
    self.aligned_operations++;
    const unsigned bytes = bytes_of(element);
    check_alignment(worker, matrix, leading_dimension, bytes, site);
    const FragmentLayout& layout = layout_of(shape, TileUse::accumulator);
    Checker* checker = Checker::active();
    if (checker) checker->access(registers, unsigned(2 * layout.tiles) * bytes, Action::read, site);
    if (checker && !checker->warp_was_here(self, matrix, site))
        check_pairs(checker, matrix, layout, self.lane, leading_dimension, bytes, column_major,
                    Action::matrix_write, site);
    if (bytes == 2)
        store_pairs<std::uint16_t, std::uint32_t>(registers, matrix, layout, self.lane, leading_dimension,
                                                  column_major);
    else
        store_pairs<std::uint32_t, std::uint64_t>(registers, matrix, layout, self.lane, leading_dimension,
                                                  column_major);
    if (worker.counting().enabled())
        for (int tile = 0; tile < layout.tiles; tile++)
            count_pair(worker, static_cast<const char*>(matrix),
                       place_of(layout, tile, self.lane, leading_dimension, column_major), bytes, true, site);
}

namespace {

// ldmatrix and stmatrix: this lane's row is checked where it is given, then the warp meets.
void move_matrices(const MatrixLane& lane, Collective kind, Warp::Complete complete, const void* site) {
    Worker& worker = Worker::current();
    Fiber& self = worker.fiber();
    self.site = site;
    self.aligned_operations++;
    if (Checker* checker = worker.checker())
        checker->access(lane.registers, 4 * unsigned(lane.count),
                        kind == Collective::stmatrix ? Action::read : Action::write, site);
    if (self.lane < unsigned(lane.count) * 8) {
        if (!worker.shared().contains(lane.row) || !worker.shared().contains(lane.row + 15))
            worker.fail("device_fault", site,
                        format("%s is given a row that is not in shared memory", name_of(kind)));
        if (std::uintptr_t(lane.row) % 16)
            worker.fail(
                "misaligned", site,
                format("%s is given a row that does not start at a multiple of 16 bytes", name_of(kind)));
        const bool write = kind == Collective::stmatrix;
        if (Checker* checker = worker.checker())
            checker->access(lane.row, 16, write ? Action::matrix_write : Action::matrix_read, site);
        if (worker.counting().enabled()) worker.count_access(lane.row, 16, write, site);
    }
    self.value = reinterpret_cast<std::uint64_t>(&lane);
    self.warp->meet(self, ~0u, kind, complete, site);
}

}  // namespace

extern "C" void gf_emulator_ldmatrix(unsigned* registers, const void* row, int matrix_count,
                                     bool transposed) {
    const MatrixLane lane{registers, static_cast<char*>(const_cast<void*>(row)), matrix_count, transposed};
    move_matrices(lane, Collective::ldmatrix, complete_ldmatrix, __builtin_return_address(0));
}

extern "C" void gf_emulator_stmatrix(void* row, const unsigned* registers, int matrix_count,
                                     bool transposed) {
    const MatrixLane lane{const_cast<unsigned*>(registers), static_cast<char*>(row), matrix_count,
                          transposed};
    move_matrices(lane, Collective::stmatrix, complete_stmatrix, __builtin_return_address(0));
}
