#include "memory_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include "report.h"

namespace gf_emulator {

static char* map(std::size_t bytes, int protection) {
    void* address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) give_up("memory");
    return static_cast<char*>(address);
}

char* map_pages(std::size_t bytes) { return map(bytes, PROT_READ | PROT_WRITE); }
char* reserve_addresses(std::size_t bytes) { return map(bytes, PROT_NONE); }

bool has_addresses(std::size_t bytes) {
    void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return false;
    munmap(address, bytes);
    return true;
}

void open_pages(char* address, std::size_t bytes) {
    if (mprotect(address, bytes, PROT_READ | PROT_WRITE) != 0) give_up("memory");
}

void give_up(const char* why) {
    report().ours(why);
    _exit(exit_code_ours);
}

}  // namespace gf_emulator
