// What CUB's collectives share: operations, threads' numbers, values that only one thread gets.
#pragma once
#include <limits>

#include "cuda_runtime.h"
#include "gf_emulator/cooperative_tiles.h"

namespace cub {

#define GF_EMULATOR_OPERATION(name, value)                                    \
    struct name {                                                             \
        template <class A, class B>                                           \
        __forceinline__ auto operator()(const A& a, const B& b) const {       \
            return value;                                                     \
        }                                                                     \
    };
GF_EMULATOR_OPERATION(Sum, a + b)
GF_EMULATOR_OPERATION(Difference, a - b)
GF_EMULATOR_OPERATION(Division, a / b)
GF_EMULATOR_OPERATION(Max, b > a ? b : a)
GF_EMULATOR_OPERATION(Min, b < a ? b : a)
GF_EMULATOR_OPERATION(Equality, a == b)
GF_EMULATOR_OPERATION(Inequality, !(a == b))
#undef GF_EMULATOR_OPERATION

struct NullType {};
template <class Key, class Value>
struct KeyValuePair {
    Key key;
    Value value;
    KeyValuePair() = default;
    __forceinline__ KeyValuePair(Key k, Value v) : key(k), value(v) {}
};
// Of equal values the one with the lower key.
struct ArgMax {
    template <class T, class Offset>
    __forceinline__ KeyValuePair<Offset, T> operator()(const KeyValuePair<Offset, T>& a,
                                                       const KeyValuePair<Offset, T>& b) const {
        return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class T, class Offset>
    __forceinline__ KeyValuePair<Offset, T> operator()(const KeyValuePair<Offset, T>& a,
                                                       const KeyValuePair<Offset, T>& b) const {
        return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a;
    }
};

__forceinline__ unsigned LaneId() { return gf_emulator_lane(); }
__forceinline__ int RowMajorTid(int dim_x, int dim_y, int) {
    return int((threadIdx.z * unsigned(dim_y) + threadIdx.y) * unsigned(dim_x) + threadIdx.x);
}
__forceinline__ int WarpId() { return RowMajorTid(int(blockDim.x), int(blockDim.y), 0) / 32; }

namespace gf {

// Every thread may read it, and only some get a value: NaN, or all bits set.
template <class T>
__forceinline__ T nobodys() {
    T value;
    __builtin_memset(static_cast<void*>(&value), 0xff, sizeof value);
    return value;
}

template <int dim_x, int dim_y, int dim_z>
struct threads {
    static constexpr int count = dim_x * dim_y * dim_z;
    static constexpr int warps = (count + 31) / 32;
    static __forceinline__ int rank() { return RowMajorTid(dim_x, dim_y, dim_z); }
    static __forceinline__ int warp() { return rank() / 32; }
    static __forceinline__ int lane() { return rank() % 32; }
    // The lanes that the calling thread's warp has.
    static __forceinline__ unsigned lanes() {
        const int left = count - warp() * 32;
        return left >= 32 ? ~0u : (1u << left) - 1;
    }
    static __forceinline__ int lane_count() { return count - warp() * 32 < 32 ? count - warp() * 32 : 32; }
};

// The fold of `valid` lanes from `first` on, in lane `first`.
template <class T, class Operation>
__forceinline__ T fold(unsigned lanes, int first, int valid, T value, Operation operation) {
    const int rank = int(gf_emulator_lane()) - first;
    for (int step = 1; step < valid; step *= 2) {
        const bool takes = rank + step < valid;
        const T other = gf_emulator::shuffle_from(lanes, value, unsigned(first + (takes ? rank + step : rank)));
        if (takes) value = operation(value, other);
    }
    return value;
}

// The prefix of the lanes from `first` on, the own one included.
template <class T, class Operation>
__forceinline__ T prefix(unsigned lanes, int first, int count, T value, Operation operation) {
    const int rank = int(gf_emulator_lane()) - first;
    for (int step = 1; step < count; step *= 2) {
        const T before = gf_emulator::shuffle_from(lanes, value, unsigned(first + (rank >= step ? rank - step : rank)));
        if (rank >= step) value = operation(before, value);
    }
    return value;
}

template <class T, int items, class Operation>
__forceinline__ T folded(const T (&values)[items], Operation operation) {
    T sum = values[0];
    for (int i = 1; i < items; i++) sum = operation(sum, values[i]);
    return sum;
}

struct no_storage {};

// Begins the storage of a block's collective. CUB allows another collective in the same memory, of any kind, only after a
// barrier. Which bytes the two use there is no matter: one thread's write at the start of a collective races with the
// reads at the end of the one before.
struct used_in_turns {
    int started;
};
class turn {
public:
    __forceinline__ turn(used_in_turns& storage, int rank) : storage_(storage) {
        if (rank == 0) storage.started = 1;
    }
    __forceinline__ ~turn() {
        [[maybe_unused]] volatile int started = storage_.started;
    }

private:
    used_in_turns& storage_;
};

}  // namespace gf
}  // namespace cub
