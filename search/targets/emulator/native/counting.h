// Counted events of one worker. A warp's memory instruction is rebuilt from its lanes: the k-th execution of
// one source site by each lane since the lanes last met is one warp-wide access, judged as the hardware does:
// 32 banks of 4 bytes in phases of 128 bytes for shared memory, sectors of 32 bytes for global memory.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gf_emulator/abi.h"

namespace gf_emulator {

class Warp;

enum class Access : int { shared_read, shared_write, global_read, global_write, shared_float_addition };

// Sums over the accesses of one source site.
struct SiteTotals {
    std::uint64_t instructions = 0;  // warp-wide
    std::uint64_t bytes = 0;
    std::uint64_t wavefronts = 0;  // shared memory only
    std::uint64_t wavefronts_ideal = 0;
    std::uint64_t sectors = 0;  // global memory only
    std::uint64_t sectors_ideal = 0;
    void add(const SiteTotals& other);
};

struct EventTotals {
    std::uint64_t barriers = 0;
    std::uint64_t warp_collectives = 0;
    std::uint64_t special_functions = 0;
    std::uint64_t async_copy_bytes = 0;
    std::uint64_t bulk_copy_bytes = 0;
    std::uint64_t operand_bytes = 0;  // of wgmma, in shared memory
    std::uint64_t mbarrier_operations = 0;
    std::uint64_t copy_rounds = 0;  // of each block, the most phases of one mbarrier that waited for bytes
    std::uint64_t atomics = 0;
    std::uint64_t printfs = 0;
    // Floating-point operations by input and accumulator format.
    std::array<std::uint64_t, 5> matrix_flop{};  // f16 -> f32, bf16 -> f32, f16 -> f16, tf32 -> f32, fp8 -> f32
    std::array<std::uint64_t, 3> wgmma_flop{};  // of warpgroups, by input format: f16, bf16, fp8
    void add(const EventTotals& other);
};

class Counting {
public:
    EventTotals events;

    void enable(bool on) { enabled_ = on; }
    bool enabled() const { return enabled_; }

    // One lane's access; `offset` is relative to the start of its memory.
    void access(unsigned warp, unsigned lane, std::uint64_t offset, unsigned bytes, Access kind,
                const void* site);

    void lanes_agree(const Warp& warp, std::uint32_t arrived);
    void barrier(unsigned warp_count);
    void block_ended(unsigned warp_count);

    using Sites = std::map<std::pair<const void*, Access>, SiteTotals>;
    const Sites& sites() const { return sites_; }
    void clear();

private:
    struct WarpAccess {
        std::uint32_t lanes = 0;
        std::uint32_t bytes = 0;  // a lane
        std::array<std::uint64_t, 32> offset;
    };
    // One site as one warp has executed it since its lanes last met.
    struct Executions {
        std::array<std::uint32_t, 32> by_lane{};
        std::uint64_t unrecorded = 0;  // lane accesses beyond the limit; they count as the recorded ones did
        std::vector<WarpAccess> accesses;
    };
    struct WarpTable {
        std::vector<Executions> by_site;
        std::vector<unsigned> used;
    };
    static constexpr std::size_t recorded_limit = 1 << 14;
    static constexpr std::uintptr_t kinds = 8;  // at least as many as Access has

    unsigned site_number(const void* site, Access kind);
    void grow();
    void flush(WarpTable& table);
    static void judge_shared(const WarpAccess& access, Access kind, SiteTotals& totals);
    static void judge_global(const WarpAccess& access, SiteTotals& totals);

    struct Slot {
        std::uintptr_t key = 0;  // site * kinds + kind
        unsigned number = 0;
    };
    bool enabled_ = false;
    std::vector<Slot> slots_;
    std::vector<std::uintptr_t> keys_;  // by number
    std::array<WarpTable, 32> tables_;
    Sites sites_;
};

}  // namespace gf_emulator
