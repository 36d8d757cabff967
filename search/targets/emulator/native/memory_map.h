// Pages from the operating system. Failure ends the process as our fault, since candidates allocate nothing.
#pragma once
#include <cstddef>

namespace gf_emulator {

constexpr std::size_t page_bytes = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

char* map_pages(std::size_t bytes);          // readable and writable, zero
char* reserve_addresses(std::size_t bytes);  // nothing may touch them
// Whether so many bytes of addresses are left.
bool has_addresses(std::size_t bytes);
void open_pages(char* address, std::size_t bytes);
// Fewer faults for memory that is about to be filled as a whole; without effect where the system has no large pages.
void prefer_large_pages(void* address, std::size_t bytes);

// A whole file of the parent's.
struct FileMap {
    char* first = nullptr;
    std::size_t bytes = 0;
};
FileMap map_file(int descriptor, bool writable);

// Writes the reason to the report and ends the process with exit_code_ours.
[[noreturn]] void give_up(const char* why);

}  // namespace gf_emulator
