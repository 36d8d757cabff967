#include "shared_memory.h"

#include <algorithm>
#include <cstring>
#include <link.h>
#include <sys/mman.h>

#include "launch.h"
#include "memory_map.h"
#include "module_memory.h"
#include "report.h"

// Whether the library's thread-local segment can lie where we want it.
#if defined(__x86_64__) && defined(__GLIBC__)
#define GF_PLACES_STATIC 1
#else
#define GF_PLACES_STATIC 0
#endif

struct TlsIndex {
    unsigned long module, offset;
};
extern "C" void* __tls_get_addr(TlsIndex*);

namespace gf_emulator {

constexpr unsigned char poison_byte = 0xff;
constexpr std::size_t front_canary_bytes = 1024;
// On either side of the static part. As on a device, a plain run survives a small step past its end; checked runs see it.
constexpr std::size_t slack_bytes = 1024;
constexpr std::size_t swizzle_pattern_bytes = 1024;

namespace {

struct Segment {
    const void* module_base;
    unsigned long tls_module;
    std::size_t bytes, alignment;
};

int find_segment(dl_phdr_info* info, std::size_t, void* data) {
    Segment& segment = *static_cast<Segment*>(data);
    if (reinterpret_cast<const void*>(info->dlpi_addr) != segment.module_base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            segment.tls_module = info->dlpi_tls_modid;
            segment.bytes = info->dlpi_phdr[i].p_memsz;
            segment.alignment = info->dlpi_phdr[i].p_align;
        }
    return 1;
}

}  // namespace

GuardedPages::~GuardedPages() {
    if (first_) munmap(first_ - page_bytes, bytes_ + 2 * page_bytes);
}

void GuardedPages::reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    if (first_) munmap(first_ - page_bytes, bytes_ + 2 * page_bytes);
    bytes_ = bytes;
    first_ = reserve_addresses(bytes + 2 * page_bytes) + page_bytes;
    open_pages(first_, bytes);
}

void SharedMemory::make_static_current() {
    if (!static_bytes_) return;
#if GF_PLACES_STATIC
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
    if (static_pages_.first()) give_up("static shared memory in clusters needs x86-64 and glibc");
}

char* SharedMemory::placed_static(std::size_t bytes, std::size_t multiple) {
    static_pages_.reserve(round_up(bytes + multiple + 2 * slack_bytes, page_bytes));
    return reinterpret_cast<char*>((std::uintptr_t(static_pages_.end()) - slack_bytes - bytes) & ~(multiple - 1));
}

void SharedMemory::prepare(const Launch& launch, unsigned rank) {
    const std::size_t dynamic_bytes = launch.dynamic_bytes;
    Segment segment{launch.module_base, 0, 0, 0};
    dl_iterate_phdr(find_segment, &segment);
    static_bytes_ = segment.bytes;
    tls_module_ = segment.tls_module;
    static_ = nullptr;
    if (segment.bytes) {
        // Allocates the thread's own segment, so that its table has a place for ours.
        TlsIndex index{segment.tls_module, 0};
        char* threads_own = static_cast<char*>(__tls_get_addr(&index));
        const bool is_placed = GF_PLACES_STATIC || rank > 0;
        static_ = is_placed ? placed_static(segment.bytes, std::max(alignment, segment.alignment)) : threads_own;
    }

    // ptxas rounds the static part up so, and the dynamic one begins there.
    const std::size_t multiple = launch.module->dynamic_alignment();
    dynamic_begin_ = round_up(static_bytes_, multiple);
    // Swizzles look at addresses, which are therefore the offsets up to a multiple of the largest pattern.
    const std::size_t step = std::max(dynamic_bytes < swizzle_pattern_bytes ? alignment : swizzle_pattern_bytes, multiple);
    pages_.reserve(round_up(dynamic_bytes + alignment + step + front_canary_bytes, page_bytes));
    dynamic_bytes_ = dynamic_bytes;
    dynamic_ = pages_.end() - round_up(dynamic_bytes, alignment);
    dynamic_ -= (std::uintptr_t(dynamic_) - dynamic_begin_) % step;
    std::memset(dynamic_ - front_canary_bytes, poison_byte, front_canary_bytes);
}

void SharedMemory::poison() {
    if (static_bytes_) std::memset(static_, poison_byte, static_bytes_);
    std::memset(dynamic_, poison_byte, std::size_t(pages_.end() - dynamic_));
}

std::size_t SharedMemory::offset(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    if (in_static(address)) return std::size_t(byte - static_);
    return dynamic_begin_ + std::size_t(byte - dynamic_);
}

std::size_t SharedMemory::bytes() const { return dynamic_begin_ + dynamic_bytes_; }

char* SharedMemory::at(std::size_t offset) const {
    if (offset < static_bytes_) return static_ + offset;
    const std::size_t in_dynamic = offset - dynamic_begin_;
    return in_dynamic < dynamic_bytes_ ? dynamic_ + in_dynamic : nullptr;
}

long SharedMemory::signed_offset(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    if (near_static(address)) return byte - static_;
    return long(dynamic_begin_) + (byte - dynamic_);
}

bool SharedMemory::accessible(const void* address) const {
    return in_static(address) || static_pages_.contains(address) || pages_.contains(address);
}

void* SharedMemory::at_same_place(const SharedMemory& other, const void* address) const {
    const char* byte = static_cast<const char*>(address);
    return other.in_static(address) ? static_ + (byte - other.static_) : dynamic_ + (byte - other.dynamic_);
}

std::size_t SharedMemory::damaged_bytes() const {
    const auto is_damaged = [](char byte) { return static_cast<unsigned char>(byte) != poison_byte; };
    const char *end = dynamic_ + dynamic_bytes_, *last = pages_.end();
    return std::size_t(std::count_if(dynamic_ - front_canary_bytes, dynamic_, is_damaged) +
                       std::count_if(end, last, is_damaged));
}

std::string SharedMemory::describe(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    const char* end = dynamic_ + dynamic_bytes_;
    if (near_static(address) && byte >= static_ + static_bytes_)
        return format("%zu bytes past the end of the %zu bytes of static shared memory",
                      std::size_t(byte - static_) - static_bytes_, static_bytes_);
    if (near_static(address) && byte < static_)
        return format("%zu bytes before the start of static shared memory", std::size_t(static_ - byte));
    if (byte < pages_.first() - page_bytes || byte >= pages_.end() + page_bytes) return "";
    if (byte >= end)
        return format("%zu bytes past the end of the %zu bytes of dynamic shared memory",
                      std::size_t(byte - end), dynamic_bytes_);
    if (byte < dynamic_)
        return format("%zu bytes before the start of dynamic shared memory", std::size_t(dynamic_ - byte));
    return "inside dynamic shared memory";
}

}  // namespace gf_emulator
