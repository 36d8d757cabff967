// The checks of one block: every access is compared with the recorded state of its memory. All functions here
// concern the running fiber.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "async_shadow.h"
#include "clocks.h"
#include "fiber.h"
#include "findings.h"
#include "global_shadow.h"
#include "local_memory.h"
#include "shadow_memory.h"

namespace gf_emulator {

class Block;

class Checker {
public:
    explicit Checker(Block& block) : block_(block) {}

    // Of the block that this OS thread is running, where accesses are checked; else null.
    static Checker* active() { return active_; }
    static void activate(Checker* checker) { active_ = checker; }

    void enable(bool on) { enabled_ = on; }
    bool enabled() const { return enabled_; }
    bool counts_too() const { return counts_too_; }
    void start_block(unsigned thread_count, std::uint64_t index);

    // --- called before the access is made ---
    __attribute__((always_inline)) void access(const void* address, unsigned bytes, Action action, const void* site) {
        if (!in_live_frames(address, bytes)) access_memory(address, bytes, action, site);
    }
    // Of any length; none is an access of nothing.
    void access_range(const void* address, std::size_t bytes, Action action, const void* site) {
        if (bytes) access(address, unsigned(std::min<std::size_t>(bytes, ~0u)), action, site);
    }
    // Whether the address lies in the block's static shared memory or in the kernel's library.
    bool is_static(const void* address) const;
    __attribute__((always_inline)) void access_outside_frames(const void* address, unsigned bytes, Action action,
                                                              const void* site) {
        settle_before(action);
        if (dynamic_.contains(address, bytes))
            touch_shared(dynamic_.offset_of(address), address, bytes, {**running_, action, site});
        else
            access_elsewhere(address, bytes, action, site);
    }
    // The running lane's part in its warp's access of a matrix. The first lane to come asks for the whole warp; when
    // its answer is false, each lane has to ask for what it moves itself.
    struct Matrix {
        const void* first;
        unsigned lines, line_bytes;
        std::size_t pitch_bytes;
        std::uint32_t layout;  // differs where lanes hold other elements
        std::uint32_t mapping() const;
    };
    bool warp_access(const Matrix& matrix, Action action, const void* site);
    // True when an earlier lane asked for the warp, and all was well.
    bool warp_was_here(const Fiber& fiber, const void* matrix, const void* site) {
        const WarpAccess& known = warp_access_of(fiber);
        return known.operation == fiber.aligned_operations && known.answer && known.matrix == matrix &&
               known.site == site && known.since == started_;
    }
    void lane_access(const Matrix& matrix, const void* address, unsigned bytes, Action action, const void* site);
    void copy_started(AsyncCopy& copy);
    void copy_landed(const AsyncCopy& copy);
    void copies_abandoned(const Fiber& fiber);

    // --- what orders accesses ---
    void block_met();
    void cluster_met();
    void lanes_met(unsigned warp, std::uint32_t lanes, bool all_living);
    void publish(Clocks::Row& into) {
        settle();
        clocks_.release(block_thread(), into);
    }
    void fence(bool device_wide);
    // fence.mbarrier_init: it makes what came before known to those who meet the thread at a relaxed barrier.
    void init_fence();
    // Of this block by a thread of another one, which runs now.
    void is_visited(const Checker& by, const Fiber& fiber, const void* site);
    void waits_for_last_launch(unsigned thread);
    // The block has ended: what others did here must be known to one of its threads.
    void finish();
    void cluster_met_relaxed() { visits_.clear(); }
    void global_proxy_fence(unsigned thread);
    // A bulk store of the running thread, issued then, has written these bytes by now.
    void bulk_store_ends(const void* address, unsigned bytes, Clocks::Time issued, const void* site) {
        store_issued_ = issued;
        access(address, bytes, Action::bulk_write, site);
    }
    // At a cluster's barrier with relaxed arrivals (checker_cluster.cpp), for which `address` stands.
    void arrives_relaxed(const void* address);
    void arrives_for_all(const void* address, unsigned thread, std::vector<Clocks::Row>& by_rank);
    void leaves_relaxed(const void* address, unsigned thread, const std::vector<Clocks::Row>& by_rank);
    // `swapped`: the word of a compare-and-swap; null: another atomic, or the thread's end.
    void atomic_follows(const void* swapped) { atomic_follows(swapped, block_thread()); }
    // Whether the atomic under way is an exchange: a write, and a read only if its result is used (uses_exchanged).
    void exchanges(bool exchanges) {
        exchanges_ = exchanges;
        if (exchanges && !exchanged_.empty()) exchanged_.erase(block_thread());
    }
    void uses_exchanged();
    // Before an atomic in shared memory: what its word held.
    void atomic_reads(const void* address, unsigned bytes, Action action, const void* site);
    void before_atomic(const void* address, bool block_wide);
    void after_atomic(const void* address, bool block_wide, bool changed = false);
    // Before a volatile store, whose own access is judged only behind it.
    void before_volatile_store(const void* address, bool block_wide = false) { releases(address, block_wide); }
    void undefined_shuffle(const Fiber& fiber, int source);
    // Before a load through the read-only path (checker_read_only.cpp).
    void reads_only(const void* address, unsigned bytes, const void* site);
    Clocks& clocks() { return clocks_; }

    // --- the asynchronous proxy (checker_async.cpp) ---
    // Who issues an operation. A matrix product is a warp's: its first and last lane speak for all.
    struct AsyncIssue {
        Checker& issuer;
        unsigned threads[2];
        const std::shared_ptr<AsyncOperation>& operation;
    };
    // Whether what `thread` of this block did at `time` comes before what the fiber of another block does now.
    bool did_before(unsigned thread, Clocks::Time time, Checker& by, const Fiber& fiber, const void* site) const;
    // From now on generic accesses are compared with what the asynchronous proxy does.
    void watch_async();
    // Before an asynchronous operation of this block's shared memory. `offset` and `bytes` are multiples of 16.
    void async_write(std::size_t offset, std::size_t bytes, const AsyncIssue& issue);
    void async_read(std::size_t offset, std::size_t bytes, const AsyncIssue& issue);
    std::shared_ptr<AsyncOperation> operation(const Fiber& fiber, Action action, const void* site,
                                              std::shared_ptr<Completion> end);
    void saw(Completion& end, unsigned thread) {
        if (!end.seen[thread]) end.seen[thread] = clocks_.tick();
    }
    // Marks the 8 bytes as an mbarrier's, or as memory again.
    // What a thread knows of all blocks' threads of the cluster, by rank: handed over by another block's arrival.
    void publish_to_cluster(unsigned thread, std::vector<Clocks::Row>& by_rank);
    void learn_from_cluster(unsigned thread, const std::vector<Clocks::Row>& by_rank);
    void barrier_lies_at(std::size_t offset, bool lies, const Fiber& fiber, const void* site);
    void async_finding(const char* kind, std::size_t offset, unsigned bytes, const Party& party, const Party& other,
                       const std::string& detail);
    Party party_of(const Fiber& fiber, Action action, const void* site) const { return party({fiber, action, site}); }

    // What an access leaves to be looked at behind it, since its hook runs before it: here, before any other thread
    // of this worker or access. A store that raced with another store is forgiven if it changed nothing. And what a
    // volatile load saw is what was released until it loaded: blocks of other workers run meanwhile.
    void settle() {
        if (unsettled_) settle_now();
    }
    // A copy from memory to memory has its store's hook first, its load's second, and then happens.
    void settle_before(Action next) {
        if (!unsettled_) return;
        if (next == Action::read && !behind_a_read_ && !flag_.address)
            behind_a_read_ = true;
        else
            settle_now();
    }
    void reads_flag(const void* address) {
        flag_ = {address, block_thread()};
        unsettled_ = true;
    }

private:
    struct Running {
        const Fiber& fiber;
        Action action;
        const void* site;
        std::uint32_t mapping = 0;  // of a matrix; see Touch
    };
    // The knowledge that each thread published with its last fence: to its block, and to the device as of `time`.
    struct Fence {
        Clocks::Time time = 0, floor = 0;
        Clocks::Row known;
        std::shared_ptr<const Clocks::Row> device_known;  // null: no more than the floor
    };
    struct Suspect {
        Finding finding{};
        const char* address = nullptr;
        unsigned bytes = 0;
        bool one_instruction = false;  // of one warp: the others' part in it
        char before[64];
    };

    // A range of addresses, and where in shared memory it begins.
    struct Range {
        std::uintptr_t begin = 0;
        std::size_t bytes = 0;
        std::size_t offset = 0;
        bool contains(const void* address, std::size_t count) const {
            const std::size_t from = std::uintptr_t(address) - begin;
            return from < bytes && count <= bytes - from;
        }
        std::size_t offset_of(const void* address) const { return std::uintptr_t(address) - begin + offset; }
    };

    // What was read before and is never written: an input, or a table of the library's.
    struct Readable : Range {
        const OwnedBytes* owned;
    };

    // What the first lane found of its warp's access of a matrix, until the others came.
    struct WarpAccess {
        const void* matrix = nullptr;
        const void* site = nullptr;
        Clocks::Time since = 0;  // this block's start
        std::uint32_t operation = 0;
        bool answer = false;
    };
    static constexpr unsigned kept_warp_accesses = 32;  // a warp: how far its lanes may be apart

    WarpAccess& warp_access_of(const Fiber& fiber) {
        return warp_accesses_[fiber.thread / 32 * kept_warp_accesses + fiber.aligned_operations % kept_warp_accesses];
    }
    void access_memory(const void* address, unsigned bytes, Action action, const void* site);
    void access_elsewhere(const void* address, unsigned bytes, Action action, const void* site);
    bool is_readable(const void* address, std::size_t bytes) {
        for (const Readable& range : readable_)
            if (range.contains(address, bytes))
                return range.owned->all() || range.owned->hold(range.offset_of(address), bytes);
        return false;
    }
    bool is_readable(const Matrix& matrix);
    Touch fresh_touch(const Running& running) const;
    void touch_shared(std::size_t offset, const void* address, unsigned bytes, const Running& running);
    bool touch_cell(std::size_t cell, const Touch& fresh, const Running& running);
    bool settled(const Touch& touch, const Touch& fresh, unsigned warp) const;
    bool joins(Touch& touch, const Touch& fresh, unsigned warp) const;
    bool is_handed_over(const Touch& touch, const Running& running);
    Clocks::Time read_at(const void* address, unsigned thread) const;
    bool gives_way(Touch& touch, const Touch& fresh, unsigned warp) const;
    bool give_way(ChainedTouch& first, const Touch& fresh, unsigned warp, bool joined);
    bool reads_settled(const Cell& cell, const Touch& fresh, unsigned warp) const {
        return settled(cell.read, fresh, warp) &&
               (!cell.more_reads || cell.read.newest <= clocks_.floor() || more_settled(cell, fresh, warp));
    }
    bool more_settled(const Cell& cell, const Touch& fresh, unsigned warp) const;
    void keep_beside(Cell& cell, const Touch& fresh, unsigned warp);
    bool words_settled(const Cell& cell, Clocks::Time newest, unsigned warp) const;
    bool clean(const Cell& cell, std::uint32_t states, const Touch& fresh, unsigned warp) const;
    void keep(std::size_t cell, const Touch& fresh, unsigned warp);
    bool matrix_access(const Matrix& matrix, const Running& running);
    void meets_cell(std::size_t word, const Touch& earlier, const Touch& fresh, const Running& running);
    void meets_reads(std::size_t word, const Cell& cell, const Touch& fresh, const Running& running);
    void touch_unaligned(std::size_t offset, unsigned bytes, const Running& running, Touch& fresh);
    void touch(std::size_t word, unsigned bytes, const Running& running, Touch& fresh);
    void touch_in_company(std::size_t word, const Touch& fresh, const Running& running);
    bool ordered(const Touch& touch, const Running& running, unsigned& unordered_thread) const;
    // Up to when `thread` knows `other`'s accesses, and up to when it would if a fence followed its atomics.
    Clocks::Time known(unsigned thread, unsigned other, bool fenced) const;
    bool not_ready(std::size_t word, unsigned bytes, const Running& running);
    // At once, or if the exchange under way is a read.
    void add_of_reading(const Finding& finding);
    void in_flight(std::size_t word, unsigned bytes, const Running& running);
    void race(std::size_t word, unsigned bytes, const Touch& touch, unsigned thread, const Running& running);
    void global_access(const char* address, unsigned bytes, const Running& running);
    void watched_access(std::size_t number, const std::string& memory, std::size_t offset, unsigned bytes,
                        const Running& running, const ModuleMemory::Object* object);
    // Programmatic dependent launch: an access that may come before the last launch's end.
    bool comes_after_last_launch(unsigned thread) const;
    void meets_last_launch(std::size_t number, const std::string& memory, std::size_t offset, unsigned bytes,
                           const Running& running);
    void reads_only(std::size_t number, const std::string& memory, std::size_t offset, unsigned bytes,
                    const Running& running, bool by_parameter);
    void writes_read_only(std::size_t number, const std::string& memory, std::size_t offset, unsigned bytes,
                          std::size_t word, unsigned mask, const Running& running);
    void reads_promised(std::size_t copy, std::size_t offset, unsigned bytes, const Running& running);
    void module_access(const char* address, unsigned bytes, const Running& running);
    [[noreturn]] void module_fault(const char* kind, const char* address, unsigned bytes, const Running& running,
                                   const ModuleMemory::Object* object, const std::string& place);
    void foreign_access(const void* address, unsigned bytes, const Running& running);
    [[noreturn]] void wild_access(const void* address, unsigned bytes, const Running& running);
    // Distributed shared memory (checker_cluster.cpp).
    struct Remote {
        Party party;
        unsigned bytes;
        std::uint64_t block;  // in the launch
        unsigned thread;
        Clocks::Time time;
    };
    // Another block's thread used this block's shared memory, until the cluster next meets.
    struct Visit {
        Clocks::Time time;
        const void* site;
    };
    void distributed_access(Block& owner, const void* address, unsigned bytes, const Running& running);
    void touched_from_afar(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor);
    void written_from_afar(const Checker& by, const GlobalAccess& access, std::size_t word, const Party& accessor);
    void meets_local(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor,
                     const Touch& touch);
    void meets_remote(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor);
    bool comes_before(const Remote& other, const GlobalAccess& access) const;
    void keep_remote(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor);
    // A write of another block's thread, when by this block's clock, and when by its own.
    struct AfarWrite {
        const Checker* by;
        unsigned thread;
        Clocks::Time time, here;
        Party party;
    };
    void async_meets_remote(std::size_t cell, const AsyncIssue& issue);
    bool proxy_fenced(const AfarWrite& write, const AsyncIssue& issue) const;
    void own_meets_remote(std::size_t offset, unsigned bytes, const Running& running);
    // What other blocks, and the asynchronous proxy, do to this block's shared memory. True when the words must be
    // examined.
    bool meets_others(std::size_t offset, unsigned bytes, const Running& running);
    void meets_async(std::size_t offset, unsigned bytes, const Running& running);
    bool knows(unsigned thread, Completion& end) const;
    bool knows(const AsyncIssue& issue, Completion& end) const;
    bool knows(const AsyncIssue& issue, unsigned thread, Clocks::Time time, std::uint32_t site) const;
    void async_meets_generic(std::size_t cell, bool write, const AsyncIssue& issue);
    void async_meets_touch(std::size_t word, const Touch& touch, bool write, const AsyncIssue& issue);
    void async_meets_unfenced(std::size_t cell, const AsyncIssue& issue);

    void atomic_follows(const void* swapped, unsigned thread);
    void settle_now();
    void judge_suspect();
    void releases(const void* address, bool block_wide) { releases(address, block_wide, fences_[block_thread()]); }
    void releases(const void* address, bool block_wide, const Fence& fence);
    void make_fence(Fence& fence, unsigned thread, bool device_wide);
    void take_over(unsigned thread, bool device_wide);
    void saw_releases(const void* address, unsigned thread, bool block_wide, std::uint32_t record = 0);
    void race_or_suspect(const Finding& finding, bool one_instruction);
    void suspect(const Finding& finding, bool one_instruction);

    unsigned block_thread() const;
    std::shared_ptr<const Clocks::Row> beyond_floor(const Clocks::Row& known, unsigned thread) const;
    bool stays_in_block(const void* address) const;
    Party party(const Running& running) const;
    Party party(unsigned thread, std::uint32_t site, Action action) const;
    Party party_of(const GlobalShadow::Earlier& earlier) const;
    std::size_t shared_offset(const void* address) const {
        return (dynamic_.contains(address, 1) ? dynamic_ : static_).offset_of(address);
    }
    std::uint32_t offset_of(const void* site) const {
        return std::uint32_t(static_cast<const char*>(site) - module_base_);
    }

    static thread_local Checker* active_ __attribute__((tls_model("initial-exec")));

    Block& block_;
    bool enabled_ = false;
    bool counts_too_ = false;
    std::uint64_t index_ = 0;  // of the block in the launch
    Fiber* const* running_ = nullptr;
    const char* module_base_ = nullptr;
    Range dynamic_, static_, local_;
    std::vector<Readable> readable_;
    std::vector<WarpAccess> warp_accesses_;
    Clocks::Time started_ = 0;
    Clocks clocks_;
    ShadowMemory shadow_;
    std::vector<Fence> fences_, init_fences_;
    std::unordered_map<const void*, Clocks::Row> released_;  // inside the block, by atomic's address
    std::unordered_map<const void*, Clocks::Row> read_at_;   // of these, when each thread's load saw it
    std::vector<Clocks::Row> observed_;  // of these, by thread: what its atomics saw since the block last met
    std::vector<Clocks::Time> observed_at_;  // and when they last did
    const void* access_address_ = nullptr;                   // of the access under way
    unsigned access_bytes_ = 0;
    Suspect suspect_;
    struct Flag {
        const void* address = nullptr;
        unsigned thread = 0;
    };
    // The last atomic on watched global memory, and what it was kept as.
    struct KeptAtomic {
        const void* address = nullptr;
        std::uint32_t record = 0;
    };
    KeptAtomic atomic_;
    // The running threads' plain reads of words that others update by atomics, since their last atomic.
    struct PlainRead {
        const void* address;
        const void* site;
    };
    std::unordered_map<unsigned, PlainRead> plain_reads_;
    bool exchanges_ = false;
    std::unordered_map<unsigned, Finding> exchanged_;  // by thread: what a use of its last exchange's result would be
    Flag flag_;  // whose volatile load is under way
    PendingStore* pending_ = nullptr;  // this worker's
    bool unsettled_ = false;
    bool behind_a_read_ = false;  // which may be a part of the unsettled store
    AsyncShadow async_;
    // What threads learnt of other blocks' threads, and when.
    struct Afar {
        unsigned thread;
        Clocks::Time time;
        std::vector<Clocks::Row> by_rank;
    };
    static constexpr std::size_t most_afar = 4096;
    bool knows_afar(unsigned thread, unsigned rank, unsigned other, Clocks::Time time) const;
    std::vector<Afar> afar_;
    bool is_watched_ = false;  // by other blocks' accesses or the asynchronous proxy
    std::unordered_map<std::size_t, std::vector<Remote>> remote_;  // by word, since the cluster last met
    Clocks::Time cluster_met_at_ = 0;
    std::unordered_map<std::size_t, std::vector<AfarWrite>> afar_writes_;  // by cell, the last of each thread
    Clocks::Time store_issued_ = 0;  // of the bulk store that ends
    Clocks::Time copy_issued_ = 0;   // of the cp.async that ends
    std::vector<Clocks::Time> launch_waits_;  // by thread: when it has waited for the last launch; 0: not yet
    std::map<std::pair<std::uint64_t, unsigned>, Visit> visits_;  // the last of each block and thread
};

// --- the way of nearly every access ---

inline Touch Checker::fresh_touch(const Running& running) const {
    Touch fresh;
    fresh.newest = fresh.oldest = clocks_.now();
    fresh.warps = 1u << running.fiber.thread / 32;
    fresh.lanes = 1u << running.fiber.lane;
    fresh.site = offset_of(running.site);
    fresh.how = Touch::pack(15, running.action);
    return fresh;
}

__attribute__((always_inline)) inline void Checker::touch_shared(std::size_t offset, const void* address,
                                                                 unsigned bytes, const Running& running) {
    Touch fresh = fresh_touch(running);
    access_address_ = address, access_bytes_ = bytes;
    const bool by_words = __builtin_expect(is_watched_, 0) && meets_others(offset, bytes, running);
    if (!by_words && is_cell(offset, bytes) && touch_cell(offset / Cell::bytes, fresh, running)) return;
    if (offset % 4 + bytes <= 4)
        touch(offset / 4, ((1u << bytes) - 1u) << offset % 4, running, fresh);
    else if ((offset | bytes) % 4 == 0)
        for (std::size_t word = offset / 4; word < (offset + bytes) / 4; word++) touch(word, 15, running, fresh);
    else
        touch_unaligned(offset, bytes, running, fresh);
}

// Whether a touch is seen at once to come before `fresh`, of the running warp: the block or the warp met since, or
// the same lanes touched the same bytes.
inline bool Checker::settled(const Touch& touch, const Touch& fresh, unsigned warp) const {
    if (touch.newest <= clocks_.floor()) return true;
    if (touch.warps != fresh.warps) return false;
    if (touch.newest <= clocks_.warp_floor(warp)) return true;
    const bool one_lane = (fresh.lanes & (fresh.lanes - 1)) == 0;
    return fresh.mapping() ? touch.mapping() == fresh.mapping()
                           : one_lane && touch.lanes == fresh.lanes && program_ordered(touch.action(), fresh.action());
}

// Adds an access to a record of accesses in the same way, unless it needs a record of its own.
inline bool Checker::joins(Touch& touch, const Touch& fresh, unsigned warp) const {
    if (touch.warps == fresh.warps) {
        if (touch.newest <= clocks_.warp_floor(warp)) {
            touch = fresh;  // it comes after all of these and speaks for them
            return true;
        }
        if (touch.oldest <= clocks_.event(warp)) return false;
    } else if (clocks_.partial() || (fresh.lanes & ~touch.lanes)) {
        return false;  // the record would name lanes of this warp that were elsewhere
    }
    if (touch.site != fresh.site) return false;  // a finding names the line of the other access
    touch.add(fresh);
    return true;
}

// The same for those of the cell's words up to `newest`.
inline bool Checker::words_settled(const Cell& cell, Clocks::Time newest, unsigned warp) const {
    return newest <= clocks_.floor() || (cell.words_warps == 1u << warp && newest <= clocks_.warp_floor(warp));
}

inline bool Checker::clean(const Cell& cell, std::uint32_t states, const Touch& fresh, unsigned warp) const {
    if (!settled(cell.write, fresh, warp)) return false;
    if (writes(fresh.action()))
        return !(states & Cell::all_in_flight) && reads_settled(cell, fresh, warp) &&
               words_settled(cell, cell.words_newest, warp);
    return states == Cell::all_written && words_settled(cell, cell.words_wrote, warp) &&
           (cell.read.action() == fresh.action() || cell.read.newest <= clocks_.floor());
}

inline void Checker::keep(std::size_t number, const Touch& fresh, unsigned warp) {
    Cell& cell = shadow_.cell(number);
    if (writes(fresh.action())) {
        cell.write = fresh;  // it comes after all the others and speaks for them
        cell.read.newest = 0;
        shadow_.set_states(number, shadow_.states(number) | Cell::all_written);
    } else if (cell.read.newest <= clocks_.floor()) {
        cell.read = fresh;
        cell.more_reads = 0;
    } else {
        const bool one_mapping = cell.read.mapping() == fresh.mapping();
        if (!joins(cell.read, fresh, warp))
            keep_beside(cell, fresh, warp);
        else if (!one_mapping)
            cell.read.how = Touch::pack(15, fresh.action());
    }
}

// False when the words must be examined to decide.
inline bool Checker::touch_cell(std::size_t number, const Touch& fresh, const Running& running) {
    const unsigned warp = running.fiber.thread / 32;
    if (is_atomic(running.action) ||
        !clean(shadow_.cell(number), shadow_.states(number), fresh, warp))
        return false;
    keep(number, fresh, warp);
    return true;
}

__attribute__((always_inline)) inline void Checker::touch(std::size_t word, unsigned bytes,
                                                          const Running& running, Touch& fresh) {
    const bool write = writes(running.action);
    fresh.how = Touch::pack(bytes, running.action);
    ChainedTouch& first = shadow_.first(word);
    if (!write && first.newest == fresh.newest && first.how == fresh.how && first.lanes == fresh.lanes &&
        first.warps == fresh.warps)
        return;  // a repetition, with nothing in between
    std::uint8_t& state = shadow_.state(word);
    if (__builtin_expect(write ? state & bytes << 4 : (state & (bytes | bytes << 4)) != bytes, 0))
        if (not_ready(word, bytes, running)) return;
    if (write) state |= std::uint8_t(bytes);
    const unsigned warp = running.fiber.thread / 32;
    Cell& cell = shadow_.cell(word / Cell::words);
    fresh.how = Touch::pack(bytes, running.action, running.mapping);
    if (!settled(cell.write, fresh, warp)) meets_cell(word, cell.write, fresh, running);
    if (write && !reads_settled(cell, fresh, warp)) meets_reads(word, cell, fresh, running);
    fresh.how = Touch::pack(bytes, running.action);
    cell.words_warps = cell.words_newest <= clocks_.floor() ? fresh.warps : cell.words_warps | fresh.warps;
    cell.words_newest = fresh.newest;
    if (write) cell.words_wrote = fresh.newest;
    if (first.newest <= clocks_.floor()) {
        static_cast<Touch&>(first) = fresh;
        first.next = 0;
        first.wrote = write;
    } else if (write || first.wrote || first.how != fresh.how || !joins(first, fresh, warp)) {
        touch_in_company(word, fresh, running);
    }
}

}  // namespace gf_emulator
