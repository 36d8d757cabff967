#include "last_words.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "memory_map.h"
#include "own_calls.h"
#include "report.h"

namespace gf_emulator {

namespace {

constexpr std::size_t reserve_bytes = 64 * 1024;  // a report takes a few
alignas(std::max_align_t) char reserve[reserve_bytes];
std::atomic<std::size_t> reserve_used{0};
thread_local bool uses_reserve __attribute__((tls_model("initial-exec"))) = false;

void* from_reserve(std::size_t bytes) {
    const std::size_t taken = round_up(bytes, alignof(std::max_align_t)), at = reserve_used.fetch_add(taken);
    if (taken > reserve_bytes || at > reserve_bytes - taken) end_process(exit_code_twice);
    return reserve + at;
}

bool is_reserve(const void* address) {
    return std::uintptr_t(address) - std::uintptr_t(reserve) < reserve_bytes;
}

}  // namespace

void allocate_from_reserve() { uses_reserve = true; }

}  // namespace gf_emulator

#pragma GCC visibility push(default)

void* operator new(std::size_t bytes) {
    if (gf_emulator::uses_reserve) return gf_emulator::from_reserve(bytes);
    if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
    gf_emulator::give_up("memory");
}

void operator delete(void* memory) noexcept {
    if (!gf_emulator::is_reserve(memory)) std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

#pragma GCC visibility pop
