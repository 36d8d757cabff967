// Stores that workers have announced to the checks and may not have made yet: a hook runs before its store. Whoever
// judges a store by what it changes first lets those land that came before it.
#pragma once
#include <atomic>
#include <cstdint>

namespace gf_emulator {

// Of one worker: its latest store to memory that other workers write, until its next event.
class PendingStore {
public:
    static PendingStore& of_this_worker();

    void announce(const char* address, unsigned bytes) {
        bytes_.store(bytes, std::memory_order_relaxed);
        turn_.store(no_turn, std::memory_order_relaxed);
        address_.store(address, std::memory_order_release);
    }
    // Its place among all accesses: the first of its words decides.
    void takes_turn(std::uint32_t turn) {
        if (turn_.load(std::memory_order_relaxed) == no_turn) turn_.store(turn, std::memory_order_release);
    }
    // The store lies in memory.
    void landed() { address_.store(nullptr, std::memory_order_release); }

    // Waits for the other workers' stores of these bytes that had their turn before this worker's.
    void wait_for_earlier(const char* address, unsigned bytes) const;

private:
    static constexpr std::uint32_t no_turn = ~0u;

    bool is_before(std::uint32_t turn, const char* address, unsigned bytes) const;

    std::atomic<const char*> address_{nullptr};
    std::atomic<std::uint32_t> bytes_{0}, turn_{no_turn};
};

}  // namespace gf_emulator
