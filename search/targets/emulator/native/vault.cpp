#include "vault.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include "memory_map.h"
#include "own_calls.h"

namespace gf_emulator {

namespace {

// Programs lie at 0x5555..., libraries and stacks near the top, at 0x7f... or 0xffff...: between these and the
// lowest addresses is nothing.
constexpr std::uint32_t lowest_upper_half = 0x1000, upper_halves = 0x3000;
constexpr int vault_tries = 8;

std::uint64_t random_word() {
    std::uint64_t word = 0;
    if (getrandom(&word, sizeof word, 0) != sizeof word) give_up("getrandom");
    return word;
}

}  // namespace

Vault::Vault() {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (int i = 0; i < vault_tries; i++) {
        const std::uint64_t word = random_word();
        const std::uint64_t upper = lowest_upper_half + word % upper_halves;
        const std::uint64_t page = 1 + (word >> 32) % 0xffff0;  // a neighbour on either side has the same upper half
        auto* const asked = reinterpret_cast<char*>(upper << 32 | page * bytes);
        void* const given = mmap(asked, bytes, PROT_NONE, flags, -1, 0);
        if (given == asked) {
            page_ = asked;
            upper_half_ = std::uint32_t(upper);
            return;
        }
        if (given != MAP_FAILED) munmap(given, bytes);
    }
    page_ = reserve_addresses(bytes);
}

void Vault::open() {
    if (own_call(SYS_mprotect, long(page_), bytes, PROT_READ | PROT_WRITE) != 0) give_up("vault");
}

void Vault::close() {
    if (own_call(SYS_mprotect, long(page_), bytes, PROT_NONE) != 0) give_up("vault");
}

}  // namespace gf_emulator
