// Cooperative groups within a warp, and wider tiles in gf_emulator/wide_tiles.h: tiles, coalesced threads, partitions (CUDA C++ Programming Guide, "Cooperative
// Groups"). A group is the set of lanes that its collectives name, in the order of their lanes.
#pragma once
#include "gf_emulator/integers.h"
#include "gf_emulator/synchronisation.h"
#include "gf_emulator/warp.h"

namespace gf_emulator {

// A value of any size goes through shuffles of words.
template <class T>
__forceinline__ T shuffle_from(unsigned lanes, const T& value, unsigned lane) {
    static_assert(std::is_trivially_copyable_v<T>, "a shuffled value is copied by its bytes");
    if constexpr (sizeof(T) <= 8) {
        return shuffle(lanes, value, Collective::shuffle_index, int(lane), 32);
    } else {
        constexpr int words = (int(sizeof(T)) + 7) / 8;
        std::uint64_t all[words] = {};
        __builtin_memcpy(all, &value, sizeof value);
        for (int i = 0; i < words; i++) all[i] = shuffle(lanes, all[i], Collective::shuffle_index, int(lane), 32);
        __attribute__((uninitialized)) T result;
        __builtin_memcpy(&result, all, sizeof result);
        return result;
    }
}

__forceinline__ unsigned lanes_below() { return (1u << gf_emulator_lane()) - 1; }

}  // namespace gf_emulator

namespace cooperative_groups {

namespace details {

// What tiles and coalesced groups have in common; `Group` gives lanes() and lane_of(rank).
template <class Group>
class warp_group {
public:
    __forceinline__ void sync() const { __syncwarp(lanes()); }
    __forceinline__ unsigned long long num_threads() const { return self().count(); }
    __forceinline__ unsigned long long size() const { return self().count(); }
    __forceinline__ unsigned long long thread_rank() const { return self().rank(); }
    __forceinline__ int any(int predicate) const { return __any_sync(lanes(), predicate); }
    __forceinline__ int all(int predicate) const { return __all_sync(lanes(), predicate); }
    __forceinline__ unsigned ballot(int predicate) const { return packed(__ballot_sync(lanes(), predicate)); }
    template <class T>
    __forceinline__ unsigned match_any(T value) const {
        return packed(__match_any_sync(lanes(), value));
    }
    template <class T>
    __forceinline__ unsigned match_all(T value, int& predicate) const {
        const unsigned equal = __match_all_sync(lanes(), value, &predicate);
        return predicate ? packed(equal) : 0u;
    }
    template <class T>
    __forceinline__ T shfl(T value, int rank) const {
        return gf_emulator::shuffle_from(lanes(), value, self().lane_of(unsigned(rank) % count()));
    }
    template <class T>
    __forceinline__ T shfl_up(T value, unsigned delta) const {
        return from(value, rank() < delta ? rank() : rank() - delta);
    }
    template <class T>
    __forceinline__ T shfl_down(T value, unsigned delta) const {
        return from(value, rank() + delta < count() ? rank() + delta : rank());
    }

protected:
    template <class T>
    __forceinline__ T from(const T& value, unsigned rank) const {
        return gf_emulator::shuffle_from(lanes(), value, self().lane_of(rank));
    }
    __forceinline__ unsigned rank() const { return self().rank(); }
    __forceinline__ unsigned count() const { return self().count(); }

private:
    __forceinline__ const Group& self() const { return static_cast<const Group&>(*this); }
    __forceinline__ unsigned lanes() const { return self().lanes(); }
    // Bit `rank` instead of bit `lane`.
    __forceinline__ unsigned packed(unsigned votes) const { return self().by_rank(votes & lanes()); }
};

struct group_access;

}  // namespace details

template <unsigned Size, class Parent = void, class = void>
class thread_block_tile : public details::warp_group<thread_block_tile<Size, Parent>> {
    static_assert(Size && (Size & (Size - 1)) == 0, "a tile's size is a power of two");

public:
    static constexpr __forceinline__ unsigned long long num_threads() { return Size; }
    static constexpr __forceinline__ unsigned long long size() { return Size; }
    static __forceinline__ unsigned long long thread_rank() { return rank(); }
    __forceinline__ unsigned long long meta_group_rank() const { return meta_rank_; }
    __forceinline__ unsigned long long meta_group_size() const { return meta_size_; }
    template <class T>
    __forceinline__ T shfl_xor(T value, unsigned lane_mask) const {
        const unsigned other = rank() ^ lane_mask;
        return this->from(value, other < Size ? other : rank());
    }

    static __forceinline__ unsigned rank() { return gf_emulator_lane() % Size; }
    static constexpr __forceinline__ unsigned count() { return Size; }
    static __forceinline__ unsigned first() { return gf_emulator_lane() & ~(Size - 1); }
    static __forceinline__ unsigned lanes() { return (Size == 32 ? ~0u : (1u << Size % 32) - 1) << first(); }
    static __forceinline__ unsigned lane_of(unsigned rank) { return first() + rank; }
    static __forceinline__ unsigned by_rank(unsigned votes) { return votes >> first(); }

    thread_block_tile() = default;
    // A tile of a larger group stands for one that does not say so.
    template <class Other>
    __forceinline__ thread_block_tile(const thread_block_tile<Size, Other>& other)
        : meta_rank_(unsigned(other.meta_group_rank())), meta_size_(unsigned(other.meta_group_size())) {}

private:
    friend details::group_access;
    __forceinline__ thread_block_tile(unsigned meta_rank, unsigned meta_size)
        : meta_rank_(meta_rank), meta_size_(meta_size) {}
    unsigned meta_rank_ = 0, meta_size_ = 1;
};

class coalesced_group : public details::warp_group<coalesced_group> {
public:
    __forceinline__ unsigned long long meta_group_rank() const { return meta_rank_; }
    __forceinline__ unsigned long long meta_group_size() const { return meta_size_; }

    __forceinline__ unsigned lanes() const { return lanes_; }
    __forceinline__ unsigned rank() const { return unsigned(__popc(lanes_ & gf_emulator::lanes_below())); }
    __forceinline__ unsigned count() const { return unsigned(__popc(lanes_)); }
    __forceinline__ unsigned lane_of(unsigned rank) const { return __fns(lanes_, 0, int(rank) + 1); }
    __forceinline__ unsigned by_rank(unsigned votes) const {
        unsigned packed = 0, rank = 0;
        for (unsigned left = lanes_; left; left &= left - 1, rank++)
            packed |= (votes >> __builtin_ctz(left) & 1u) << rank;
        return packed;
    }

private:
    friend details::group_access;
    explicit __forceinline__ coalesced_group(unsigned lanes, unsigned meta_rank = 0, unsigned meta_size = 1)
        : lanes_(lanes), meta_rank_(meta_rank), meta_size_(meta_size) {}
    unsigned lanes_, meta_rank_, meta_size_;
};

namespace details {

struct group_access {
    template <unsigned Size, class Parent>
    static __forceinline__ thread_block_tile<Size, Parent> tile(unsigned long long threads, unsigned long long rank) {
        return {unsigned(rank / Size), unsigned((threads + Size - 1) / Size)};
    }
    static __forceinline__ coalesced_group coalesced(unsigned lanes, unsigned meta_rank = 0, unsigned meta_size = 1) {
        return coalesced_group(lanes, meta_rank, meta_size);
    }
};

// The lanes of the group's next `size` ranks around the calling thread.
template <class Group>
__forceinline__ coalesced_group part_of_group(const Group& parent, unsigned size) {
    const unsigned first = unsigned(parent.thread_rank()) / size * size;
    unsigned lanes = 0;
    for (unsigned rank = first; rank < first + size && rank < parent.count(); rank++)
        lanes |= 1u << parent.lane_of(rank);
    return group_access::coalesced(lanes, first / size, (parent.count() + size - 1) / size);
}

}  // namespace details

__forceinline__ coalesced_group coalesced_threads() { return details::group_access::coalesced(__activemask()); }

template <unsigned Size, class Parent>
__forceinline__ thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
    return details::group_access::tile<Size, Parent>(parent.num_threads(), parent.thread_rank());
}
__forceinline__ coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
    return details::part_of_group(parent, size);
}
template <unsigned Size, class Parent>
__forceinline__ coalesced_group tiled_partition(const thread_block_tile<Size, Parent>& parent, unsigned size) {
    return details::part_of_group(parent, size);
}

template <class Label, class Group>
__forceinline__ coalesced_group labeled_partition(const Group& parent, Label label) {
    const unsigned same = __match_any_sync(parent.lanes(), label);
    // Groups are numbered by their labels' first lanes.
    const unsigned leaders = __ballot_sync(parent.lanes(), unsigned(__ffs(int(same))) - 1 == gf_emulator_lane());
    const unsigned first = unsigned(__ffs(int(same))) - 1;
    return details::group_access::coalesced(same, unsigned(__popc(leaders & ((1u << first) - 1))),
                                            unsigned(__popc(leaders)));
}
template <class Group>
__forceinline__ coalesced_group binary_partition(const Group& parent, bool predicate) {
    const unsigned all = __ballot_sync(parent.lanes(), 1), yes = __ballot_sync(parent.lanes(), predicate);
    const unsigned groups = yes == 0 || yes == all ? 1u : 2u;
    return details::group_access::coalesced(predicate ? yes : all & ~yes, groups == 2 && !predicate, groups);
}

}  // namespace cooperative_groups

#include "gf_emulator/wide_tiles.h"
