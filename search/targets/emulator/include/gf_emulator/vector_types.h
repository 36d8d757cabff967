// CUDA's vector types with CUDA's alignments (CUDA C++ Programming Guide, "Built-in Vector Types").
#pragma once
#include "gf_emulator/standard.h"

namespace gf_emulator {

// A vector that is a member of a packed structure. A GPU initialises another vector with it by a load of the whole
// vector, which must be aligned; its components, and an assignment from it or to it, are moved byte by byte (NVRTC 13.0).
template <class T> struct Packed;

// The vector at the place of a packed one, which may be misaligned.
template <class T> T* placed(const void* place) { return static_cast<T*>(const_cast<void*>(place)); }

}  // namespace gf_emulator

#define GF_EMULATOR_VECTOR(type, name, align2, align4)                                    \
    struct name##1 { type x; };                                                           \
    struct __attribute__((aligned(align2))) name##2 {                                     \
        type x, y;                                                                        \
        /* A template, since `v = {1, 2}` is no assignment of this kind. */               \
        template <class P, class = typename P::of_a_packed_structure>                     \
        constexpr name##2& operator=(const P& from) {                                     \
            x = from.x, y = from.y;                                       \
            return *this;                                                                 \
        }                                                                                 \
    };                                                                                    \
    struct name##3 { type x, y, z; };                                                     \
    struct __attribute__((aligned(align4))) name##4 {                                     \
        type x, y, z, w;                                                                  \
        /* A template, since `v = {1, 2}` is no assignment of this kind. */               \
        template <class P, class = typename P::of_a_packed_structure>                     \
        constexpr name##4& operator=(const P& from) {                                     \
            x = from.x, y = from.y, z = from.z, w = from.w;                                       \
            return *this;                                                                 \
        }                                                                                 \
    };                                                                                    \
    template <> struct __attribute__((packed)) gf_emulator::Packed<name##2> {             \
        type x, y;                                                                        \
        using of_a_packed_structure = void;                                               \
        Packed() = default;                                                               \
        constexpr Packed(type x_, type y_) : x(x_), y(y_) {}                              \
        constexpr Packed(const name##2& v) : x(v.x), y(v.y) {}                            \
        operator name##2() const { return *gf_emulator::placed<name##2>(this); }          \
        name##2* operator&() { return gf_emulator::placed<name##2>(this); }               \
        const name##2* operator&() const { return gf_emulator::placed<name##2>(this); }   \
    };                                                                                    \
    template <> struct __attribute__((packed)) gf_emulator::Packed<name##4> {             \
        type x, y, z, w;                                                                  \
        using of_a_packed_structure = void;                                               \
        Packed() = default;                                                               \
        constexpr Packed(type x_, type y_, type z_, type w_) : x(x_), y(y_), z(z_), w(w_) {} \
        constexpr Packed(const name##4& v) : x(v.x), y(v.y), z(v.z), w(v.w) {}            \
        operator name##4() const { return *gf_emulator::placed<name##4>(this); }          \
        name##4* operator&() { return gf_emulator::placed<name##4>(this); }               \
        const name##4* operator&() const { return gf_emulator::placed<name##4>(this); }   \
    };                                                                                    \
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
