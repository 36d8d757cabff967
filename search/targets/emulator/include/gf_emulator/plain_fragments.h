// wmma's fragments of integers, doubles and bits. Their elements lie in an order of our own: the lanes hold the rows one
// after the other. CUDA leaves the order open.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace nvcuda {
namespace wmma {
namespace experimental {
namespace precision {
struct b1;
struct u4;
struct s4;
}  // namespace precision
enum bmmaBitOp { bmmaBitOpXOR = 1, bmmaBitOpAND = 2 };
enum bmmaAccumulateOp { bmmaAccumulateOpPOPC = 1 };
}  // namespace experimental
}  // namespace wmma
}  // namespace nvcuda

namespace gf_emulator {

// What memory and a fragment hold of T, and how many elements are in one of them.
template <class T>
struct PlainElement {
    using Storage = T;
    static constexpr bool is_plain = std::is_same_v<T, signed char> || std::is_same_v<T, unsigned char> ||
                                     std::is_same_v<T, int> || std::is_same_v<T, double>;
    static constexpr int packed = 1;
};
template <>
struct PlainElement<nvcuda::wmma::experimental::precision::b1> {
    using Storage = unsigned;
    static constexpr bool is_plain = true;
    static constexpr int packed = 32;
};
template <>
struct PlainElement<nvcuda::wmma::experimental::precision::u4> {
    using Storage = unsigned;
    static constexpr bool is_plain = true;
    static constexpr int packed = 8;
};
template <>
struct PlainElement<nvcuda::wmma::experimental::precision::s4> {
    using Storage = int;
    static constexpr bool is_plain = true;
    static constexpr int packed = 8;
};
template <class T>
constexpr PlainOperand plain_operand() {
    using namespace nvcuda::wmma::experimental::precision;
    return std::is_same_v<T, signed char>     ? PlainOperand::int8
           : std::is_same_v<T, unsigned char> ? PlainOperand::uint8
           : std::is_same_v<T, double>        ? PlainOperand::float64
           : std::is_same_v<T, b1>            ? PlainOperand::bits
           : std::is_same_v<T, u4>            ? PlainOperand::uint4
                                              : PlainOperand::int4;
}

// One warp's matrix of rows with `columns` elements, of which each lane moves its own elements. `along_rows`: rows are contiguous.
template <bool load, class Memory, class Storage>
__forceinline__ void move_plain(Storage* registers, Memory* matrix, int count, int columns,
                                unsigned leading_dimension, bool along_rows) {
    for (int i = 0; i < count; i++) {
        const int at = int(gf_emulator_lane()) * count + i, row = at / columns, column = at % columns;
        const std::size_t place = along_rows ? std::size_t(row) * leading_dimension + unsigned(column)
                                             : std::size_t(column) * leading_dimension + unsigned(row);
        if constexpr (load)
            registers[i] = matrix[place];
        else
            matrix[place] = registers[i];
    }
}

}  // namespace gf_emulator
