// The errors of a checked run: each pair of source sites is reported once, when it first occurs, and counted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gf_emulator/vector_types.h"

namespace gf_emulator {

// How an access touches memory. A *matrix* access is wmma's, ldmatrix's or stmatrix's: the warp's as a whole.
// Atomics, relaxed loads and relaxed stores of the scope of a block are kinds of their own; volatile ones are relaxed
// with a wider scope.
enum class Action : unsigned {
    read,
    write,
    atomic,
    copy,
    matrix_read,
    matrix_write,
    volatile_read,
    volatile_write,
    block_atomic,
    bulk_write,   // the asynchronous proxy's: bulk and tensor copies, and wgmma's operands
    bulk_read,
    wgmma_read,
    barrier,      // an mbarrier's own state
    block_volatile_read,   // relaxed ones of the scope of a block
    block_volatile_write,
    bulk_load,  // the asynchronous proxy's read of global memory
};

inline bool writes(Action action) {
    constexpr unsigned reading = 1u << unsigned(Action::read) | 1u << unsigned(Action::matrix_read) |
                                 1u << unsigned(Action::volatile_read) | 1u << unsigned(Action::bulk_read) |
                                 1u << unsigned(Action::wgmma_read) | 1u << unsigned(Action::block_volatile_read) |
                                 1u << unsigned(Action::bulk_load);
    return !(reading >> unsigned(action) & 1u);
}
inline bool is_atomic(Action action) { return action == Action::atomic || action == Action::block_atomic; }
inline bool of_block(Action action) {
    return action == Action::block_atomic || action == Action::block_volatile_read || action == Action::block_volatile_write;
}
inline bool loads_volatile(Action action) {
    return action == Action::volatile_read || action == Action::block_volatile_read;
}
inline bool stores_volatile(Action action) {
    return action == Action::volatile_write || action == Action::block_volatile_write;
}
inline bool is_volatile(Action action) { return loads_volatile(action) || stores_volatile(action); }
// Whether a thread that read a flag with an atomic sees the data that the flag guards without a fence of its own:
// accesses that bypass the first-level cache do (PTX ISA, "Memory Consistency Model", requires the fence; the sum
// in CUDA's "Memory Fence Functions" reads volatile memory without one).
inline bool needs_no_fence(Action action) { return loads_volatile(action) || is_atomic(action); }
inline bool stores(Action action) { return action == Action::write || stores_volatile(action); }
inline bool of_matrix(Action action) {
    return action == Action::matrix_read || action == Action::matrix_write;
}
const char* name_of(Action action);
inline bool reads_beside_atomics(Action one, Action other) { return one == Action::read && is_atomic(other); }

// A race's detail: a fence after the atomic of the second access's thread would order the two.
constexpr const char* no_reading_fence = "no fence on the reading side";

// A volatile store's detail, after an atomic. In the sentence it follows the store; {other} is the atomic.
constexpr const char* overwrites_an_update =
    "async:and so overwrites the update by {other}, which this thread has not read: nothing orders the two";

// A volatile or atomic read's detail, of a word that held nothing before the launch.
constexpr const char* may_come_first =
    "async:which may come before {other}, the only write of these bytes: no fence and flag order the two";

// An uninitialised read's detail: of a `__device__` object that the run reads, and then leaves changed.
constexpr const char* carried_from_call_to_call = "carried from call to call";

// Details of the asynchronous proxy's findings. In the sentence they follow the access; {other} is the other party.
constexpr const char* copy_is_under_way =
    "async:while {other} to it is under way: nothing that this thread waited for tells that the copy is complete";
constexpr const char* store_ends_late =
    "async:and may do so only after {other}: no gf::bulk_wait() (cp.async.bulk.wait_group) of the storing thread orders "
    "the two";
constexpr const char* store_is_under_way =
    "async:while {other} may be under way: no gf::bulk_wait() (cp.async.bulk.wait_group) of the storing thread orders "
    "the two";
constexpr const char* copy_reads_late =
    "async:and may do so as late as its thread waits for this cp.async, after {other} has overwritten them";
constexpr const char* operand_is_in_use =
    "async:while {other} may still read it: nothing that this thread waited for tells that it is done";
constexpr const char* no_proxy_fence =
    "async:while {other} may be invisible to the asynchronous proxy: no gf::proxy_fence_shared() (fence.proxy.async) lies between the two";

// The other party belongs to the launch before.
constexpr const char* launch_is_under_way =
    "async:while the launch before, which does so at {other}, may be under way: no gf::dependent_launch_wait() "
    "(griddepcontrol.wait) comes first";
constexpr const char* older_launch_is_under_way =
    "async:while the launch before the last, which does so at {other}, may be under way: the last one has started early "
    "and has no gf::dependent_launch_wait() (griddepcontrol.wait)";
constexpr const char* no_global_proxy_fence =
    "async:while {other} may be invisible to the asynchronous proxy: no gf::proxy_fence() (fence.proxy.async) lies between the two";

// One side of a finding.
struct Party {
    Action action = Action::read;
    uint3 block{};
    uint3 thread{};
    const void* site = nullptr;  // null: there is no such side
};

struct Finding {
    const char* kind;    // the words of Finding.kind in runs.py
    std::string memory;  // "shared", "global:NAME", "device:NAME", "constant:NAME" or empty
    long offset = 0;     // in that memory
    unsigned bytes = 0;
    Party party{};
    Party other{};
    std::string detail{};  // beyond the two parties
};

class Findings {
public:
    void start_run();
    void add(const Finding& finding);
    // A plain read beside atomics is no race where its value is only what its thread's next atomic, a compare-and-swap of
    // the same word, expects (the CUDA C++ Programming Guide writes other atomics so): an old value costs one more round.
    // Such findings wait for what the threads that read at `site` do next.
    void swap_follows(const void* site, bool follows);
    // Adds those that no compare-and-swap has explained.
    void end_run();
    // The number of occurrences of each finding, in the order of reports: the members of a JSON array.
    std::string counts() const;

private:
    static constexpr std::size_t kept = 256;  // source sites; fewer source lines

    using Key = std::tuple<std::string, const void*, const void*>;
    // Of a site that reads plainly beside atomics.
    struct Expected {
        bool explained = false, refuted = false;
        std::vector<Finding> waiting;
    };
    void keep(const Finding& finding);
    void announce(const Finding& finding, const void* reader);

    mutable std::mutex mutex_;
    std::map<const void*, Expected> expected_;
    std::set<Key> announced_;  // of those that wait: they are reported as such, so that no death of the process loses them
    std::map<Key, std::size_t> numbers_;
    std::map<std::size_t, std::uint64_t> counts_;
};

Findings& findings();

}  // namespace gf_emulator
