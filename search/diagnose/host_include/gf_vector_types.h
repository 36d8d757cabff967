// CUDA's vector types and dim3, as host code knows them (CUDA C++ Programming Guide, "Built-in Vector Types").
#pragma once

#define GF_VECTOR_TYPES(type, name, align2, align4)                                                \
    struct name##1 {                                                                               \
        type x;                                                                                    \
    };                                                                                             \
    struct alignas(align2) name##2 {                                                               \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3 {                                                                               \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct alignas(align4) name##4 {                                                               \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name##1 make_##name##1(type x) { return {x}; }                                          \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                               \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                    \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

GF_VECTOR_TYPES(signed char, char, 2, 4)
GF_VECTOR_TYPES(unsigned char, uchar, 2, 4)
GF_VECTOR_TYPES(short, short, 4, 8)
GF_VECTOR_TYPES(unsigned short, ushort, 4, 8)
GF_VECTOR_TYPES(int, int, 8, 16)
GF_VECTOR_TYPES(unsigned int, uint, 8, 16)
GF_VECTOR_TYPES(long, long, 16, 16)
GF_VECTOR_TYPES(unsigned long, ulong, 16, 16)
GF_VECTOR_TYPES(long long, longlong, 16, 16)
GF_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
GF_VECTOR_TYPES(float, float, 8, 16)
GF_VECTOR_TYPES(double, double, 16, 16)
#undef GF_VECTOR_TYPES

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
