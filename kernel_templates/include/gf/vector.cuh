#pragma once

namespace gf {

// The built-in type of 2, 4, 8 or 16 bytes, which one instruction moves.
//! Undefined: nothing; other sizes do not compile.
template <int bytes>
struct WordOf;
template <>
struct WordOf<2> { using type = unsigned short; };
template <>
struct WordOf<4> { using type = unsigned; };
template <>
struct WordOf<8> { using type = uint2; };
template <>
struct WordOf<16> { using type = uint4; };

// `count` neighbouring elements: 2 to 16 bytes in registers.
//! Undefined: nothing; other sizes do not compile.
template <class T, int count>
struct alignas(sizeof(T) * count) Vector {
    using Word = typename WordOf<sizeof(T) * count>::type;
    T element[count];
};

// The vector that begins at `from`, a multiple of its bytes, by one access. `streamed`: evicted first from the caches,
// for what is read once; not for what the kernel itself writes. CUDA C++ Programming Guide, "Load Functions Using Cache
// Hints".
//! Undefined: an address that is not a multiple of the vector's bytes (the emulator: `misaligned`), and with
//! `streamed` one that is not in global memory.
template <class V, bool streamed = false, class T>
__device__ __forceinline__ V load_vector(const T* from) {
    using Word = typename V::Word;
    V vector;
    if constexpr (streamed)
        *reinterpret_cast<Word*>(&vector) = __ldcs(reinterpret_cast<const Word*>(from));
    else
        *reinterpret_cast<Word*>(&vector) = *reinterpret_cast<const Word*>(from);
    return vector;
}

// The same way back.
//! Undefined: the same.
template <bool streamed = false, class V, class T>
__device__ __forceinline__ void store_vector(T* to, const V& vector) {
    using Word = typename V::Word;
    if constexpr (streamed)
        __stcs(reinterpret_cast<Word*>(to), *reinterpret_cast<const Word*>(&vector));
    else
        *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(&vector);
}

}  // namespace gf
