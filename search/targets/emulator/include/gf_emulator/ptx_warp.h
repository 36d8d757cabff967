// Warp-wide instructions of translated inline PTX.
#pragma once
#include "gf_emulator/ptx.h"
#include "gf_emulator/warp.h"

namespace gf_emulator {
namespace ptx {

// PTX ISA, "shfl.sync": `c` holds the segment's mask in its bits 8 to 12, and the clamp.
__forceinline__ u32 shuffled(u32 value, Collective kind, u32 b, u32 c, u32 lanes, bool& inside) {
    const int width = int(32 - (c >> 8 & 0x1f)), lane = int(gf_emulator_lane()), first = lane & ~(width - 1);
    const int argument = int(b & 31);
    inside = kind == Collective::shuffle_up     ? lane - argument >= first
             : kind == Collective::shuffle_down ? lane + argument < first + width
             : kind == Collective::shuffle_xor  ? (lane ^ argument) < first + width
                                                : true;
    return u32(gf_emulator_warp_collective(lanes, kind, value, argument, width));
}
// movmatrix: lane 4 r + c holds columns 2 c and 2 c + 1 of row r of 8, and gets them of the transposed matrix.
__forceinline__ u32 turned_matrix(u32 value) {
    const int lane = int(gf_emulator_lane()), row = lane / 4, column = lane % 4 * 2;
    const u32 first = __shfl_sync(~0u, value, column * 4 + row / 2);
    const u32 second = __shfl_sync(~0u, value, (column + 1) * 4 + row / 2);
    const int half = row % 2 * 16;
    return (first >> half & 0xffffu) | (second >> half & 0xffffu) << 16;
}
__forceinline__ u32 lanes_in_order(int which) {
    const u32 own = 1u << gf_emulator_lane();
    switch (which) {
        case 0: return own;
        case 1: return own - 1;           // below
        case 2: return own | (own - 1);   // and itself
        case 3: return ~(own | (own - 1));  // above
        default: return ~(own - 1);
    }
}

// A place for each accumulator of a product: it is watched there while the product is under way.
template <class... Places>
struct Accumulators {
    static_assert(((sizeof(Places) == 4) && ...), "an accumulator of inline wgmma has 32 bits");
    void* places[sizeof...(Places)];
    __forceinline__ explicit Accumulators(Places&... all) : places{&all...} {}
};

}  // namespace ptx
}  // namespace gf_emulator
