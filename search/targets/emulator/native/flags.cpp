// Relaxed loads and stores of flags: what PTX calls ld.relaxed and st.relaxed, and cuda::atomic its load and store. The
// checks know them as volatile ones (hooks.cpp); these work in every build.
#include <cstring>

#include "worker.h"

using namespace gf_emulator;

namespace {

std::uint64_t value_at(const void* address, unsigned bytes) {
    switch (bytes) {
        case 1: return __atomic_load_n(static_cast<const std::uint8_t*>(address), __ATOMIC_SEQ_CST);
        case 2: return __atomic_load_n(static_cast<const std::uint16_t*>(address), __ATOMIC_SEQ_CST);
        case 4: return __atomic_load_n(static_cast<const std::uint32_t*>(address), __ATOMIC_SEQ_CST);
        default: return __atomic_load_n(static_cast<const std::uint64_t*>(address), __ATOMIC_SEQ_CST);
    }
}

void check_alignment(Worker& worker, const void* address, unsigned bytes, const void* site) {
    worker.fiber().site = site;
    if (std::uintptr_t(address) % bytes)
        worker.fail("misaligned", site,
                    format("an access of %u bytes at an address that is not a multiple of %u", bytes, bytes));
}

}  // namespace

extern "C" std::uint64_t gf_emulator_flag_load(const void* address, unsigned bytes, bool block_wide) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    check_alignment(worker, address, bytes, site);
    if (in_live_frames(address, bytes)) return value_at(address, bytes);
    Checker* checker = worker.checker();
    const Action action = block_wide ? Action::block_volatile_read : Action::volatile_read;
    if (checker) checker->access(address, bytes, action, site);
    if (worker.counting().enabled()) worker.count_access(address, bytes, false, site);
    worker.block().reads_flag(address, bytes, value_at(address, bytes), site);
    const std::uint64_t value = value_at(address, bytes);
    if (checker) checker->after_atomic(address, block_wide);
    return value;
}

extern "C" void gf_emulator_flag_store(void* address, unsigned bytes, std::uint64_t value, bool block_wide) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    check_alignment(worker, address, bytes, site);
    if (!in_live_frames(address, bytes)) {
        if (Checker* checker = worker.checker()) {
            worker.block().pause_before_flag(address);
            checker->before_volatile_store(address, block_wide);  // first: it settles what came before
            checker->access(address, bytes, block_wide ? Action::block_volatile_write : Action::volatile_write, site);
        }
        if (worker.counting().enabled()) worker.count_access(address, bytes, true, site);
        worker.block().progresses();
    }
    switch (bytes) {
        case 1: __atomic_store_n(static_cast<std::uint8_t*>(address), std::uint8_t(value), __ATOMIC_SEQ_CST); break;
        case 2: __atomic_store_n(static_cast<std::uint16_t*>(address), std::uint16_t(value), __ATOMIC_SEQ_CST); break;
        case 4: __atomic_store_n(static_cast<std::uint32_t*>(address), std::uint32_t(value), __ATOMIC_SEQ_CST); break;
        default: __atomic_store_n(static_cast<std::uint64_t*>(address), value, __ATOMIC_SEQ_CST); break;
    }
}

extern "C" void* gf_emulator_shared_pointer(unsigned offset) {
    Worker& worker = Worker::current();
    char* const address = worker.shared().at(offset);
    if (!address)
        worker.fail("out_of_bounds", __builtin_return_address(0),
                    format("shared memory has no address %u; the block has %zu bytes", offset, worker.shared().bytes()));
    return address;
}
