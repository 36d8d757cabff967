// Loads, stores and atomics of translated inline PTX.
#pragma once
#include "gf_emulator/ptx.h"

namespace gf_emulator {
namespace ptx {

template <class T, int count>
struct alignas(sizeof(T) * count) Several {
    T value[count];
};

template <class T, int count>
__forceinline__ Several<T, count> load(const char* address) {
    return *reinterpret_cast<const Several<T, count>*>(address);
}
template <class T, int count>
__forceinline__ void must_be_aligned(const char* address) {
    const Several<T, count>& whole = *reinterpret_cast<const Several<T, count>*>(address);  // is checked
    static_cast<void>(whole);
}
template <class T, int count>
__forceinline__ Several<T, count> load_bypassing(const char* address) {
    return load_volatile(reinterpret_cast<const Several<T, count>*>(address));
}
template <class T, int count>
__forceinline__ Several<T, count> load_read_only(const char* address) {
    return gf_emulator::load_read_only(reinterpret_cast<const Several<T, count>*>(address));
}
template <class T, int count>
__forceinline__ void put(char* address, const Several<T, count>& value) {
    *reinterpret_cast<Several<T, count>*>(address) = value;
}
// Vectors of flags are read and written element by element.
template <bool block_wide, class T, int count>
__forceinline__ Several<T, count> load_flag(const char* address) {
    Several<T, count> result;
    for (int i = 0; i < count; i++) {
        const std::uint64_t bits = gf_emulator_flag_load(address + i * int(sizeof(T)), sizeof(T), block_wide);
        __builtin_memcpy(&result.value[i], &bits, sizeof(T));
    }
    return result;
}
template <bool block_wide, class T, int count>
__forceinline__ void put_flag(char* address, const Several<T, count>& value) {
    for (int i = 0; i < count; i++) {
        std::uint64_t bits = 0;
        __builtin_memcpy(&bits, &value.value[i], sizeof(T));
        gf_emulator_flag_store(address + i * int(sizeof(T)), sizeof(T), bits, block_wide);
    }
}

template <class T>
constexpr AtomicType type_of() {
    if constexpr (std::is_same_v<T, __half>)
        return AtomicType::float16;
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return AtomicType::bfloat16;
    else if constexpr (std::is_same_v<T, __half2>)
        return AtomicType::float16x2;
    else if constexpr (std::is_same_v<T, __nv_bfloat162>)
        return AtomicType::bfloat16x2;
    else
        return atomic_type<T>();
}
template <class T, bool block_wide>
__forceinline__ T update(char* address, T operand, AtomicOperation operation, T compared) {
    __attribute__((uninitialized)) T before;  // the call sets it
    if constexpr (block_wide)
        gf_emulator_block_atomic(address, &operand, &compared, &before, operation, type_of<T>());
    else
        gf_emulator_atomic(address, &operand, &compared, &before, operation, type_of<T>());
    return found(before, operation);
}

}  // namespace ptx
}  // namespace gf_emulator
