// What kernels call for their coordinates, barriers, atomics and the rest that needs no warp.
#include <ctime>

#include "worker.h"

#define SITE __builtin_return_address(0)

using namespace gf_emulator;

extern "C" {

uint3 gf_emulator_thread_index() { return Worker::current().fiber().thread_index; }
uint3 gf_emulator_block_index() { return Worker::current().block().block_index(); }
uint3 gf_emulator_block_size() { return Worker::current().launch().block; }
uint3 gf_emulator_grid_size() { return Worker::current().launch().grid; }
unsigned gf_emulator_lane() { return Worker::current().fiber().lane; }
unsigned gf_emulator_multiprocessor() {
    const Worker& worker = Worker::current();
    const uint3 at = gf_emulator_block_index(), grid = worker.launch().grid;
    return worker.launch().order.multiprocessor((std::uint64_t(at.z) * grid.y + at.y) * grid.x + at.x);
}

unsigned gf_emulator_warp_slot() {
    Worker& worker = Worker::current();
    return worker.launch().order.warp_slot(worker.fiber().thread / 32);
}

int gf_emulator_block_barrier(BarrierOperation operation, int predicate, int line) {
    Block& block = Worker::current().block();
    return block.barrier().meet(block, block.current(), operation, predicate != 0, line, SITE);
}

void gf_emulator_named_barrier(unsigned id, unsigned thread_count, bool wait) {
    Block& block = Worker::current().block();
    block.named_barriers().meet(block, block.current(), id, thread_count, wait, SITE);
}

void gf_emulator_tile_barrier(unsigned threads) {
    Block& block = Worker::current().block();
    block.named_barriers().meet_tile(block, block.current(), threads, SITE);
}

void gf_emulator_fence(bool device_wide) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (Checker* checker = Worker::current().checker()) checker->fence(device_wide);
}

void gf_emulator_yield() { Worker::current().block().pause(); }

void* gf_emulator_dynamic_shared() { return Worker::current().shared().dynamic(); }
bool gf_emulator_is_shared(const void* pointer) { return Worker::current().shared().contains(pointer); }

std::size_t gf_emulator_shared_offset(const void* pointer) {
    Worker& worker = Worker::current();
    if (!worker.shared().contains(pointer))
        worker.fail("device_fault", SITE,
                    "__cvta_generic_to_shared is given an address outside shared memory");
    return worker.shared().offset(pointer);
}

void gf_emulator_special_function() { Worker::current().counting().events.special_functions++; }

int gf_emulator_printf() {
    Worker::current().counting().events.printfs++;
    return 0;
}

long long gf_emulator_clock() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void gf_emulator_trap(const char* reason) {
    Worker::current().fail("device_fault", SITE, format("the kernel stops itself: %s", reason));
}

}  // extern "C"
