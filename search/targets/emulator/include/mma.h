// Stands in for CUDA's mma.h: nvcuda::wmma for half, bfloat16 and tf32 inputs. Element i of a lane's fragment
// is the element that an sm_80 or newer device holds there (native/fragment_layout.h).
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "gf_emulator/float8.h"
#include "gf_emulator/plain_fragments.h"

namespace nvcuda {
namespace wmma {
namespace precision {
struct tf32;
}
}  // namespace wmma
}  // namespace nvcuda

namespace gf_emulator {

template <class T>
constexpr Element element_of() {
    if constexpr (std::is_same_v<T, __half>)
        return Element::float16;
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return Element::bfloat16;
    else if constexpr (std::is_same_v<T, nvcuda::wmma::precision::tf32>)
        return Element::tf32;
    else {
        static_assert(std::is_same_v<T, float>,
                      "wmma element types here: __half, __nv_bfloat16, precision::tf32, float");
        return Element::float32;
    }
}

template <int M, int N, int K>
constexpr TileShape tile_shape() {
    static_assert((K == 16 && ((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32))) ||
                      (K == 8 && M == 16 && N == 16),
                  "wmma shapes here: m16n16k16, m32n8k16, m8n32k16, and m16n16k8 in tf32");
    return K == 8    ? TileShape::m16n16k8
           : M == 16 ? TileShape::m16n16k16
           : M == 32 ? TileShape::m32n8k16
                     : TileShape::m8n32k16;
}

// What a fragment of T holds, and memory: tf32 is a float whose last bits do not count.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, nvcuda::wmma::precision::tf32>, float,
                                  typename PlainElement<T>::Storage>;

}  // namespace gf_emulator

namespace nvcuda {
namespace wmma {

struct matrix_a {
    static constexpr gf_emulator::TileUse use = gf_emulator::TileUse::matrix_a;
    // Half operands always take 16 registers' halves, repeated where the tile is smaller; bfloat16 ones are
    // exact.
    template <int M, int N, int K, class T>
    static constexpr int elements = std::is_same_v<T, __half> ? 16 : M * K / 32;
};
struct matrix_b {
    static constexpr gf_emulator::TileUse use = gf_emulator::TileUse::matrix_b;
    template <int M, int N, int K, class T>
    static constexpr int elements = std::is_same_v<T, __half> ? 16 : N * K / 32;
};
struct accumulator {
    static constexpr gf_emulator::TileUse use = gf_emulator::TileUse::accumulator;
    template <int M, int N, int K, class T>
    static constexpr int elements = M * N / 32;
};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void, class = void>
class fragment {
public:
    static constexpr bool is_plain = false;
    using element_type = T;
    using storage_element_type = gf_emulator::Stored<T>;
    static constexpr gf_emulator::TileShape shape = gf_emulator::tile_shape<M, N, K>();
    static constexpr gf_emulator::Element element = gf_emulator::element_of<T>();
    static constexpr int num_elements = Use::template elements<M, N, K, T>;
    static constexpr int num_storage_elements = num_elements;
    static_assert(std::is_same_v<Use, accumulator> || (K == 8) == (element == gf_emulator::Element::tf32),
                  "wmma: tf32 goes with m16n16k8");
    storage_element_type x[num_elements];
};

template <class Use, int M, int N, int K, class T, class Layout>
class fragment<Use, M, N, K, T, Layout, std::enable_if_t<gf_emulator::PlainElement<T>::is_plain>> {
public:
    static constexpr bool is_plain = true;
    using element_type = T;
    using storage_element_type = gf_emulator::Stored<T>;
    static constexpr int packed = gf_emulator::PlainElement<T>::packed;
    static constexpr int rows = std::is_same_v<Use, matrix_b> ? N : M;
    static constexpr int columns = std::is_same_v<Use, accumulator> ? N : K;
    static constexpr int num_elements = rows * columns / packed / 32;
    static constexpr int num_storage_elements = num_elements;
    static_assert(std::is_same_v<T, double>      ? M == 8 && N == 8 && K == 4
                  : packed > 1                   ? M == 8 && N == 8 && K == 4 * packed
                  : std::is_same_v<T, int> && M == 8 && N == 8 ? K == 32 || K == 128
                                                 : K == 16 && M * N == 256 && (M == 8 || M == 16 || M == 32),
                  "wmma shapes: m8n8k4 in double, m8n8k128 of bits, m8n8k32 of 4 bits, and m16n16k16, m32n8k16 and "
                  "m8n32k16 of 8 bits");
    storage_element_type x[num_elements];
};

__forceinline__ float __float_to_tf32(float value) {
    return gf_emulator::float_from_bits(gf_emulator::tf32_bits(value));
}

template <class Use, int M, int N, int K, class T, class Layout, class Value>
__forceinline__ void fill_fragment(fragment<Use, M, N, K, T, Layout>& tile, const Value& value) {
    for (int i = 0; i < tile.num_elements; i++) tile.x[i] = gf_emulator::Stored<T>(value);
}

template <class Use, int M, int N, int K, class T, class Layout>
__forceinline__ void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& tile,
                                      const gf_emulator::Stored<T>* matrix, unsigned leading_dimension) {
    static_assert(!std::is_same_v<Layout, void>, "an accumulator's load names its layout");
    using Tile = fragment<Use, M, N, K, T, Layout>;
    if constexpr (Tile::is_plain)
        // B is held by its columns.
        return gf_emulator::move_plain<true>(
            tile.x, matrix, tile.num_elements, Tile::columns / Tile::packed,
            leading_dimension / Tile::packed,
            std::is_same_v<Layout, row_major> == std::is_same_v<Use, matrix_a>);
    else
        gf_emulator_wmma_load(tile.x, matrix, leading_dimension, tile.num_elements, tile.shape, Use::use,
                              tile.element, std::is_same_v<Layout, col_major>);
}

template <int M, int N, int K, class T>
__forceinline__ void load_matrix_sync(fragment<accumulator, M, N, K, T>& tile, const T* matrix,
                                      unsigned leading_dimension, layout_t layout) {
    if constexpr (fragment<accumulator, M, N, K, T>::is_plain)
        return gf_emulator::move_plain<true>(tile.x, matrix, tile.num_elements, N, leading_dimension,
                                             layout == mem_row_major);
    else
        gf_emulator_wmma_load(tile.x, matrix, leading_dimension, tile.num_elements, tile.shape,
                              gf_emulator::TileUse::accumulator, tile.element, layout == mem_col_major);
}

template <int M, int N, int K, class T>
__forceinline__ void store_matrix_sync(T* matrix, const fragment<accumulator, M, N, K, T>& tile,
                                       unsigned leading_dimension, layout_t layout) {
    if constexpr (fragment<accumulator, M, N, K, T>::is_plain)
        return gf_emulator::move_plain<false>(const_cast<T*>(tile.x), matrix, tile.num_elements, N,
                                              leading_dimension, layout == mem_row_major);
    else
        gf_emulator_wmma_store(tile.x, matrix, leading_dimension, tile.shape, tile.element,
                               layout == mem_col_major);
}

template <int M, int N, int K, class TD, class TC, class TA, class LayoutA, class LayoutB>
__forceinline__ void mma_sync(fragment<accumulator, M, N, K, TD>& d,
                              const fragment<matrix_a, M, N, K, TA, LayoutA>& a,
                              const fragment<matrix_b, M, N, K, TA, LayoutB>& b,
                              const fragment<accumulator, M, N, K, TC>& c) {
    static_assert(std::is_same_v<TD, TC>, "D and C have one type here");
    if constexpr (fragment<matrix_a, M, N, K, TA, LayoutA>::is_plain) {
        return gf_emulator_plain_product(d.x, a.x, b.x, c.x, M, N, K, gf_emulator::plain_operand<TA>(), false);
    } else {
        static_assert(std::is_same_v<TA, __half> || std::is_same_v<TD, float>,
                      "bfloat16 and tf32 products accumulate in float");
        gf_emulator_matrix_multiply(d.x, a.x, b.x, c.x, d.shape, a.element, a.element, d.element,
                                    gf_emulator::Collective::wmma);
    }
}

// The number of differing bits, or of common ones, is added.
template <int M, int N, int K, class T, class LayoutA, class LayoutB>
__forceinline__ void bmma_sync(fragment<accumulator, M, N, K, int>& d, const fragment<matrix_a, M, N, K, T, LayoutA>& a,
                               const fragment<matrix_b, M, N, K, T, LayoutB>& b,
                               const fragment<accumulator, M, N, K, int>& c,
                               experimental::bmmaBitOp operation = experimental::bmmaBitOpXOR,
                               experimental::bmmaAccumulateOp = experimental::bmmaAccumulateOpPOPC) {
    gf_emulator_plain_product(d.x, a.x, b.x, c.x, M, N, K, gf_emulator::PlainOperand::bits,
                              operation == experimental::bmmaBitOpAND);
}

}  // namespace wmma
}  // namespace nvcuda
