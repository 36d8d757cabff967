#include "pending_store.h"

#include <algorithm>
#include <thread>

namespace gf_emulator {

namespace {

// Workers beyond these share a place, and then may wait for nothing.
constexpr unsigned most_workers = 256;
PendingStore pending_stores[most_workers];
std::atomic<unsigned> workers{0};
// A worker makes the store that it announced at once, unless the machine takes its core away.
constexpr unsigned most_turns = 1u << 20;

}  // namespace

PendingStore& PendingStore::of_this_worker() {
    static thread_local PendingStore* mine __attribute__((tls_model("initial-exec"))) = nullptr;
    if (!mine) mine = &pending_stores[workers++ % most_workers];
    return *mine;
}

bool PendingStore::is_before(std::uint32_t turn, const char* address, unsigned bytes) const {
    const char* const begin = address_.load(std::memory_order_acquire);
    if (!begin || turn_.load(std::memory_order_acquire) >= turn) return false;
    return begin < address + bytes && address < begin + bytes_.load(std::memory_order_relaxed);
}

void PendingStore::wait_for_earlier(const char* address, unsigned bytes) const {
    const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
    const PendingStore* const end = pending_stores + std::min(workers.load(), most_workers);
    for (const PendingStore* other = pending_stores; other != end; other++)
        for (unsigned waited = 0; other != this && waited < most_turns && other->is_before(turn, address, bytes); waited++)
            std::this_thread::yield();
}

}  // namespace gf_emulator
