// What translated inline PTX is made of (search/targets/emulator/ptx_*.py): registers are values of their size, and an
// instruction's type says how it reads them.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "gf_emulator/atomics.h"
#include "gf_emulator/cluster.h"
#include "gf_emulator/rounding.h"
#include "gf_emulator/synchronisation.h"

namespace gf_emulator {
namespace ptx {

using u8 = unsigned char;
using s8 = signed char;
using u16 = unsigned short;
using s16 = short;
using u32 = unsigned;
using s32 = int;
using u64 = unsigned long long;
using s64 = long long;

// The value that an `asm` operand has in its register.
template <class Register, class T>
__forceinline__ Register operand(const T& value) {
    if constexpr (std::is_pointer_v<T>)
        return Register(reinterpret_cast<std::uintptr_t>(value));
    else if constexpr (std::is_array_v<T>)
        return Register(reinterpret_cast<std::uintptr_t>(&value[0]));
    else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
        return static_cast<Register>(value);
    else
        return bit_cast<Register>(value);
}
// What stands in a register that the statement only writes.
template <class Register>
__forceinline__ Register poison() {
    __attribute__((uninitialized)) Register value;
    __builtin_memset(&value, 0xff, sizeof value);
    return value;
}
template <class T, class Register>
__forceinline__ void store(T& place, Register value) {
    if constexpr (std::is_pointer_v<T>)
        place = reinterpret_cast<T>(std::uintptr_t(value));
    else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
        place = static_cast<T>(value);
    else
        place = bit_cast<T>(value);
}

// A register or a literal as an instruction's type.
template <class T, class Register>
__forceinline__ constexpr T as(Register value) {
    if constexpr (std::is_same_v<T, Register>)
        return value;
    else if constexpr (std::is_integral_v<T> && std::is_integral_v<Register>)
        return static_cast<T>(value);
    else if constexpr (sizeof(T) == sizeof(Register))
        return bit_cast<T>(value);
    else if constexpr (sizeof(T) == 2 && std::is_integral_v<Register>)
        return bit_cast<T>(static_cast<unsigned short>(value));
    else
        return static_cast<T>(value);
}
// Smaller results are extended by their sign, others by zeros.
template <class Register, class T>
__forceinline__ void to(Register& place, T value) {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<Register>)
        place = static_cast<Register>(value);
    else if constexpr (sizeof(T) == sizeof(Register))
        place = bit_cast<Register>(value);
    else if constexpr (sizeof(T) == 2)
        place = static_cast<Register>(bit_cast<unsigned short>(value));
    else
        place = static_cast<Register>(value);
}

__forceinline__ char* generic(u64 address) { return reinterpret_cast<char*>(std::uintptr_t(address)); }
// Of a 32-bit window; `mapa` puts the rank + 1 of another block above it.
__forceinline__ char* shared(u64 offset) {
    const u32 rank = u32(offset) >> 24;
    char* const own = static_cast<char*>(gf_emulator_shared_pointer(u32(offset) & 0xffffffu));
    return rank ? static_cast<char*>(gf_emulator_map_shared_rank(own, rank - 1)) : own;
}
__forceinline__ u32 mapped(u32 offset, u32 rank) { return (offset & 0xffffffu) | (rank + 1) << 24; }
__forceinline__ u64 shared_offset_of(u64 address) { return gf_emulator_shared_offset(generic(address)); }
__forceinline__ bool is_shared(u64 address) { return gf_emulator_is_shared(generic(address)); }

template <class T>
__forceinline__ T shifted_left(T value, u32 by) {
    return by >= sizeof(T) * 8 ? T(0) : T(value << by);
}
template <class T>
__forceinline__ T shifted_right(T value, u32 by) {
    constexpr u32 bits = sizeof(T) * 8;
    return by >= bits ? (std::is_signed_v<T> && value < 0 ? T(-1) : T(0)) : T(value >> by);
}
template <int table>
__forceinline__ u32 lop3(u32 a, u32 b, u32 c) {
    u32 result = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
// PTX ISA, "bfe": bits beyond the register repeat its sign, or are zeros.
template <class T>
__forceinline__ T bit_field(T value, u32 at, u32 length) {
    constexpr u32 bits = sizeof(T) * 8;
    at &= 0xff, length &= 0xff;
    using Bits = std::make_unsigned_t<T>;
    if (length == 0) return 0;
    const u32 last = at + length - 1 < bits - 1 ? at + length - 1 : bits - 1;
    const bool sign = std::is_signed_v<T> && (Bits(value) >> last & 1);
    Bits result = sign ? ~Bits(0) : Bits(0);
    for (u32 i = 0; i < length && i < bits; i++) {
        const bool bit = at + i < bits ? Bits(value) >> (at + i) & 1 : sign;
        result = (result & ~(Bits(1) << i)) | Bits(bit) << i;
    }
    return T(result);
}
template <class T>
__forceinline__ T with_bit_field(T field, T value, u32 at, u32 length) {
    constexpr u32 bits = sizeof(T) * 8;
    at &= 0xff, length &= 0xff;
    for (u32 i = 0; i < length && at + i < bits; i++)
        value = (value & ~(T(1) << (at + i))) | (field >> i & 1) << (at + i);
    return value;
}
template <class T>
__forceinline__ u32 highest_bit(T value) {
    using Bits = std::make_unsigned_t<T>;
    Bits bits = Bits(std::is_signed_v<T> && value < 0 ? ~value : value);
    u32 at = ~0u;
    for (u32 i = 0; bits; bits >>= 1) at = i++;
    return at;
}
template <class T>
__forceinline__ T high_product(T a, T b) {
    if constexpr (sizeof(T) == 8)
        return T((std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>(a) * b) >> 64);
    else
        return T((std::conditional_t<std::is_signed_v<T>, long long, u64>(a) * b) >> sizeof(T) * 8);
}
template <class T>
__forceinline__ T saturated_sum(long long sum) {
    return sum > 0x7fffffffll ? T(0x7fffffff) : sum < -0x80000000ll ? T(-0x7fffffff - 1) : T(sum);
}
// NaN where an operand is one.
template <class T>
__forceinline__ T largest_or_nan(T a, T b) {
    return a != a ? a : b != b ? b : (a > b ? a : b);
}
template <class T>
__forceinline__ T smallest_or_nan(T a, T b) {
    return a != a ? a : b != b ? b : (a < b ? a : b);
}
template <class T>
__forceinline__ bool is_nan(T a) {
    return a != a;
}

// Conversions of floats: to a whole number of any width, which saturates.
template <class T, class Real>
__forceinline__ T to_integer(Real rounded) {
    return clamped<T>(rounded);
}
template <class T, class From>
__forceinline__ T saturated_integer(From value) {
    using Wide = __int128;
    constexpr Wide low = std::is_signed_v<T> ? -(Wide(1) << (sizeof(T) * 8 - 1)) : Wide(0);
    constexpr Wide high = (Wide(1) << (sizeof(T) * 8 - std::is_signed_v<T>)) - 1;
    return Wide(value) < low ? T(low) : Wide(value) > high ? T(high) : T(value);
}

}  // namespace ptx
}  // namespace gf_emulator
