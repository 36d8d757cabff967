// wmma's loads and stores, and ldmatrix. A wmma load is each lane's own: what another lane has not yet
// written is not there, so a missing __syncwarp shows in the result.
#include <cstring>

#include "fragment_layout.h"
#include "worker.h"

namespace gf_emulator {

namespace {

unsigned bytes_of(Element element) { return element == Element::float32 ? 4 : 2; }

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

struct LdmatrixLane {
    unsigned* registers;
    const char* row;
    int count;
    bool transposed;
};

void complete_ldmatrix(Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
    if (arrived != ~0u)
        worker.fail("divergence", warp.lane(__builtin_ctz(arrived)).site,
                    "ldmatrix needs all 32 lanes of its warp");
    const auto lane_data = [&](unsigned lane) {
        return reinterpret_cast<const LdmatrixLane*>(warp.lane(lane).value);
    };
    const int count = lane_data(0)->count;
    for (int m = 0; m < count; m++) {
        std::uint16_t matrix[8][8];
        for (unsigned r = 0; r < 8; r++) std::memcpy(matrix[r], lane_data(unsigned(m) * 8 + r)->row, 16);
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned g = lane / 4, t = lane % 4 * 2;
            const LdmatrixLane& target = *lane_data(lane);
            const std::uint16_t low = target.transposed ? matrix[t][g] : matrix[g][t];
            const std::uint16_t high = target.transposed ? matrix[t + 1][g] : matrix[g][t + 1];
            target.registers[m] = unsigned(high) << 16 | low;
        }
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
    const FragmentLayout& layout = layout_of(shape, use);
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

extern "C" void gf_emulator_ldmatrix(unsigned* registers, const void* row, int matrix_count,
                                     bool transposed) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    Fiber& self = worker.fiber();
    self.site = site;
    self.aligned_operations++;
    if (self.lane < unsigned(matrix_count) * 8) {
        const char* bytes = static_cast<const char*>(row);
        if (!worker.shared().contains(bytes) || !worker.shared().contains(bytes + 15))
            worker.fail("device_fault", site, "ldmatrix is given a row that is not in shared memory");
        if (std::uintptr_t(row) % 16)
            worker.fail("misaligned", site,
                        "ldmatrix is given a row that does not start at a multiple of 16 bytes");
        if (worker.counting().enabled()) worker.count_access(row, 16, false, site);
    }
    const LdmatrixLane lane{registers, static_cast<const char*>(row), matrix_count, transposed};
    self.value = reinterpret_cast<std::uint64_t>(&lane);
    self.warp->meet(self, ~0u, Collective::ldmatrix, complete_ldmatrix, site);
}
