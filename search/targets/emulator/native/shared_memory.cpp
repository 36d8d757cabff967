#include "shared_memory.h"

#include <cstring>
#include <link.h>
#include <sys/mman.h>

#include "memory_map.h"
#include "report.h"

struct TlsIndex {
    unsigned long module, offset;
};
extern "C" void* __tls_get_addr(TlsIndex*);

namespace gf_emulator {

constexpr unsigned char poison_byte = 0xff;
constexpr std::size_t front_canary_bytes = 1024;
constexpr std::size_t swizzle_pattern_bytes = 1024;

namespace {

struct Segment {
    const void* module_base;
    unsigned long tls_module;
    std::size_t bytes;
};

int find_segment(dl_phdr_info* info, std::size_t, void* data) {
    Segment& segment = *static_cast<Segment*>(data);
    if (reinterpret_cast<const void*>(info->dlpi_addr) != segment.module_base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            segment.tls_module = info->dlpi_tls_modid;
            segment.bytes = info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

}  // namespace

SharedMemory::~SharedMemory() {
    if (pages_) munmap(pages_ - page_bytes, pages_bytes_ + 2 * page_bytes);
    if (own_static_) munmap(own_static_, own_static_bytes_);
}

char* SharedMemory::own_static(std::size_t bytes) {
    if (bytes > own_static_bytes_) {
        if (own_static_) munmap(own_static_, own_static_bytes_);
        own_static_bytes_ = round_up(bytes, page_bytes);
        own_static_ = map_pages(own_static_bytes_);
    }
    return own_static_;
}

void SharedMemory::make_static_current() {
    if (!static_bytes_) return;
#if defined(__x86_64__) && defined(__GLIBC__)
    // The thread control block's second word is the table of this thread's segments, by module;
    // __tls_get_addr reads it at every use (glibc's sysdeps/x86_64/nptl/tls.h; "ELF Handling for Thread-Local
    // Storage").
    struct Segment {
        char* address;
        void* to_free;
    };
    Segment* table;
    asm("mov %%fs:8, %0" : "=r"(table));
    table[tls_module_].address = static_;
    TlsIndex index{tls_module_, 0};
    if (__tls_get_addr(&index) == static_) return;
#endif
    give_up("static shared memory in clusters needs x86-64 and glibc");
}

void SharedMemory::reserve(std::size_t bytes) {
    if (bytes <= pages_bytes_) return;
    if (pages_) munmap(pages_ - page_bytes, pages_bytes_ + 2 * page_bytes);
    pages_bytes_ = bytes;
    pages_ = reserve_addresses(bytes + 2 * page_bytes) + page_bytes;
    open_pages(pages_, bytes);
}

void SharedMemory::prepare(const void* module_base, std::size_t dynamic_bytes, unsigned rank) {
    Segment segment{module_base, 0, 0};
    dl_iterate_phdr(find_segment, &segment);
    static_bytes_ = segment.bytes;
    tls_module_ = segment.tls_module;
    // Allocates the segment for this thread where it has none yet; x86-64's thread pointer needs no bias.
    TlsIndex index{segment.tls_module, 0};
    static_ = segment.bytes == 0 ? nullptr
              : rank == 0        ? static_cast<char*>(__tls_get_addr(&index))
                                 : own_static(segment.bytes);

    reserve(round_up(dynamic_bytes + alignment + swizzle_pattern_bytes + front_canary_bytes, page_bytes));
    dynamic_bytes_ = dynamic_bytes;
    dynamic_ = pages_ + pages_bytes_ - round_up(dynamic_bytes, alignment);
    // Swizzles look at addresses: as on the device, the dynamic part lies behind the static one.
    if (dynamic_bytes >= swizzle_pattern_bytes)
        dynamic_ -= (std::uintptr_t(dynamic_) - round_up(static_bytes_, alignment)) % swizzle_pattern_bytes;
    std::memset(dynamic_ - front_canary_bytes, poison_byte, front_canary_bytes);
}

void SharedMemory::poison() {
    if (static_bytes_) std::memset(static_, poison_byte, static_bytes_);
    std::memset(dynamic_, poison_byte, std::size_t(pages_ + pages_bytes_ - dynamic_));
}

std::size_t SharedMemory::offset(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    if (in_static(address)) return std::size_t(byte - static_);
    return round_up(static_bytes_, alignment) + std::size_t(byte - dynamic_);
}

std::size_t SharedMemory::bytes() const { return round_up(static_bytes_, alignment) + dynamic_bytes_; }

char* SharedMemory::at(std::size_t offset) const {
    if (offset < static_bytes_) return static_ + offset;
    const std::size_t in_dynamic = offset - round_up(static_bytes_, alignment);
    return in_dynamic < dynamic_bytes_ ? dynamic_ + in_dynamic : nullptr;
}

long SharedMemory::signed_offset(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    if (near_static(address)) return byte - static_;
    return long(round_up(static_bytes_, alignment)) + (byte - dynamic_);
}

bool SharedMemory::accessible(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    return in_static(address) || (byte >= pages_ && byte < pages_ + pages_bytes_);
}

void* SharedMemory::at_same_place(const SharedMemory& other, const void* address) const {
    const char* byte = static_cast<const char*>(address);
    return other.in_static(address) ? static_ + (byte - other.static_) : dynamic_ + (byte - other.dynamic_);
}

std::size_t SharedMemory::damaged_bytes() const {
    std::size_t damaged = 0;
    for (const char* byte = dynamic_ - front_canary_bytes; byte < dynamic_; byte++)
        damaged += static_cast<unsigned char>(*byte) != poison_byte;
    for (const char* byte = dynamic_ + dynamic_bytes_; byte < pages_ + pages_bytes_; byte++)
        damaged += static_cast<unsigned char>(*byte) != poison_byte;
    return damaged;
}

std::string SharedMemory::describe(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    const char* end = dynamic_ + dynamic_bytes_;
    if (near_static(address) && byte >= static_ + static_bytes_)
        return format("%zu bytes past the end of the %zu bytes of static shared memory",
                      std::size_t(byte - static_) - static_bytes_, static_bytes_);
    if (near_static(address) && byte < static_)
        return format("%zu bytes before the start of static shared memory", std::size_t(static_ - byte));
    if (byte < pages_ - page_bytes || byte >= pages_ + pages_bytes_ + page_bytes) return "";
    if (byte >= end)
        return format("%zu bytes past the end of the %zu bytes of dynamic shared memory",
                      std::size_t(byte - end), dynamic_bytes_);
    if (byte < dynamic_)
        return format("%zu bytes before the start of dynamic shared memory", std::size_t(dynamic_ - byte));
    return "inside dynamic shared memory";
}

}  // namespace gf_emulator
