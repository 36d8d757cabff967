#include "memory_map.h"

#include <cstdint>
#include <sys/mman.h>
#include <sys/stat.h>

#include "last_words.h"
#include "own_calls.h"
#include "report.h"

namespace gf_emulator {

static constexpr std::size_t large_page_bytes = 2 << 20;

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

void prefer_large_pages(void* address, std::size_t bytes) {
    const std::uintptr_t first = round_up(std::uintptr_t(address), large_page_bytes);
    const std::uintptr_t last = (std::uintptr_t(address) + bytes) / large_page_bytes * large_page_bytes;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

FileMap map_file(int descriptor, bool writable) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) give_up("a file of the job");
    FileMap map;
    map.bytes = std::size_t(status.st_size);
    if (map.bytes == 0) return map;
    void* first = mmap(nullptr, map.bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, descriptor, 0);
    if (first == MAP_FAILED) give_up("memory");
    map.first = static_cast<char*>(first);
    return map;
}

void give_up(const char* why) {
    allocate_from_reserve();
    report().ours(why);
    end_process(exit_code_ours);
}

}  // namespace gf_emulator
