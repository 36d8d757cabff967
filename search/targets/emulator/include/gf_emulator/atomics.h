// Atomics on shared and global memory, and the cache-hinted loads and stores. Atomics go through the runtime:
// it checks their alignment, counts them, and lets another thread run now and then, so that a spin on an
// atomic makes progress.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

template <class T>
constexpr AtomicType atomic_type() {
    if constexpr (std::is_same_v<T, float>)
        return AtomicType::float32;
    else if constexpr (std::is_same_v<T, double>)
        return AtomicType::float64;
    else if constexpr (sizeof(T) == 2)
        return AtomicType::uint16;
    else if constexpr (sizeof(T) == 4)
        return std::is_signed_v<T> ? AtomicType::int32 : AtomicType::uint32;
    else
        return std::is_signed_v<T> ? AtomicType::int64 : AtomicType::uint64;
}

// What an update gives back.
template <class T>
__forceinline__ T found(T before, [[maybe_unused]] AtomicOperation operation) {
#ifdef GF_EMULATOR_CHECKED
    if (operation == AtomicOperation::exchange) {
        std::uint64_t bits = 0;
        __builtin_memcpy(&bits, &before, sizeof before);
        bits = gf_emulator_exchanged(bits);
        __builtin_memcpy(&before, &bits, sizeof before);
    }
#endif
    return before;
}

template <class T>
__forceinline__ T atomic(T* address, T operand, AtomicOperation operation, T compared = T()) {
    __attribute__((uninitialized)) T before;  // the call sets it
    gf_emulator_atomic(address, &operand, &compared, &before, operation, atomic_type<T>());
    return found(before, operation);
}
template <class T>
__forceinline__ T block_atomic(T* address, T operand, AtomicOperation operation, T compared = T()) {
    __attribute__((uninitialized)) T before;  // the call sets it
    gf_emulator_block_atomic(address, &operand, &compared, &before, operation, atomic_type<T>());
    return found(before, operation);
}

// Of 16-bit floats and pairs of them.
template <class T>
__forceinline__ T atomic_add(T* address, T operand, AtomicType type) {
    __attribute__((uninitialized)) T before;  // the call sets it
    gf_emulator_atomic(address, &operand, &operand, &before, AtomicOperation::add, type);
    return before;
}

}  // namespace gf_emulator

#define GF_EMULATOR_ATOMIC(name, type, operation)                                                 \
    __forceinline__ type name(type* address, type value) {                                        \
        return gf_emulator::atomic(address, value, gf_emulator::AtomicOperation::operation);      \
    }                                                                                             \
    __forceinline__ type name##_block(type* address, type value) {                                \
        return gf_emulator::block_atomic(address, value, gf_emulator::AtomicOperation::operation); \
    }                                                                                             \
    __forceinline__ type name##_system(type* address, type value) { return name(address, value); }
#define GF_EMULATOR_ATOMIC_INTEGERS(name, operation) \
    GF_EMULATOR_ATOMIC(name, int, operation)         \
    GF_EMULATOR_ATOMIC(name, unsigned, operation)    \
    GF_EMULATOR_ATOMIC(name, unsigned long long, operation)

GF_EMULATOR_ATOMIC_INTEGERS(atomicAdd, add)
GF_EMULATOR_ATOMIC(atomicAdd, float, add)
GF_EMULATOR_ATOMIC(atomicAdd, double, add)
GF_EMULATOR_ATOMIC_INTEGERS(atomicMin, minimum)
GF_EMULATOR_ATOMIC(atomicMin, long long, minimum)
GF_EMULATOR_ATOMIC_INTEGERS(atomicMax, maximum)
GF_EMULATOR_ATOMIC(atomicMax, long long, maximum)
GF_EMULATOR_ATOMIC_INTEGERS(atomicExch, exchange)
GF_EMULATOR_ATOMIC(atomicExch, float, exchange)
GF_EMULATOR_ATOMIC_INTEGERS(atomicAnd, bit_and)
GF_EMULATOR_ATOMIC_INTEGERS(atomicOr, bit_or)
GF_EMULATOR_ATOMIC_INTEGERS(atomicXor, bit_xor)
GF_EMULATOR_ATOMIC(atomicInc, unsigned, increment)
GF_EMULATOR_ATOMIC(atomicDec, unsigned, decrement)
__forceinline__ int atomicSub(int* address, int value) { return atomicAdd(address, -value); }
__forceinline__ unsigned atomicSub(unsigned* address, unsigned value) {
    return atomicAdd(address, 0u - value);
}
__forceinline__ int atomicSub_block(int* address, int value) { return atomicAdd_block(address, -value); }
__forceinline__ unsigned atomicSub_block(unsigned* address, unsigned value) {
    return atomicAdd_block(address, 0u - value);
}
__forceinline__ int atomicSub_system(int* address, int value) { return atomicSub(address, value); }
__forceinline__ unsigned atomicSub_system(unsigned* address, unsigned value) { return atomicSub(address, value); }

#define GF_EMULATOR_ATOMIC_CAS(type)                                                               \
    __forceinline__ type atomicCAS(type* address, type compared, type value) {                     \
        return gf_emulator::atomic(address, value, gf_emulator::AtomicOperation::compare_and_swap, \
                                   compared);                                                      \
    }                                                                                              \
    __forceinline__ type atomicCAS_system(type* address, type compared, type value) {              \
        return atomicCAS(address, compared, value);                                                \
    }                                                                                              \
    __forceinline__ type atomicCAS_block(type* address, type compared, type value) {               \
        return gf_emulator::block_atomic(address, value,                                           \
                                         gf_emulator::AtomicOperation::compare_and_swap, compared); \
    }
GF_EMULATOR_ATOMIC_CAS(int)
GF_EMULATOR_ATOMIC_CAS(unsigned)
GF_EMULATOR_ATOMIC_CAS(unsigned long long)
GF_EMULATOR_ATOMIC_CAS(unsigned short)
// Vectors in global memory, element by element: the whole is not one access. Needs sm_90. CUDA C++ Programming
// Guide, "atomicAdd()".
#define GF_EMULATOR_ATOMIC_VECTORS(name)                                                      \
    __forceinline__ float2 name(float2* address, float2 value) {                              \
        return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};            \
    }                                                                                         \
    __forceinline__ float4 name(float4* address, float4 value) {                              \
        return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y),             \
                atomicAdd(&address->z, value.z), atomicAdd(&address->w, value.w)};            \
    }
GF_EMULATOR_ATOMIC_VECTORS(atomicAdd)
GF_EMULATOR_ATOMIC_VECTORS(atomicAdd_block)
GF_EMULATOR_ATOMIC_VECTORS(atomicAdd_system)
#undef GF_EMULATOR_ATOMIC_VECTORS
#undef GF_EMULATOR_ATOMIC
#undef GF_EMULATOR_ATOMIC_INTEGERS
#undef GF_EMULATOR_ATOMIC_CAS

namespace gf_emulator {

// A load that goes by the first-level cache. The checks know such loads as volatile ones, which must be of
// scalars; the counters want one access.
template <class T>
__forceinline__ T load_volatile(const T* address) {
#ifdef GF_EMULATOR_CHECKED
    using Word = std::conditional_t<sizeof(T) % 8 == 0, std::uint64_t,
                                    std::conditional_t<sizeof(T) % 4 == 0, std::uint32_t,
                                                       std::conditional_t<sizeof(T) % 2 == 0, std::uint16_t,
                                                                          std::uint8_t>>>;
    const T& aligned = *address;  // is checked
    __attribute__((uninitialized)) T value;
    for (std::size_t i = 0; i < sizeof(T) / sizeof(Word); i++) {
        const Word word = reinterpret_cast<const volatile Word*>(&aligned)[i];
        __builtin_memcpy(reinterpret_cast<char*>(&value) + i * sizeof word, &word, sizeof word);
    }
    return value;
#else
    if constexpr (std::is_scalar_v<T>)
        return *static_cast<const volatile T*>(address);
    else
        return *address;
#endif
}

// A load through the cache that no store refreshes.
template <class T>
__forceinline__ T load_read_only(const T* address) {
#ifdef GF_EMULATOR_CHECKED
    gf_emulator_reads_only(address, sizeof(T));
#endif
    return *address;
}

}  // namespace gf_emulator

#define GF_EMULATOR_LOAD(name, loaded)         \
    template <class T>                         \
    __forceinline__ T name(const T* address) { \
        return loaded;                         \
    }
// The pointer's type decides, and the value is converted to it.
#define GF_EMULATOR_STORE(name)                                                     \
    template <class T>                                                              \
    __forceinline__ void name(T* address, typename std::common_type<T>::type value) { \
        *address = value;                                                           \
    }
GF_EMULATOR_LOAD(__ldg, gf_emulator::load_read_only(address))
GF_EMULATOR_LOAD(__ldca, *address)
GF_EMULATOR_LOAD(__ldcg, gf_emulator::load_volatile(address))
GF_EMULATOR_LOAD(__ldcs, *address)
GF_EMULATOR_LOAD(__ldlu, *address)
GF_EMULATOR_LOAD(__ldcv, gf_emulator::load_volatile(address))
GF_EMULATOR_STORE(__stcg)
GF_EMULATOR_STORE(__stcs)
GF_EMULATOR_STORE(__stwb)
GF_EMULATOR_STORE(__stwt)
#undef GF_EMULATOR_LOAD
#undef GF_EMULATOR_STORE

// A shared address as the device's 32-bit window shows it: 0 is the block's first static byte.
__forceinline__ std::size_t __cvta_generic_to_shared(const void* pointer) {
    return gf_emulator_shared_offset(pointer);
}
__forceinline__ unsigned __isShared(const void* pointer) { return gf_emulator_is_shared(pointer); }
__forceinline__ unsigned __isGlobal(const void* pointer) { return !gf_emulator_is_shared(pointer); }
