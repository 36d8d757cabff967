// cp.async. The device may land the bytes at any time between issue and wait; here the destination turns to
// poison at the issue and to data at the wait, so both too early a read and too early an overwrite show in
// the result.
#include <cstring>

#include "copy_landing.h"
#include "worker.h"

using namespace gf_emulator;

namespace {

void check(Worker& worker, const void* destination, const void* source, int bytes, int valid_bytes,
           const void* site) {
    if (!worker.shared().contains(destination))
        worker.fail("device_fault", site, "an asynchronous copy's destination is not in shared memory");
    if (bytes != 4 && bytes != 8 && bytes != 16)
        worker.fail("device_fault", site, format("an asynchronous copy of %d bytes; it has 4, 8 or 16", bytes));
    if (std::uintptr_t(destination) % bytes || (valid_bytes && std::uintptr_t(source) % bytes))
        worker.fail("misaligned", site,
                    format("an asynchronous copy of %d bytes between addresses that are not multiples of %d",
                           bytes, bytes));
    if (valid_bytes < 0 || valid_bytes > bytes)
        worker.fail("device_fault", site,
                    format("an asynchronous copy of %d bytes with %d valid ones", bytes, valid_bytes));
}

// A source outside its buffer faults here, where the copy was written, and not at some later wait.
void probe(const char* source, int valid_bytes) {
    if (valid_bytes == 0) return;
    static_cast<void>(*static_cast<const volatile char*>(source));
    static_cast<void>(*static_cast<const volatile char*>(source + valid_bytes - 1));
}

}  // namespace

extern "C" void gf_emulator_async_copy(void* shared_destination, const void* global_source, int bytes,
                                       int valid_bytes) {
    Worker& worker = Worker::current();
    const void* site = __builtin_return_address(0);
    Fiber& self = worker.fiber();
    self.site = site;
    check(worker, shared_destination, global_source, bytes, valid_bytes, site);
    const char* source = static_cast<const char*>(global_source);
    AsyncCopy copy{static_cast<char*>(shared_destination), source, bytes, valid_bytes, self.copy_group, site, 0, 0};
    if (Checker* checker = worker.checker()) {
        if (!worker.shared().contains(copy.destination + bytes - 1))
            checker->access(copy.destination, unsigned(bytes), Action::copy, site);
        else
            checker->copy_started(copy);
    }
    if (!worker.shared().contains(copy.destination + bytes - 1))
        worker.fail("out_of_bounds", site,
                    "an asynchronous copy's destination begins in shared memory and ends behind it");
    probe(source, valid_bytes);
    if (worker.counting().enabled()) {
        worker.count_access(shared_destination, unsigned(bytes), true, site);
        if (valid_bytes) worker.count_access(global_source, unsigned(valid_bytes), false, site);
    }
    worker.counting().events.async_copy_bytes += unsigned(bytes);
    std::memset(shared_destination, 0xff, std::size_t(bytes));
    self.copies.push_back(copy);
}

extern "C" void gf_emulator_async_copy_commit() { Worker::current().fiber().copy_group++; }

extern "C" void gf_emulator_async_copy_wait(int groups_left_in_flight) {
    Worker& worker = Worker::current();
    Fiber& self = worker.fiber();
    self.site = __builtin_return_address(0);
    Checker* checker = worker.checker();
    std::size_t landed = 0;
    for (; landed < self.copies.size(); landed++) {
        const AsyncCopy& copy = self.copies[landed];
        if (copy.group + unsigned(groups_left_in_flight) >= self.copy_group) break;
        land_copy(copy, checker);
    }
    self.copies.erase(self.copies.begin(), self.copies.begin() + long(landed));
}
