#include "global_memory.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

#include "memory_map.h"
#include "report.h"

namespace gf_emulator {

static std::size_t pages_of(const BufferSpec& spec) {
    return page_bytes + round_up(round_up(spec.bytes, GlobalMemory::alignment), page_bytes);
}

GlobalMemory::GlobalMemory(const std::vector<BufferSpec>& specs, const char* images) : specs_(specs), images_(images) {
    bytes_ = guard_bytes;
    for (const BufferSpec& spec : specs) bytes_ += pages_of(spec) + guard_bytes;
    base_ = reserve_addresses(bytes_);
    char* next = base_ + guard_bytes;
    for (const BufferSpec& spec : specs) {
        Region region{};
        region.first = next;
        region.last = next + pages_of(spec);
        region.buffer = region.last - round_up(spec.bytes, spec.alignment);
        // Whoever relies on more than was promised finds out.
        if (spec.alignment < alignment && std::uintptr_t(region.buffer) % (2 * spec.alignment) == 0)
            region.buffer -= spec.alignment;
        region.end = region.buffer + spec.bytes;
        regions_.push_back(region);
        if (spec.fill != BufferSpec::Fill::reserved) {
            open_pages(region.first, pages_of(spec));
            prefer_large_pages(region.first, pages_of(spec));
            fill(regions_.size() - 1);
        }
        if (spec.owned >= 0) {
            const char* bits = images_ + spec.owned;
            regions_.back().owned = OwnedBytes(std::vector<unsigned char>(bits, bits + (spec.bytes + 7) / 8));
        }
        next = region.last + guard_bytes;
    }
}

GlobalMemory::~GlobalMemory() { munmap(base_, bytes_); }

void GlobalMemory::fill(std::size_t buffer) {
    const Region& region = regions_[buffer];
    const BufferSpec& spec = specs_[buffer];
    std::memset(region.first, poison, std::size_t(region.buffer - region.first));
    std::memset(region.end, poison, std::size_t(region.last - region.end));
    if (spec.fill == BufferSpec::Fill::poison) std::memset(region.buffer, spec.poison, spec.bytes);
    if (spec.fill == BufferSpec::Fill::image) std::memcpy(region.buffer, images_ + spec.image, spec.bytes);
}

std::vector<CanaryDamage> GlobalMemory::canary_damage() const {
    std::vector<CanaryDamage> damage;
    for (std::size_t i = 0; i < regions_.size(); i++) {
        if (specs_[i].fill == BufferSpec::Fill::reserved) continue;
        const Region& region = regions_[i];
        CanaryDamage before{specs_[i].name, true, 0, 0}, behind{specs_[i].name, false, 0, 0};
        for (const char* byte = region.buffer - 1; byte >= region.first; byte--)
            if (static_cast<unsigned char>(*byte) != poison && before.bytes++ == 0)
                before.first_offset = std::size_t(region.buffer - byte);
        for (const char* byte = region.end; byte < region.last; byte++)
            if (static_cast<unsigned char>(*byte) != poison && behind.bytes++ == 0)
                behind.first_offset = std::size_t(byte - region.end);
        if (before.bytes) damage.push_back(before);
        if (behind.bytes) damage.push_back(behind);
    }
    return damage;
}

std::vector<std::string> GlobalMemory::changed_inputs() const {
    std::vector<std::string> changed;
    for (std::size_t i = 0; i < specs_.size(); i++) {
        const BufferSpec& spec = specs_[i];
        if (!spec.is_input || spec.fill != BufferSpec::Fill::image || spec.bytes == 0) continue;
        if (std::memcmp(images_ + spec.image, regions_[i].buffer, spec.bytes) != 0) changed.push_back(spec.name);
    }
    return changed;
}

std::size_t GlobalMemory::buffer_at(const void* address, std::size_t bytes) const {
    const char* byte = static_cast<const char*>(address);
    for (std::size_t i = 0; i < regions_.size(); i++)
        if (byte >= regions_[i].buffer && byte <= regions_[i].end && bytes <= std::size_t(regions_[i].end - byte))
            return i;
    return none;
}

bool GlobalMemory::accessible(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    for (std::size_t i = 0; i < regions_.size(); i++)
        if (byte >= regions_[i].first && byte < regions_[i].last)
            return specs_[i].fill != BufferSpec::Fill::reserved;
    return false;
}

std::size_t GlobalMemory::nearest(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    std::size_t nearest = none, least = ~std::size_t(0);
    for (std::size_t i = 0; i < regions_.size(); i++) {
        const Region& region = regions_[i];
        const std::size_t distance = byte < region.buffer ? region.buffer - byte
                                     : byte >= region.end ? byte - region.end + 1
                                                          : 0;
        if (distance < least) least = distance, nearest = i;
    }
    return nearest;
}

std::string GlobalMemory::describe(const void* address) const {
    const std::size_t buffer = contains(address) ? nearest(address) : none;
    if (buffer == none) return "";
    const char* byte = static_cast<const char*>(address);
    const Region& region = regions_[buffer];
    const char* name = specs_[buffer].name.c_str();
    if (byte < region.buffer)
        return format("%zu bytes before the start of '%s'", std::size_t(region.buffer - byte), name);
    if (byte >= region.end)
        return format("%zu bytes past the end of '%s'", std::size_t(byte - region.end), name);
    return format("inside '%s'", name);
}

void GlobalMemory::make_copies() const {
    for (std::size_t i = 0; i < specs_.size(); i++)
        if (is_copy(i)) std::memcpy(address(i), address(copied(i)), std::min(size(i), size(copied(i))));
}

void GlobalMemory::copy_to(char* destination, std::size_t buffer) const {
    std::memcpy(destination, regions_[buffer].buffer, specs_[buffer].bytes);
}

}  // namespace gf_emulator
