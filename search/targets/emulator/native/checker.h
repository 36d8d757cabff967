// The checks of one block: every access against what is known of its memory. Everything here speaks of the
// fiber that is running.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "clocks.h"
#include "fiber.h"
#include "findings.h"
#include "global_shadow.h"
#include "shadow_memory.h"

namespace gf_emulator {

class Block;

class Checker {
public:
    explicit Checker(Block& block) : block_(block) {}

    void enable(bool on) { enabled_ = on; }
    bool enabled() const { return enabled_; }
    void start_block(unsigned thread_count, std::uint64_t index);

    // --- called before the access is made ---
    __attribute__((always_inline)) void access(const void* address, unsigned bytes, Action action,
                                               const void* site) {
        settle();
        if (dynamic_.contains(address, bytes))
            touch_words(dynamic_, address, bytes, {**running_, action, site});
        else if (!local_.contains(address, bytes))
            access_elsewhere(address, bytes, action, site);
    }
    void copy_started(const AsyncCopy& copy);
    void copy_landed(const AsyncCopy& copy);
    void copies_abandoned(const Fiber& fiber);

    // --- what orders accesses ---
    void block_met();
    void cluster_met();
    void lanes_met(unsigned warp, std::uint32_t lanes, bool all_living);
    void publish(Clocks::Row& into) { clocks_.release(block_thread(), into); }
    void fence(bool device_wide);
    void before_atomic(const void* address);
    void after_atomic(const void* address);
    Clocks& clocks() { return clocks_; }

    // A store that raced with another lane's of the same instruction is forgiven if it changed nothing; it is
    // judged here, before any other thread or access.
    void settle() {
        if (suspect_.bytes) judge_suspect();
    }

private:
    struct Running {
        const Fiber& fiber;
        Action action;
        const void* site;
    };
    // What each thread published with its last fence: to its block, and to the device as it stood at `time`.
    struct Fence {
        Clocks::Time time = 0, floor = 0;
        Clocks::Row known;
    };
    struct Suspect {
        Finding finding{};
        const char* address = nullptr;
        unsigned bytes = 0;
        char before[64];
    };

    // A range of addresses, and where in shared memory it begins.
    struct Range {
        std::uintptr_t begin = 0;
        std::size_t bytes = 0;
        std::size_t offset = 0;
        bool contains(const void* address, unsigned count) const {
            const std::size_t from = std::uintptr_t(address) - begin;
            return from < bytes && count <= bytes - from;
        }
    };

    void access_elsewhere(const void* address, unsigned bytes, Action action, const void* site);
    void touch_words(const Range& range, const void* address, unsigned bytes, const Running& running);
    void touch_unaligned(std::size_t offset, unsigned bytes, const Running& running, Touch& fresh);
    void touch(std::size_t word, unsigned bytes, const Running& running, Touch& fresh);
    void touch_in_company(std::size_t word, const Touch& fresh, const Running& running);
    bool ordered(const Touch& touch, const Running& running, unsigned& unordered_thread) const;
    // What `thread` knows of `other`; with what its atomics saw, were there a fence after them.
    Clocks::Time known(unsigned thread, unsigned other, bool fenced) const;
    bool not_ready(std::size_t word, unsigned bytes, const Running& running);
    void in_flight(std::size_t word, unsigned bytes, const Running& running);
    void race(std::size_t word, unsigned bytes, const Touch& touch, unsigned thread, const Running& running);
    void global_access(const char* address, unsigned bytes, const Running& running);
    void foreign_access(const void* address, unsigned bytes, const Running& running);
    // Distributed shared memory (checker_cluster.cpp).
    struct Remote {
        Party party;
        unsigned bytes;
    };
    void distributed_access(Block& owner, const void* address, unsigned bytes, const Running& running);
    void touched_from_afar(std::size_t word, unsigned bytes, const Party& accessor);
    void meets_local(std::size_t word, unsigned bytes, const Party& accessor, const Touch& touch);
    void own_meets_remote(std::size_t offset, unsigned bytes, const Running& running);
    void cluster_race(std::size_t word, const Party& one, const Party& other);

    void judge_suspect();
    void suspect(const Finding& finding, const void* address, unsigned bytes);

    unsigned block_thread() const;
    Party party(const Running& running) const;
    Party party(unsigned thread, std::uint32_t site, Action action) const;
    std::uint32_t offset_of(const void* site) const {
        return std::uint32_t(static_cast<const char*>(site) - module_base_);
    }

    Block& block_;
    bool enabled_ = false;
    std::uint64_t index_ = 0;  // of the block in the launch
    Fiber* const* running_ = nullptr;
    const char* module_base_ = nullptr;
    Range dynamic_, static_, local_, input_;  // the last: an input buffer, the last one touched
    Clocks clocks_;
    ShadowMemory shadow_;
    std::vector<Fence> fences_;
    std::unordered_map<const void*, Clocks::Row> released_;  // inside the block, by atomic's address
    std::vector<Clocks::Row> observed_;  // of these, by thread: what its atomics saw since its last fence
    const void* access_address_ = nullptr;                   // of the access under way
    unsigned access_bytes_ = 0;
    Suspect suspect_;
    std::unordered_map<std::size_t, std::vector<Remote>> remote_;  // by word, since the cluster last met
    Clocks::Time cluster_met_at_ = 0;
};

// --- the way of nearly every access ---

__attribute__((always_inline)) inline void Checker::touch_words(const Range& range, const void* address,
                                                                unsigned bytes, const Running& running) {
    const std::size_t offset = std::uintptr_t(address) - range.begin + range.offset;
    if (!remote_.empty()) own_meets_remote(offset, bytes, running);
    Touch fresh;
    fresh.newest = fresh.oldest = clocks_.now();
    fresh.warps = 1u << running.fiber.thread / 32;
    fresh.lanes = 1u << running.fiber.lane;
    fresh.site = offset_of(running.site);
    access_address_ = address, access_bytes_ = bytes;
    if (offset % 4 + bytes <= 4)
        touch(offset / 4, ((1u << bytes) - 1u) << offset % 4, running, fresh);
    else if ((offset | bytes) % 4 == 0)
        for (std::size_t word = offset / 4; word < (offset + bytes) / 4; word++) touch(word, 15, running, fresh);
    else
        touch_unaligned(offset, bytes, running, fresh);
}

__attribute__((always_inline)) inline void Checker::touch(std::size_t word, unsigned bytes,
                                                          const Running& running, Touch& fresh) {
    const bool write = writes(running.action);
    std::uint8_t& state = shadow_.state(word);
    if (__builtin_expect(write ? state & bytes << 4 : (state & (bytes | bytes << 4)) != bytes, 0))
        if (not_ready(word, bytes, running)) return;
    if (write) state |= std::uint8_t(bytes);
    fresh.how = Touch::pack(bytes, running.action);
    Touch& first = shadow_.first(word);
    if (first.newest <= clocks_.floor())
        first = fresh;
    else if (!write && first.next == 0 && first.how == fresh.how)
        first.add(fresh, first.warps == fresh.warps &&
                             first.newest <= clocks_.warp_floor(running.fiber.thread / 32));
    else
        touch_in_company(word, fresh, running);
}

}  // namespace gf_emulator
