// The block's mbarriers (PTX ISA, "mbarrier"): each counts a phase's arrivals and the bytes of asynchronous copies. A
// phase is over when all arrivals and bytes that it expects have come; the next begins at once.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "async_shadow.h"
#include "clocks.h"
#include "fiber.h"

namespace gf_emulator {

class Block;

class Mbarriers {
public:
    void start_block() {
        barriers_.clear();
        most_fills_ = 0;
    }

    void init(Block& block, Fiber& fiber, void* address, unsigned arrivals, const void* site);
    void invalidate(Block& block, Fiber& fiber, void* address, const void* site);
    // From now on other threads' copies and the cluster may use what the thread has initialised.
    void init_fence(Block& block, const Fiber& fiber);
    // `from` is the block of the arriving fiber: `block`, or another of its cluster.
    void arrive(Block& block, Block& from, Fiber& fiber, void* address, const void* site);
    // The arrival comes when the fiber's copies until now are done (cp.async.mbarrier.arrive). `adds`: it is one more
    // than the phase expects so far.
    void arrive_with_copies(Block& block, Fiber& fiber, void* address, bool adds, const void* site);
    // The last arrival of this thread: later phases expect one less.
    void arrive_and_drop(Block& block, Fiber& fiber, void* address, const void* site);
    // Of the current phase. Orders nothing.
    unsigned parity(Block& block, Fiber& fiber, void* address, const void* site);
    void expect_bytes(Block& block, Block& from, Fiber& fiber, void* address, unsigned bytes, const void* site);
    // True when the phase of `parity` is over; the running fiber then knows what was done before.
    bool try_wait(Block& block, Fiber& fiber, void* address, unsigned parity, const void* site);
    void wait(Block& block, Fiber& fiber, void* address, unsigned parity, const void* site);

    // Of a copy that the fiber of block `from` issues: what its end is known by. Null without checks.
    std::shared_ptr<Completion> completion_of_copy(Block& block, Block& from, Fiber& fiber, void* address,
                                                   const void* site);
    // Bytes of an asynchronous store, or that no copy brings. `releases`: with what the fiber did before.
    void complete_bytes(Block& block, Block& from, Fiber& fiber, void* address, unsigned bytes, bool releases,
                        const void* site);
    // A part of a copy has landed.
    void bytes_landed(Block& block, void* address, unsigned bytes);

    // What the fiber waits for, for a report.
    std::string describe(const Block& block, const Fiber& fiber) const;
    // After the block's last thread.
    void finish(Block& block);

private:
    struct CopyArrival {
        Fiber* fiber;
        unsigned number;  // of the fiber's arrivals with copies
        const void* site;
    };
    // Bytes that a thread expects in a phase. The phase may end before where no arrival comes after that.
    struct Expectation {
        Fiber* fiber;
        Clocks::Time time;
        const void* site;
    };
    struct Barrier {
        unsigned expected = 0;  // arrivals of a phase
        unsigned pending = 0;   // of this phase
        long bytes = 0;         // expected and not landed yet
        std::uint64_t phase = 0;  // those that are over
        Fiber* initialiser = nullptr;
        Clocks::Time initialised = 0, fenced = 0;  // 0: by no mbarrier_init_fence
        const void* init_site = nullptr;
        Clocks::Row published, known;  // what those who arrived knew: in this phase, and in the last
        std::vector<Clocks::Row> published_afar, known_afar;  // of other blocks' threads, by rank
        bool has_remote = false, known_remote = false;
        std::shared_ptr<Completion> completion, last_completion;  // of this phase, and of the last
        std::vector<unsigned> came, came_before;  // threads, of this phase and of the last; -1u: another block's
        const void* expect_site = nullptr;
        Fiber* expecting = nullptr;
        std::vector<Expectation> open;  // those after which nobody has arrived yet
        Fiber* arrived_last = nullptr;
        const void* arrival_site = nullptr;
        std::vector<Fiber*> waiting;
        std::vector<std::uint64_t> seen;  // by thread: the phases of which it has waited for the last
        std::vector<CopyArrival> with_copies;  // of those pending
        bool is_filling = false;               // the phase expects bytes
        unsigned fills = 0;                    // phases that did and are over
    };

    Barrier& at(Block& block, Block& from, Fiber& fiber, void* address, const char* operation, const void* site);
    void land_copies(Block& block, Barrier& barrier);
    void complete_if_all_came(Block& block, Barrier& barrier, std::size_t offset);
    void report_early_completion(Block& block, const Barrier& barrier);
    void release(Block& block, Block& from, Barrier& barrier, Fiber& fiber, const void* address, const void* site);
    // One arrival less is pending, by the fiber, or by another block where `remote`.
    void count_arrival(Block& block, Block& from, Barrier& barrier, Fiber& fiber, std::size_t offset, const void* site);
    void report_open_expectations(Block& block, Barrier& barrier, std::size_t offset);

    std::map<std::size_t, Barrier> barriers_;  // by offset in shared memory
    unsigned most_fills_ = 0;  // of one barrier of the block
};

}  // namespace gf_emulator
