// Stands in for CUB's cub/block/block_radix_sort.cuh: a stable sort. Each key counts those that go before it, so that it
// takes time in the square of the number of keys.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

template <class Key, int DimX, int Items, class Value = NullType, int RadixBits = 4, bool = true, class... Others>
class BlockRadixSort {
    using Threads = gf::threads<DimX, 1, 1>;
    static constexpr int count = Threads::count * Items;
    using Bits = std::conditional_t<sizeof(Key) <= 4, unsigned, unsigned long long>;
    static constexpr int key_bits = int(sizeof(Key)) * 8;

public:
    struct TempStorage : gf::used_in_turns {
        Key keys[count];
        Value values[std::is_same_v<Value, NullType> ? 1 : count];
    };
    explicit __forceinline__ BlockRadixSort(TempStorage& storage) : storage_(storage) {}
    __forceinline__ void Sort(Key (&keys)[Items], int begin = 0, int end = key_bits) {
        sort<false, false>(keys, static_cast<Value*>(nullptr), begin, end);
    }
    __forceinline__ void Sort(Key (&keys)[Items], Value (&values)[Items], int begin = 0, int end = key_bits) {
        sort<false, false>(keys, values, begin, end);
    }
    __forceinline__ void SortDescending(Key (&keys)[Items], int begin = 0, int end = key_bits) {
        sort<true, false>(keys, static_cast<Value*>(nullptr), begin, end);
    }
    __forceinline__ void SortDescending(Key (&keys)[Items], Value (&values)[Items], int begin = 0,
                                        int end = key_bits) {
        sort<true, false>(keys, values, begin, end);
    }
    __forceinline__ void SortBlockedToStriped(Key (&keys)[Items], int begin = 0, int end = key_bits) {
        sort<false, true>(keys, static_cast<Value*>(nullptr), begin, end);
    }
    __forceinline__ void SortBlockedToStriped(Key (&keys)[Items], Value (&values)[Items], int begin = 0,
                                              int end = key_bits) {
        sort<false, true>(keys, values, begin, end);
    }
    __forceinline__ void SortDescendingBlockedToStriped(Key (&keys)[Items], Value (&values)[Items], int begin = 0,
                                                        int end = key_bits) {
        sort<true, true>(keys, values, begin, end);
    }

private:
    // Ascending in the order of the keys' values.
    static __forceinline__ Bits digits(Key key, int begin, int end) {
        Bits bits = 0;
        __builtin_memcpy(&bits, &key, sizeof key);
        constexpr Bits sign = Bits(1) << (key_bits - 1), all = sign | (sign - 1);
        if constexpr (!std::is_integral_v<Key>)
            bits = bits & sign ? ~bits & all : bits | sign;
        else if constexpr (std::is_signed_v<Key>)
            bits ^= sign;
        const int width = end - begin;
        return bits >> begin & (width >= int(sizeof(Bits)) * 8 ? ~Bits(0) : (Bits(1) << width) - 1);
    }
    template <bool descending, bool striped>
    __forceinline__ void sort(Key* keys, Value* values, int begin, int end) {
        const gf::turn turn(storage_, Threads::rank());
        int ranks[Items];
        for (int i = 0; i < Items; i++) storage_.keys[Threads::rank() * Items + i] = keys[i];
        __syncthreads();
        for (int i = 0; i < Items; i++) {
            const int own = Threads::rank() * Items + i;
            const Bits key = digits(keys[i], begin, end);
            ranks[i] = 0;
            for (int other = 0; other < count; other++) {
                const Bits theirs = digits(storage_.keys[other], begin, end);
                ranks[i] += (descending ? theirs > key : theirs < key) || (theirs == key && other < own);
            }
        }
        __syncthreads();
        for (int i = 0; i < Items; i++) {
            storage_.keys[ranks[i]] = keys[i];
            if constexpr (!std::is_same_v<Value, NullType>)
                if (values) storage_.values[ranks[i]] = values[i];
        }
        __syncthreads();
        for (int i = 0; i < Items; i++) {
            const int place = striped ? Threads::rank() + i * Threads::count : Threads::rank() * Items + i;
            keys[i] = storage_.keys[place];
            if constexpr (!std::is_same_v<Value, NullType>)
                if (values) values[i] = storage_.values[place];
        }
    }
    TempStorage& storage_;
};

}  // namespace cub
