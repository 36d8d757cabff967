// setmaxnreg (PTX ISA, "Miscellaneous Instructions: setmaxnreg"): a warp's registers, out of its block's pool. The block
// is taken to be alone on its multiprocessor, and to have started with an even share for each thread.
#include <algorithm>

#include "worker.h"

namespace gf_emulator {

namespace {
constexpr unsigned registers_of_multiprocessor = 65536, most_of_thread = 255, warps_of_group = 4;
}

void RegisterBudget::start_block(unsigned thread_count) {
    const unsigned share = std::min(registers_of_multiprocessor / std::max(thread_count, 1u), most_of_thread) / 8 * 8;
    of_warp_.fill(share);
    for (auto& calls : calls_) calls.clear();
    grown_ = nullptr;
    share_ = share;
    warps_ = (thread_count + 31) / 32;
}

void RegisterBudget::set(Block& block, unsigned warp, unsigned registers, bool grow, const void* site) {
    Worker& worker = block.worker();
    // The compiler may have given the kernel less than its share, so only a warp's own call tells what it has.
    if (!calls_[warp].empty() && (grow ? registers < of_warp_[warp] : registers > of_warp_[warp]))
        worker.fail("device_fault", site,
                    format("warp %u %s its registers to %u, and has %u a thread", warp, grow ? "grows" : "shrinks",
                           registers, of_warp_[warp]));
    of_warp_[warp] = registers;
    calls_[warp].push_back({registers, grow, site});
    grown_ = grow ? site : grown_;
}

// PTX ISA, "setmaxnreg": .aligned asks it of all threads of the warpgroup.
bool RegisterBudget::whole_warpgroups(Block& block) const {
    for (unsigned warp = 0; warp < warps_; warp++) {
        const unsigned first = warp / warps_of_group * warps_of_group;
        const std::vector<Call>&calls = calls_[warp], &others = calls_[first];
        std::size_t same = 0;
        while (same < calls.size() && same < others.size() && calls[same].same_as(others[same])) same++;
        if (same == calls.size() && same == others.size()) continue;
        const bool first_calls = same < others.size();
        const Call& call = first_calls ? others[same] : calls[same];
        const unsigned caller = first_calls ? first : warp, other = first_calls ? warp : first;
        Fault fault{"divergence",
                    format("warp %u sets its registers to %u, and warp %u of the same warpgroup does not: all its warps run "
                           "the same gf::register_%s (setmaxnreg)", caller, call.registers, other, call.grow ? "grow" : "shrink"),
                    block.block_index()};
        fault.site = call.site;
        block.worker().record(std::move(fault));
        return false;
    }
    return true;
}

void RegisterBudget::finish(Block& block) {
    if (!whole_warpgroups(block)) return;
    unsigned all = 0;
    for (unsigned warp = 0; warp < warps_; warp++) all += of_warp_[warp];
    if (all <= share_ * warps_ || !grown_) return;
    Fault fault{"deadlock",
                format("the block's warps ask for %u registers, and its pool holds %u: gf::register_grow (setmaxnreg.inc) waits for ever",
                       all * 32, share_ * warps_ * 32),
                block.block_index()};
    fault.site = grown_;
    block.worker().record(std::move(fault));
}

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" void gf_emulator_set_registers(unsigned registers, bool grow) {
    Fiber& self = Worker::current().fiber();
    self.value = registers | unsigned(grow) << 16;
    self.warp->meet(self, ~0u, Collective::set_registers, [](Worker& worker, Warp& warp, std::uint32_t arrived, Collective) {
        const Fiber& first = warp.lane(unsigned(__builtin_ctz(arrived)));
        for (unsigned lane = 0; lane < 32; lane++)
            if (arrived != ~0u || warp.lane(lane).value != first.value)
                worker.fail("divergence", first.site, "setmaxnreg needs all 32 lanes of its warp, with one number");
        worker.block().register_budget().set(worker.block(), warp.index(), unsigned(first.value & 0xffff),
                                             first.value >> 16 & 1, first.site);
    }, __builtin_return_address(0));
}
