// CUDA's vector types with CUDA's alignments (CUDA C++ Programming Guide, "Built-in Vector Types").
#pragma once
#include "gf_emulator/standard.h"

#define GF_EMULATOR_VECTOR(type, name, align2, align4)                                    \
    struct name##1 { type x; };                                                           \
    struct __attribute__((aligned(align2))) name##2 { type x, y; };                       \
    struct name##3 { type x, y, z; };                                                     \
    struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                 \
    inline constexpr name##1 make_##name##1(type x) { return {x}; }                       \
    inline constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }            \
    inline constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    inline constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

GF_EMULATOR_VECTOR(signed char, char, 2, 4)
GF_EMULATOR_VECTOR(unsigned char, uchar, 2, 4)
GF_EMULATOR_VECTOR(short, short, 4, 8)
GF_EMULATOR_VECTOR(unsigned short, ushort, 4, 8)
GF_EMULATOR_VECTOR(int, int, 8, 16)
GF_EMULATOR_VECTOR(unsigned int, uint, 8, 16)
GF_EMULATOR_VECTOR(long, long, 16, 16)
GF_EMULATOR_VECTOR(unsigned long, ulong, 16, 16)
GF_EMULATOR_VECTOR(long long, longlong, 16, 16)
GF_EMULATOR_VECTOR(unsigned long long, ulonglong, 16, 16)
GF_EMULATOR_VECTOR(float, float, 8, 16)
GF_EMULATOR_VECTOR(double, double, 16, 16)
#undef GF_EMULATOR_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 other) : x(other.x), y(other.y), z(other.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
