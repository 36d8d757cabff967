// CUDA's integer intrinsics beyond the first ones in mathematics.h (CUDA Math API, "Integer Intrinsics" and "Type
// Casting Intrinsics"; PTX ISA for fns, dp4a, dp2a and shf).
#pragma once
#include "gf_emulator/mathematics.h"
#include "gf_emulator/qualifiers.h"
#include "gf_emulator/vector_types.h"

// The low 24 bits of each, with the sign of bit 23.
__forceinline__ int __mul24(int x, int y) { return int(unsigned(x << 8 >> 8) * unsigned(y << 8 >> 8)); }
__forceinline__ unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
__forceinline__ unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
__forceinline__ long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }

__forceinline__ unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
__forceinline__ unsigned __sad(int x, int y, unsigned z) {
    return (x > y ? unsigned(x) - unsigned(y) : unsigned(y) - unsigned(x)) + z;
}
__forceinline__ int __hadd(int x, int y) { return int((std::int64_t(x) + y) >> 1); }
__forceinline__ int __rhadd(int x, int y) { return int((std::int64_t(x) + y + 1) >> 1); }
__forceinline__ unsigned __uhadd(unsigned x, unsigned y) { return unsigned((std::uint64_t(x) + y) >> 1); }
__forceinline__ unsigned __urhadd(unsigned x, unsigned y) { return unsigned((std::uint64_t(x) + y + 1) >> 1); }
__forceinline__ unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}

// The `offset`-th set bit of `mask` from `base` on: upward where it is positive, downward where it is negative.
__forceinline__ unsigned __fns(unsigned mask, unsigned base, int offset) {
    if (offset == 0) return base < 32 && (mask >> base & 1u) ? base : 0xffffffffu;
    const int step = offset > 0 ? 1 : -1;
    int left = offset > 0 ? offset : -offset;
    for (long long at = base; at >= 0 && at < 32; at += step)
        if ((mask >> at & 1u) && --left == 0) return unsigned(at);
    return 0xffffffffu;
}

// Shifts that clamp at 32, where the forms without `c` wrap.
__forceinline__ unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
__forceinline__ unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

namespace gf_emulator {

template <class Part, class Word>
__forceinline__ Part part_of(Word word, int index) {
    return Part(word >> (index * int(sizeof(Part)) * 8));
}

template <class A, class B, class Sum>
__forceinline__ Sum dot4(unsigned a, unsigned b, Sum sum) {
    for (int i = 0; i < 4; i++) sum += Sum(part_of<A>(a, i)) * Sum(part_of<B>(b, i));
    return sum;
}
template <class A, class B, class Sum>
__forceinline__ Sum dot2(unsigned a, unsigned b, Sum sum, int first) {
    for (int i = 0; i < 2; i++) sum += Sum(part_of<A>(a, i)) * Sum(part_of<B>(b, first + i));
    return sum;
}

}  // namespace gf_emulator

__forceinline__ int __dp4a(int a, int b, int c) {
    return gf_emulator::dot4<signed char, signed char>(unsigned(a), unsigned(b), c);
}
__forceinline__ unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    return gf_emulator::dot4<unsigned char, unsigned char>(a, b, c);
}
__forceinline__ int __dp4a(char4 a, char4 b, int c) {
    return __dp4a(gf_emulator::bit_cast<int>(a), gf_emulator::bit_cast<int>(b), c);
}
__forceinline__ unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return __dp4a(gf_emulator::bit_cast<unsigned>(a), gf_emulator::bit_cast<unsigned>(b), c);
}
#define GF_EMULATOR_DP2A(name, first)                                                                   \
    __forceinline__ int name(int a, int b, int c) {                                                     \
        return gf_emulator::dot2<short, signed char>(unsigned(a), unsigned(b), c, first);               \
    }                                                                                                   \
    __forceinline__ unsigned name(unsigned a, unsigned b, unsigned c) {                                 \
        return gf_emulator::dot2<unsigned short, unsigned char>(a, b, c, first);                        \
    }                                                                                                   \
    __forceinline__ int name(short2 a, char4 b, int c) {                                                \
        return name(gf_emulator::bit_cast<int>(a), gf_emulator::bit_cast<int>(b), c);                   \
    }                                                                                                   \
    __forceinline__ unsigned name(ushort2 a, uchar4 b, unsigned c) {                                    \
        return name(gf_emulator::bit_cast<unsigned>(a), gf_emulator::bit_cast<unsigned>(b), c);         \
    }
GF_EMULATOR_DP2A(__dp2a_lo, 0)
GF_EMULATOR_DP2A(__dp2a_hi, 2)
#undef GF_EMULATOR_DP2A

__forceinline__ double __hiloint2double(int high, int low) {
    return gf_emulator::bit_cast<double>(std::uint64_t(unsigned(high)) << 32 | unsigned(low));
}
__forceinline__ int __double2hiint(double x) { return int(gf_emulator::bit_cast<std::uint64_t>(x) >> 32); }
__forceinline__ int __double2loint(double x) { return int(gf_emulator::bit_cast<std::uint64_t>(x)); }
