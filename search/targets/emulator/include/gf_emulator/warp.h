// Warp-wide collectives: shuffles, votes, reductions (CUDA C++ Programming Guide, "Warp Shuffle / Vote /
// Reduce Functions").
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

template <class T>
__forceinline__ T shuffle(unsigned mask, T value, Collective kind, int lane_argument, int width) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    std::uint64_t raw = 0;
    __builtin_memcpy(&raw, &value, sizeof value);
    raw = gf_emulator_warp_collective(mask, kind, raw, lane_argument, width);
    __builtin_memcpy(&value, &raw, sizeof value);
    return value;
}

__forceinline__ std::uint64_t vote(unsigned mask, Collective kind, std::uint64_t value) {
    return gf_emulator_warp_collective(mask, kind, value, 0, 32);
}

}  // namespace gf_emulator

__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) {
    gf_emulator_warp_collective(mask, gf_emulator::Collective::sync_warp, 0, 0, 32);
}

template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int source_lane, int width = 32) {
    return gf_emulator::shuffle(mask, value, gf_emulator::Collective::shuffle_index, source_lane, width);
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return gf_emulator::shuffle(mask, value, gf_emulator::Collective::shuffle_up, int(delta), width);
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return gf_emulator::shuffle(mask, value, gf_emulator::Collective::shuffle_down, int(delta), width);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    return gf_emulator::shuffle(mask, value, gf_emulator::Collective::shuffle_xor, lane_mask, width);
}

__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
    return unsigned(gf_emulator::vote(mask, gf_emulator::Collective::ballot, predicate != 0));
}
__forceinline__ int __any_sync(unsigned mask, int predicate) {
    return int(gf_emulator::vote(mask, gf_emulator::Collective::any, predicate != 0));
}
__forceinline__ int __all_sync(unsigned mask, int predicate) {
    return int(gf_emulator::vote(mask, gf_emulator::Collective::all, predicate != 0));
}
template <class T>
__forceinline__ unsigned __match_any_sync(unsigned mask, T value) {
    std::uint64_t raw = 0;
    __builtin_memcpy(&raw, &value, sizeof value);
    return unsigned(gf_emulator::vote(mask, gf_emulator::Collective::match_any, raw));
}
// The mask where all lanes have the same value, else 0.
template <class T>
__forceinline__ unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
    const unsigned all = __ballot_sync(mask, 1);
    *predicate = __match_any_sync(mask, value) == all;
    *predicate = __all_sync(mask, *predicate);
    return *predicate ? mask : 0u;
}
__forceinline__ unsigned __activemask() { return gf_emulator_active_mask(); }

#define GF_EMULATOR_REDUCE(name, type, kind)                                                  \
    __forceinline__ type name(unsigned mask, type value) {                                    \
        return type(gf_emulator::vote(mask, gf_emulator::Collective::kind, unsigned(value))); \
    }
GF_EMULATOR_REDUCE(__reduce_add_sync, unsigned, reduce_add)
GF_EMULATOR_REDUCE(__reduce_add_sync, int, reduce_add)
GF_EMULATOR_REDUCE(__reduce_min_sync, unsigned, reduce_min_unsigned)
GF_EMULATOR_REDUCE(__reduce_min_sync, int, reduce_min_signed)
GF_EMULATOR_REDUCE(__reduce_max_sync, unsigned, reduce_max_unsigned)
GF_EMULATOR_REDUCE(__reduce_max_sync, int, reduce_max_signed)
GF_EMULATOR_REDUCE(__reduce_and_sync, unsigned, reduce_and)
GF_EMULATOR_REDUCE(__reduce_or_sync, unsigned, reduce_or)
GF_EMULATOR_REDUCE(__reduce_xor_sync, unsigned, reduce_xor)
#undef GF_EMULATOR_REDUCE
