// setmaxnreg (PTX ISA, "Miscellaneous Instructions: setmaxnreg"): a warp's registers, out of its block's pool. The block
// is taken to be alone on its multiprocessor, and to have started with an even share for each thread.
#include <algorithm>

#include "worker.h"

namespace gf_emulator {

namespace {
constexpr unsigned registers_of_multiprocessor = 65536, most_of_thread = 255;
}

void RegisterBudget::start_block(unsigned thread_count) {
    const unsigned share = std::min(registers_of_multiprocessor / std::max(thread_count, 1u), most_of_thread) / 8 * 8;
    of_warp_.fill(share);
    is_set_.fill(false);
    grown_ = nullptr;
    share_ = share;
    warps_ = (thread_count + 31) / 32;
}

void RegisterBudget::set(Block& block, unsigned warp, unsigned registers, bool grow, const void* site) {
    Worker& worker = block.worker();
    // The compiler may have given the kernel less than its share, so only a warp's own call tells what it has.
    if (is_set_[warp] && (grow ? registers < of_warp_[warp] : registers > of_warp_[warp]))
        worker.fail("device_fault", site,
                    format("warp %u %s its registers to %u, and has %u a thread", warp, grow ? "grows" : "shrinks", registers,
                           of_warp_[warp]));
    of_warp_[warp] = registers;
    is_set_[warp] = true;
    grown_ = grow ? site : grown_;
}

void RegisterBudget::finish(Block& block) {
    unsigned all = 0;
    for (unsigned warp = 0; warp < warps_; warp++) all += of_warp_[warp];
    if (all <= share_ * warps_ || !grown_) return;
    Fault fault{"deadlock",
                format("the block's warps ask for %u registers, and its pool holds %u: gf::register_grow waits for ever",
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
