// The barrier of a whole grid (cooperative groups' grid.sync): the blocks meet, and one thread of each waits for the
// others as a thread that reads a flag does.
#include "worker.h"

using namespace gf_emulator;

extern "C" void gf_emulator_grid_barrier(int line) {
    Worker& worker = Worker::current();
    Block& block = worker.block();
    Fiber& self = block.current();
    const void* site = __builtin_return_address(0);
    const Launch& launch = worker.launch();
    block.barrier().meet(block, self, BarrierOperation::sync, false, line, site);
    if (self.thread == 0) {
        Checker* checker = worker.checker();
        if (checker) {
            checker->fence(true);
            checker->before_atomic(&launch.grid_phase, false);
        }
        const std::uint32_t phase = launch.grid_phase;
        if (++launch.grid_arrived == launch.blocks_total) {
            launch.grid_arrived = 0;
            launch.grid_phase++;
            block.progresses();
        }
        while (launch.grid_phase == phase) block.reads_flag(&launch.grid_phase, sizeof phase, phase, site);
        if (checker) {
            checker->after_atomic(&launch.grid_phase, false);
            checker->fence(true);
        }
    }
    block.barrier().meet(block, self, BarrierOperation::sync, false, line, site);
}
