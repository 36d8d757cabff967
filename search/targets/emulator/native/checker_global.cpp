// The checker's view of memory outside the block: buffers, what lies around them, and everything else.
#include "checker.h"
#include "worker.h"

namespace gf_emulator {

namespace {

const char* verb(Action action) { return writes(action) ? "written" : "read"; }

uint3 unfolded(std::uint64_t linear, uint3 size) {
    return {unsigned(linear % size.x), unsigned(linear / size.x % size.y),
            unsigned(linear / size.x / size.y)};
}

}  // namespace

void Checker::global_access(const char* address, unsigned bytes, const Running& running) {
    const GlobalMemory& global = *block_.worker().launch().global;
    const std::size_t buffer = global.buffer_at(address, bytes);
    if (buffer == GlobalMemory::none) {
        // Of an access that begins inside, the last byte is what lies outside.
        const bool begins_inside = global.buffer_at(address, 1) != GlobalMemory::none;
        const char* outside = begins_inside ? address + bytes - 1 : address;
        Finding finding{"out_of_bounds", "global", 0, bytes, party(running)};
        const std::size_t nearest = global.nearest(outside);
        finding.memory += ':' + global.name(nearest);
        finding.offset = global.offset_in(nearest, outside);
        finding.detail = global.describe(outside);
        findings().add(finding);
        if (!global.accessible(address) || !global.accessible(address + bytes - 1))
            block_.worker().fail("out_of_bounds", running.site,
                         format("%u bytes are %s %s", bytes, verb(running.action), finding.detail.c_str()));
        return;
    }
    GlobalShadow& shadow = *block_.worker().launch().global_shadow;
    if (!shadow.watches(buffer)) {
        inputs_.push_back({std::uintptr_t(global.address(buffer)), global.size(buffer), 0});
        return;
    }
    const GlobalAccess access{index_, running.fiber.thread, offset_of(running.site), running.action, &clocks_};
    const std::size_t offset = std::size_t(address - global.address(buffer)), end = offset + bytes;
    if (running.action == Action::write && (offset | bytes) % 4 == 0 &&
        shadow.touch_fresh(buffer, offset / 4, bytes / 4, access))
        return;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        const unsigned mask = ((1u << (stop - begin)) - 1u) << begin % 4;
        Finding finding{"race", "global:" + global.name(buffer), long(begin), bytes, party(running)};
        GlobalShadow::Earlier earlier;
        if (shadow.touch(buffer, word, mask, access, earlier)) {
            finding.other = party(0, earlier.site, earlier.action);
            finding.other.block = unfolded(earlier.block, block_.worker().launch().grid);
            finding.other.thread = unfolded(earlier.thread, block_.worker().launch().block);
            if (earlier.fence_is_missing) finding.detail = no_reading_fence;
            const bool one_instruction = earlier.block == index_ && earlier.site == access.site &&
                                         earlier.thread / 32 == access.thread / 32;
            race_or_suspect(finding, one_instruction);
        }
        const bool write = writes(running.action) && !is_atomic(running.action);
        if (!shadow.written(buffer, word, mask, write)) {
            finding.kind = "uninitialised";
            finding.other = Party();
            finding.detail.clear();
            findings().add(finding);
        }
        begin = stop;
    }
}

// Neither shared memory nor near a buffer: local memory, the library's constants, or a wild address.
void Checker::foreign_access(const void* address, unsigned bytes, const Running& running) {
    if (local_.contains(address, 1) || block_.worker().module_contains(address)) return;
    Block* owner = block_.worker().cluster().owner_of(address, bytes);
    if (owner && owner != &block_) return distributed_access(*owner, address, bytes, running);
    const SharedMemory& shared = block_.shared();
    const bool begins_inside = shared.contains(address);
    const char* outside = static_cast<const char*>(address) + (begins_inside ? bytes - 1 : 0);
    const std::string place = shared.describe(outside);
    if (place.empty())
        block_.worker().fail("out_of_bounds", running.site,
                     format("%u bytes are %s at address %p, far from every buffer", bytes,
                            verb(running.action), address));
    Finding finding{"out_of_bounds", "shared", shared.signed_offset(outside), bytes, party(running)};
    finding.detail = place;
    findings().add(finding);
    if (!shared.accessible(address) || !shared.accessible(static_cast<const char*>(address) + bytes - 1))
        block_.worker().fail("out_of_bounds", running.site,
                     format("%u bytes are %s %s", bytes, verb(running.action), place.c_str()));
}

}  // namespace gf_emulator
