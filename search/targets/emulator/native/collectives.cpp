// Shuffles, votes and reductions: each lane publishes a value, the last to arrive computes everyone's result.
#include "worker.h"

namespace gf_emulator {

namespace {

// PTX ISA, "shfl.sync": the lane read from, or the lane itself where the source lies outside its segment.
int source_lane(const Fiber& fiber, Collective kind) {
    const int lane = int(fiber.lane), first = lane & ~(fiber.width - 1);
    const int argument = fiber.lane_argument & 31;  // the device looks at five bits
    switch (kind) {
        case Collective::shuffle_index: return first + (argument & (fiber.width - 1));
        case Collective::shuffle_up: return lane - argument >= first ? lane - argument : lane;
        case Collective::shuffle_down: return lane + argument < first + fiber.width ? lane + argument : lane;
        // Lower segments may be read, higher ones not.
        default: return (lane ^ argument) < first + fiber.width ? lane ^ argument : lane;
    }
}

void complete_shuffle(Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
    worker.counting().events.warp_collectives++;
    for (std::uint32_t left = arrived; left; left &= left - 1) {
        Fiber& fiber = warp.lane(__builtin_ctz(left));
        const int source = source_lane(fiber, kind);
        if (arrived >> source & 1) {
            fiber.result = warp.lane(source).value;
        } else {
            fiber.result = worker.launch().undefined;
            if (Checker* checker = worker.checker()) checker->undefined_shuffle(fiber, source);
            worker.note(
                "undefined_shuffle", fiber.site,
                format("lane %u reads lane %d, which takes no part in the shuffle", fiber.lane, source));
        }
    }
}

void complete_match(Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
    worker.counting().events.warp_collectives++;
    for (std::uint32_t left = arrived; left; left &= left - 1) {
        Fiber& fiber = warp.lane(__builtin_ctz(left));
        fiber.result = 0;
        for (std::uint32_t others = arrived; others; others &= others - 1) {
            const unsigned lane = __builtin_ctz(others);
            if (warp.lane(lane).value == fiber.value) fiber.result |= 1u << lane;
        }
    }
}

std::uint32_t fold(std::uint32_t sum, std::uint32_t value, Collective kind) {
    switch (kind) {
        case Collective::reduce_add: return sum + value;
        case Collective::reduce_min_signed: return std::int32_t(value) < std::int32_t(sum) ? value : sum;
        case Collective::reduce_max_signed: return std::int32_t(value) > std::int32_t(sum) ? value : sum;
        case Collective::reduce_min_unsigned: return value < sum ? value : sum;
        case Collective::reduce_max_unsigned: return value > sum ? value : sum;
        case Collective::all:
        case Collective::reduce_and: return sum & value;
        case Collective::any:
        case Collective::reduce_or: return sum | value;
        default: return sum ^ value;
    }
}

// Votes and reductions give every lane the same value.
void complete_reduction(Worker& worker, Warp& warp, std::uint32_t arrived, Collective kind) {
    worker.counting().events.warp_collectives++;
    const unsigned first = __builtin_ctz(arrived);
    std::uint32_t result = std::uint32_t(warp.lane(first).value);
    if (kind == Collective::ballot) result <<= first;
    for (std::uint32_t left = arrived & (arrived - 1); left; left &= left - 1) {
        const unsigned lane = __builtin_ctz(left);
        const std::uint32_t value = std::uint32_t(warp.lane(lane).value);
        result = kind == Collective::ballot ? result | value << lane : fold(result, value, kind);
    }
    for (std::uint32_t left = arrived; left; left &= left - 1) warp.lane(__builtin_ctz(left)).result = result;
}

void complete_sync(Worker& worker, Warp&, std::uint32_t, Collective) {
    worker.counting().events.warp_collectives++;
}

Warp::Complete completion_of(Collective kind) {
    switch (kind) {
        case Collective::sync_warp: return complete_sync;
        case Collective::shuffle_index:
        case Collective::shuffle_up:
        case Collective::shuffle_down:
        case Collective::shuffle_xor: return complete_shuffle;
        case Collective::match_any: return complete_match;
        default: return complete_reduction;
    }
}

}  // namespace

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" std::uint64_t gf_emulator_warp_collective(unsigned mask, Collective kind, std::uint64_t value,
                                                     int lane_argument, int width) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    Fiber& self = worker.fiber();
    if (width < 1 || width > 32 || (width & (width - 1)))
        worker.fail("divergence", site,
                    format("a shuffle's width is %d; it must be a power of two up to 32", width));
    self.value = value;
    self.lane_argument = lane_argument;
    self.width = width;
    self.warp->meet(self, mask, kind, completion_of(kind), site);
    return self.result;
}

extern "C" unsigned gf_emulator_active_mask() {
    Fiber& self = Worker::current().fiber();
    return self.warp->active_mask(self, __builtin_return_address(0));
}
