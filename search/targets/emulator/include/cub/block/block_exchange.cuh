// Stands in for CUB's cub/block/block_exchange.cuh: items go through shared memory, with a barrier between.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

template <class T, int DimX, int Items, bool = false, int DimY = 1, int DimZ = 1>
class BlockExchange {
    using Threads = gf::threads<DimX, DimY, DimZ>;

public:
    struct TempStorage : gf::used_in_turns {
        T items[Threads::count * Items];
    };
    explicit __forceinline__ BlockExchange(TempStorage& storage) : storage_(storage) {}
    __forceinline__ void StripedToBlocked(T (&items)[Items]) { StripedToBlocked(items, items); }
    __forceinline__ void StripedToBlocked(T (&from)[Items], T (&to)[Items]) {
        const gf::turn turn(storage_, Threads::rank());
        for (int i = 0; i < Items; i++) storage_.items[Threads::rank() + i * Threads::count] = from[i];
        __syncthreads();
        for (int i = 0; i < Items; i++) to[i] = storage_.items[Threads::rank() * Items + i];
    }
    __forceinline__ void BlockedToStriped(T (&items)[Items]) { BlockedToStriped(items, items); }
    __forceinline__ void BlockedToStriped(T (&from)[Items], T (&to)[Items]) {
        const gf::turn turn(storage_, Threads::rank());
        for (int i = 0; i < Items; i++) storage_.items[Threads::rank() * Items + i] = from[i];
        __syncthreads();
        for (int i = 0; i < Items; i++) to[i] = storage_.items[Threads::rank() + i * Threads::count];
    }
    template <class Rank>
    __forceinline__ void ScatterToBlocked(T (&items)[Items], Rank (&ranks)[Items]) {
        const gf::turn turn(storage_, Threads::rank());
        for (int i = 0; i < Items; i++) storage_.items[ranks[i]] = items[i];
        __syncthreads();
        for (int i = 0; i < Items; i++) items[i] = storage_.items[Threads::rank() * Items + i];
    }
    template <class Rank>
    __forceinline__ void ScatterToStriped(T (&items)[Items], Rank (&ranks)[Items]) {
        const gf::turn turn(storage_, Threads::rank());
        for (int i = 0; i < Items; i++) storage_.items[ranks[i]] = items[i];
        __syncthreads();
        for (int i = 0; i < Items; i++) items[i] = storage_.items[Threads::rank() + i * Threads::count];
    }

private:
    TempStorage& storage_;
};

}  // namespace cub
