// Who knows of whose accesses. An access carries the time at which it was made; it comes before what a thread does next
// when that thread knows of its maker up to that time.
#include "clocks.h"

#include "claims.h"

using namespace gf_emulator;

namespace {

// An access by `maker` now, in the form of a question: does `thread` know of it yet?
struct Access {
    Clocks::Time time;
    unsigned maker;
    Access(Clocks& clocks, unsigned maker) : time(clocks.now()), maker(maker) {}
    bool known_to(const Clocks& clocks, unsigned thread) const { return time <= clocks.known(thread, maker); }
};

constexpr unsigned threads = 96;

Clocks started() {
    Clocks clocks;
    clocks.start_block(threads);
    return clocks;
}

}  // namespace

CASE(nobody_knows_of_anything_without_meeting) {
    Clocks clocks = started();
    const Access access(clocks, 0);
    for (unsigned thread = 1; thread < threads; thread++) CLAIM(!access.known_to(clocks, thread));
}

CASE(after_the_blocks_barrier_everybody_knows_all_that_was_before) {
    Clocks clocks = started();
    const Access before(clocks, 5);
    clocks.block_met();
    const Access after(clocks, 5);
    for (unsigned thread = 0; thread < threads; thread++) {
        CLAIM(before.known_to(clocks, thread));
        CLAIM(thread == 5 || !after.known_to(clocks, thread));
    }
}

CASE(a_warp_that_meets_knows_of_its_own_lanes_only) {
    Clocks clocks = started();
    const Access own(clocks, 33), other(clocks, 70);
    clocks.lanes_met(1, ~0u, true);
    const Access after(clocks, 33);
    for (unsigned thread = 32; thread < 64; thread++)
        CLAIM(own.known_to(clocks, thread) && !other.known_to(clocks, thread));
    CLAIM(!own.known_to(clocks, 0) && !own.known_to(clocks, 64) && !after.known_to(clocks, 34));
}

CASE(lanes_of_a_partial_mask_know_of_each_other_only) {
    Clocks clocks = started();
    const Access low(clocks, 3), high(clocks, 20);
    clocks.lanes_met(0, 0xffffu, false);
    CLAIM(low.known_to(clocks, 15) && !low.known_to(clocks, 16));
    CLAIM(!high.known_to(clocks, 3) && !high.known_to(clocks, 21));
    clocks.lanes_met(0, ~0u, true);
    CLAIM(low.known_to(clocks, 31) && high.known_to(clocks, 0));
}

CASE(what_is_released_is_known_to_who_acquires_it) {
    Clocks clocks = started();
    Clocks::Row flag;
    const Access before(clocks, 0);
    clocks.release(0, flag);
    const Access after(clocks, 0);
    clocks.acquire(40, flag);
    CLAIM(before.known_to(clocks, 40) && !after.known_to(clocks, 40) && !before.known_to(clocks, 41));
}

CASE(knowledge_is_handed_on) {
    Clocks clocks = started();
    const Access first(clocks, 0);
    clocks.lanes_met(0, ~0u, true);
    Clocks::Row flag, next;
    clocks.release(7, flag);                 // lane 7 knows of lane 0
    clocks.acquire(40, flag);
    const Access second(clocks, 40);
    clocks.release(40, next);
    clocks.acquire(80, next);
    CLAIM(first.known_to(clocks, 80) && second.known_to(clocks, 80) && !first.known_to(clocks, 81));
    clocks.lanes_met(2, ~0u, true);
    CLAIM(first.known_to(clocks, 95) && second.known_to(clocks, 64) && !second.known_to(clocks, 0));
}

CASE(several_threads_release_into_one_flag) {
    Clocks clocks = started();
    Clocks::Row flag;
    const Access one(clocks, 1);
    clocks.release(1, flag);
    const Access two(clocks, 50);
    clocks.release(50, flag);
    clocks.acquire(90, flag);
    CLAIM(one.known_to(clocks, 90) && two.known_to(clocks, 90) && !one.known_to(clocks, 50));
}

CASE(a_new_block_begins_with_all_of_the_last_one_behind_it) {
    Clocks clocks = started();
    Clocks::Row flag;
    clocks.release(1, flag);
    clocks.acquire(2, flag);
    const Access last(clocks, 1);
    clocks.start_block(threads);
    CLAIM(last.known_to(clocks, 60));
    const Access fresh(clocks, 1);
    CLAIM(!fresh.known_to(clocks, 2));
}
