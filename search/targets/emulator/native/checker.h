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
    void access(const void* address, unsigned bytes, Action action, const void* site);
    void copy_started(const AsyncCopy& copy);
    void copy_landed(const AsyncCopy& copy);
    void copies_abandoned(const Fiber& fiber);

    // --- what orders accesses ---
    void block_met();
    void cluster_met();
    void lanes_met(unsigned warp, std::uint32_t lanes, bool all_living);
    void publish(Clocks::Row& into) { clocks_.release(block_thread(), into); }
    void fence();
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
    // What each thread published with its last fence.
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

    void touch_shared(std::size_t word, unsigned bytes, const Running& running);
    void touch_in_company(std::size_t word, Touch& first, const Touch& fresh, const Running& running);
    bool ordered(const Touch& touch, const Running& running, unsigned& unordered_lane) const;
    void read_too_early(std::size_t word, unsigned bytes, const Running& running);
    void in_flight(std::size_t word, unsigned bytes, const Running& running);
    void race(std::size_t word, unsigned bytes, const Touch& touch, unsigned lane, const Running& running);
    void global_access(const char* address, unsigned bytes, const Running& running);
    void access_from_cluster(const void* address, unsigned bytes, const Running& running);
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
    std::uint32_t offset_of(const void* site) const;

    Block& block_;
    bool enabled_ = false;
    std::uint64_t index_ = 0;  // of the block in the launch
    Clocks clocks_;
    ShadowMemory shadow_;
    std::vector<Fence> fences_;
    std::unordered_map<const void*, Clocks::Row> released_;  // inside the block, by atomic's address
    const void* access_address_ = nullptr;                   // of the access under way
    unsigned access_bytes_ = 0;
    Suspect suspect_;
    std::unordered_map<std::size_t, std::vector<Remote>> remote_;  // by word, since the cluster last met
    Clocks::Time cluster_met_at_ = 0;
};

}  // namespace gf_emulator
