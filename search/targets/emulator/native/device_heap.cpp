#include "device_heap.h"

#include <cstring>

#include "global_memory.h"
#include "global_shadow.h"
#include "worker.h"

namespace gf_emulator {

namespace {

constexpr const char* heap_name = "device-heap";  // findings.py names it, too
constexpr std::size_t piece_alignment = 16;
constexpr std::size_t gap_bytes = 16;

std::size_t heap_of(const GlobalMemory& memory) {
    for (std::size_t buffer = 0; buffer < memory.count(); buffer++)
        if (memory.name(buffer) == heap_name) return buffer;
    return GlobalMemory::none;
}

}  // namespace

DeviceHeap& device_heap() {
    static DeviceHeap heap;
    return heap;
}

void DeviceHeap::start_run() {
    const std::lock_guard lock(mutex_);
    used_ = 0;
    pieces_.clear();
}

void* DeviceHeap::allocate(const GlobalMemory& memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t heap = heap_of(memory);
    if (heap == GlobalMemory::none || bytes > memory.size(heap)) return nullptr;
    const std::size_t size = (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
    if (memory.size(heap) - used_ < size + gap_bytes) return nullptr;
    char* const piece = memory.address(heap) + used_;
    used_ += size + gap_bytes;
    pieces_[piece] = size;
    return piece;
}

std::size_t DeviceHeap::release(void* address) {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(static_cast<char*>(address));
    if (piece == pieces_.end()) return 0;
    const std::size_t size = piece->second;
    pieces_.erase(piece);
    return size ? size : piece_alignment;
}

bool DeviceHeap::is_in_use() {
    const std::lock_guard lock(mutex_);
    return !pieces_.empty();
}

}  // namespace gf_emulator

using namespace gf_emulator;

namespace {

// Nothing while a library is loaded: its constructors run before any kernel, and there is no heap yet.
void* allocated(std::size_t bytes) {
    if (!Worker::exists()) return nullptr;
    return device_heap().allocate(*Worker::current().launch().global, bytes);
}

void released(void* address, const char* call, const void* site) {
    if (!address || !Worker::exists()) return;
    const std::size_t bytes = device_heap().release(address);
    if (!bytes)
        Worker::current().fail("device_fault", site,
                               format("%s of an address that is no live piece of the device's heap", call));
    // Whoever still reads it gets no value.
    std::memset(address, GlobalMemory::poison, bytes);
    const Launch& launch = Worker::current().launch();
    if (!launch.global_shadow) return;
    const GlobalMemory& memory = *launch.global;
    const std::size_t heap = heap_of(memory);
    if (Checker* checker = Worker::current().checker()) checker->settle();
    launch.global_shadow->forget(heap, std::size_t(memory.offset_in(heap, static_cast<char*>(address))) / 4, bytes / 4);
}

}  // namespace

#define SITE __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {

void* gf_emulator_device_malloc(std::size_t bytes) { return allocated(bytes); }
void gf_emulator_device_free(void* piece) { released(piece, "free()", SITE); }

// operator new, new[], delete and delete[], which the linker sends here.
void* __wrap__Znwm(std::size_t bytes) { return allocated(bytes); }
void* __wrap__Znam(std::size_t bytes) { return allocated(bytes); }
void __wrap__ZdlPv(void* piece) { released(piece, "delete", SITE); }
void __wrap__ZdaPv(void* piece) { released(piece, "delete[]", SITE); }
void __wrap__ZdlPvm(void* piece, std::size_t) { released(piece, "delete", SITE); }
void __wrap__ZdaPvm(void* piece, std::size_t) { released(piece, "delete[]", SITE); }
void __wrap___cxa_pure_virtual() {
    Worker::current().fail("device_fault", SITE, "the kernel calls a pure virtual function");
}

}  // extern "C"
#pragma GCC visibility pop
