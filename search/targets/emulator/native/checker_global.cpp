// The checker's view of memory outside the block: buffers, what lies around them, and everything else.
#include "carried_state.h"
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

Party Checker::party_of(const GlobalShadow::Earlier& earlier) const {
    Party other = party(0, earlier.site, earlier.action);
    other.block = unfolded(earlier.block, block_.worker().launch().grid);
    other.thread = unfolded(earlier.thread, block_.worker().launch().block);
    return other;
}

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
    const std::size_t offset = std::size_t(address - global.address(buffer));
    const OwnedBytes& owned = global.owned(buffer);
    if (!owned.all() && !owned.hold(offset, bytes))
        findings().add({"out_of_bounds", "global:" + global.name(buffer), long(offset), bytes, party(running), {},
                        format("in a gap between the rows of '%s', which belongs to no element",
                               global.name(buffer).c_str())});
    if (block_.worker().launch().global_shadow->watches(buffer))
        return watched_access(buffer, "global:" + global.name(buffer), offset, bytes, running, nullptr);
    if (global.is_copy(buffer)) return reads_promised(buffer, offset, bytes, running);
    if (writes(running.action))
        findings().add({"input_changed", "global:" + global.name(buffer), long(offset), bytes, party(running)});
    else if (!is_readable(global.address(buffer), 0))
        readable_.push_back({{std::uintptr_t(global.address(buffer)), global.size(buffer), 0}, &owned});
}

// An access of a buffer that is written, or of a `__device__` object. `number` is the shadow's.
void Checker::watched_access(std::size_t buffer, const std::string& memory, std::size_t offset, unsigned bytes,
                             const Running& running, const ModuleMemory::Object* object) {
    GlobalShadow& shadow = *block_.worker().launch().global_shadow;
    if (shadow.may_start_early()) meets_last_launch(buffer, memory, offset, bytes, running);
    GlobalAccess access{index_, running.fiber.thread, offset_of(running.site), running.action, &clocks_,
                        &observed_[running.fiber.thread]};
    if (stores_volatile(running.action)) {
        const auto released = released_.find(access_address_);
        access.address = access_address_;
        access.released = released == released_.end() ? nullptr : &released->second;
        access.read_at = read_at(access_address_, access.thread);
    }
    access.issued = running.action == Action::bulk_write ? store_issued_ : copy_issued_;
    if (stores(running.action)) {
        access.store = pending_;
        access.store->announce(static_cast<const char*>(access_address_), access_bytes_);
        unsettled_ = true;
    }
    const std::size_t end = offset + bytes;
    if (running.action == Action::write && (offset | bytes) % 4 == 0 && !shadow.any_read_only() &&
        shadow.touch_fresh(buffer, offset / 4, bytes / 4, access))
        return;
    if (running.action == Action::bulk_write && (offset | bytes) % 4 == 0 && !shadow.any_read_only() &&
        shadow.touch_again(buffer, offset / 4, bytes / 4, access))
        return;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        const unsigned mask = ((1u << (stop - begin)) - 1u) << begin % 4;
        Finding finding{"race", memory, long(begin), bytes, party(running)};
        GlobalShadow::Earlier earlier;
        std::uint32_t record = 0;
        access.fills = exchanges_ && !object && !shadow.written(buffer, word, mask, false);
        const bool raced = shadow.touch(buffer, word, mask, access, earlier, record);
        if (is_atomic(running.action)) atomic_ = {access_address_, record};
        if (raced) {
            finding.other = party_of(earlier);
            if (earlier.fence_is_missing) finding.detail = no_reading_fence;
            if (earlier.is_overwritten) finding.detail = overwrites_an_update;
            if (earlier.may_come_later) finding.detail = may_come_first;
            if (earlier.proxy_fence_is_missing) finding.detail = no_global_proxy_fence;
            if (running.action == Action::bulk_write) finding.detail = store_ends_late;
            if (copy_issued_) finding.detail = copy_reads_late;
            if (earlier.action == Action::bulk_write) finding.detail = store_is_under_way;
            if (earlier.may_come_later && exchanges_) {
                add_of_reading(finding);
                begin = stop;
                continue;
            }
            const bool one_instruction = earlier.block == index_ && earlier.site == access.site &&
                                         earlier.thread / 32 == access.thread / 32;
            race_or_suspect(finding, one_instruction);
        }
        if (writes(running.action) && shadow.any_read_only())
            writes_read_only(buffer, memory, begin, bytes, word, mask, running);
        const bool write = writes(running.action) && !is_atomic(running.action);
        const bool known = shadow.written(buffer, word, mask, write);
        if (exchanges_ && !object) shadow.written(buffer, word, mask, true);
        if (!known && object) {
            if (!writes(running.action) || is_atomic(running.action))
                block_.worker().launch().carried_state->read(*object, word, mask, party(running));
        } else if (!known) {
            finding.kind = "uninitialised";
            finding.other = Party();
            finding.detail.clear();
            add_of_reading(finding);
        }
        begin = stop;
    }
}

void Checker::global_proxy_fence(unsigned thread) {
    settle();
    Clocks::Row known = clocks_.global_proxy_fence(thread);
    const Clocks::Time time = known[thread];
    block_.worker().launch().global_shadow->proxy_fence(index_, {thread, time, std::move(known)});
}

// Neither the block's shared memory nor near a buffer. Whatever is no object of the kernel's is not accessed.
void Checker::foreign_access(const void* address, unsigned bytes, const Running& running) {
    if (block_.worker().launch().module->contains(address))
        return module_access(static_cast<const char*>(address), bytes, running);
    Block* owner = block_.worker().cluster().owner_of(address, bytes);
    if (owner && owner != &block_ && bytes <= owner->shared().bytes())
        return distributed_access(*owner, address, bytes, running);
    const SharedMemory& shared = block_.shared();
    const bool begins_inside = shared.contains(address);
    const char* outside = static_cast<const char*>(address) + (begins_inside ? bytes - 1 : 0);
    const std::string place = shared.describe(outside);
    if (place.empty()) wild_access(address, bytes, running);
    Finding finding{"out_of_bounds", "shared", shared.signed_offset(outside), bytes, party(running)};
    finding.detail = place;
    findings().add(finding);
    if (!shared.accessible(address) || !shared.accessible(static_cast<const char*>(address) + bytes - 1))
        block_.worker().fail("out_of_bounds", running.site,
                     format("%u bytes are %s %s", bytes, verb(running.action), place.c_str()));
}

void Checker::wild_access(const void* address, unsigned bytes, const Running& running) {
    Worker& worker = block_.worker();
    if (!local_.contains(address, 1))
        worker.fail("out_of_bounds", running.site,
                    format("%u bytes are %s at address %p, far from every buffer", bytes, verb(running.action), address));
    const unsigned thread = worker.stacks().owner(address) % block_.thread_count();
    worker.fail("out_of_bounds", running.site,
                thread == running.fiber.thread
                    ? format("%u bytes of the thread's stack are %s outside its live variables", bytes,
                             verb(running.action))
                    : format("%u bytes of local memory of thread %u are %s by thread %u", bytes, thread,
                             verb(running.action), running.fiber.thread));
}

}  // namespace gf_emulator
