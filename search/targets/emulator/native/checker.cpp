#include "checker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker.h"

namespace gf_emulator {

thread_local Checker* Checker::active_ __attribute__((tls_model("initial-exec"))) = nullptr;

void Checker::start_block(unsigned thread_count, std::uint64_t index) {
    index_ = index;
    counts_too_ = block_.worker().counting().enabled();
    clocks_.start_block(thread_count);
    shadow_.start_block(block_.shared().bytes());
    fences_.assign(thread_count, Fence());
    init_fences_.clear();
    observed_.assign(thread_count, Clocks::Row());
    observed_at_.assign(thread_count, 0);
    released_.clear();
    read_at_.clear();
    suspect_.bytes = 0;
    flag_.address = nullptr;
    plain_reads_.clear();
    exchanged_.clear();
    exchanges_ = false;
    atomic_ = {};
    unsettled_ = behind_a_read_ = false;
    pending_ = &PendingStore::of_this_worker();
    pending_->landed();
    remote_.clear();
    visits_.clear();
    afar_writes_.clear();
    launch_waits_.clear();
    async_.start_block();
    afar_.clear();
    is_watched_ = false;
    cluster_met_at_ = clocks_.floor();
    running_ = block_.running();
    module_base_ = static_cast<const char*>(block_.worker().launch().module_base);
    const SharedMemory& shared = block_.shared();
    const std::size_t dynamic_offset = shared.bytes() - shared.dynamic_bytes();
    dynamic_ = {std::uintptr_t(shared.dynamic()), shared.dynamic_bytes(), dynamic_offset};
    static_ = {std::uintptr_t(shared.statics()), shared.static_bytes(), 0};
    local_ = {std::uintptr_t(block_.worker().stacks().first()), block_.worker().stacks().bytes(), 0};
    readable_.clear();
    warp_accesses_.resize((thread_count + 31) / 32 * kept_warp_accesses);
    started_ = clocks_.floor();
}

Party Checker::party(const Running& running) const {
    return {running.action, block_.worker().block().block_index(), running.fiber.thread_index, running.site};
}

Party Checker::party(unsigned thread, std::uint32_t site, Action action) const {
    return {action, block_.block_index(), block_.fiber(thread).thread_index,
            static_cast<const char*>(block_.worker().launch().module_base) + site};
}

void Checker::access_memory(const void* address, unsigned bytes, Action action, const void* site) {
    access_outside_frames(address, bytes, action, site);
}

// Not dynamic shared memory, nor the threads' own.
void Checker::access_elsewhere(const void* address, unsigned bytes, Action action, const void* site) {
    if (!running_ || !*running_ || bytes == 0) return;
    const Running running{**running_, action, site};
    access_address_ = address, access_bytes_ = bytes;
    if (static_.contains(address, bytes))
        touch_shared(static_.offset_of(address), address, bytes, running);
    else if (!writes(action) && is_readable(address, bytes))
        return;
    else if (block_.worker().launch().global->contains(address))
        global_access(static_cast<const char*>(address), bytes, running);
    else
        foreign_access(address, bytes, running);
}

std::uint32_t Checker::Matrix::mapping() const {
    const std::uint64_t all = (std::uintptr_t(first) * 31 + pitch_bytes) * 64 + layout;
    return std::uint32_t(all * 0x9E3779B97F4A7C15ull >> 40) | 1;
}

// One lane's part of a matrix for which warp_access returned false.
void Checker::lane_access(const Matrix& matrix, const void* address, unsigned bytes, Action action, const void* site) {
    if (dynamic_.contains(address, bytes))
        touch_shared(dynamic_.offset_of(address), address, bytes, {**running_, action, site, matrix.mapping()});
    else
        access(address, bytes, action, site);
}

bool Checker::warp_access(const Matrix& matrix, Action action, const void* site) {
    settle();
    const Fiber& fiber = **running_;
    WarpAccess& known = warp_access_of(fiber);
    if (known.operation == fiber.aligned_operations && known.since == started_) return false;
    const bool answer = matrix_access(matrix, {fiber, action, site, matrix.mapping()});
    known = {matrix.first, site, started_, fiber.aligned_operations, answer};
    return answer;
}

// True when the whole warp may touch the matrix, and is known to have done so.
bool Checker::matrix_access(const Matrix& matrix, const Running& running) {
    const std::size_t extent = (matrix.lines - 1) * matrix.pitch_bytes + matrix.line_bytes;
    if (!writes(running.action) && is_readable(matrix)) return true;
    const Range& range = dynamic_.contains(matrix.first, extent) ? dynamic_ : static_;
    if (!range.contains(matrix.first, extent) || is_watched_) return false;
    const std::size_t offset = range.offset_of(matrix.first), lines = matrix.lines;
    if (offset % Cell::bytes || matrix.pitch_bytes % Cell::bytes) return false;
    const unsigned warp = running.fiber.thread / 32;
    Touch fresh = fresh_touch(running);
    fresh.lanes = ~0u;
    fresh.how = Touch::pack(15, running.action, running.mapping);
    const std::size_t first = offset / Cell::bytes, cells = matrix.line_bytes / Cell::bytes,
                      pitch = matrix.pitch_bytes / Cell::bytes;
    for (std::size_t line = 0; line < lines; line++)
        for (std::size_t cell = first + line * pitch, end = cell + cells; cell < end; cell++)
            if (!clean(shadow_.cell(cell), shadow_.states(cell), fresh, warp)) return false;
    for (std::size_t line = 0; line < lines; line++)
        for (std::size_t cell = first + line * pitch, end = cell + cells; cell < end; cell++) keep(cell, fresh, warp);
    return true;
}

// Something touched the whole cell since the block last met.
void Checker::meets_cell(std::size_t word, const Touch& earlier, const Touch& fresh, const Running& running) {
    unsigned thread = 0;
    if (conflict(earlier.action(), running.action, earlier.warps == fresh.warps) && !ordered(earlier, running, thread))
        race(word, fresh.bytes(), earlier, thread, running);
}

void Checker::meets_reads(std::size_t word, const Cell& cell, const Touch& fresh, const Running& running) {
    meets_cell(word, cell.read, fresh, running);
    for (const ChainedTouch* read = shadow_.at(cell.more_reads); read; read = shadow_.next(*read))
        meets_cell(word, *read, fresh, running);
}

void Checker::touch_unaligned(std::size_t offset, unsigned bytes, const Running& running, Touch& fresh) {
    const std::size_t end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        touch(word, ((1u << (stop - begin)) - 1u) << begin % 4, running, fresh);
        begin = stop;
    }
}

// Others touched the word since the block last met.
void Checker::touch_in_company(std::size_t word, const Touch& fresh, const Running& running) {
    const unsigned warp = running.fiber.thread / 32;
    bool raced = false, joined = false;
    ChainedTouch& first = shadow_.first(word);
    for (ChainedTouch* touch = &first; touch; touch = shadow_.next(*touch)) {
        unsigned thread = 0;
        if ((touch->bytes() & fresh.bytes()) && conflict(touch->action(), running.action, touch->warps == fresh.warps) &&
            !settled(*touch, fresh, warp) && !ordered(*touch, running, thread) &&
            !is_handed_over(*touch, running)) {
            race(word, touch->bytes() & fresh.bytes(), *touch, thread, running);
            raced = true;
        }
        if (touch->how == fresh.how && !joined) joined = joins(*touch, fresh, warp);
    }
    joined = give_way(first, fresh, warp, joined);
    if (!raced && fresh.bytes() == 15 && (running.action == Action::write || running.action == Action::copy)) {
        first = {fresh};  // it comes after all the others and speaks for them
        first.wrote = 1;
    } else if (!joined) {
        shadow_.prepend(word, fresh);
    }
}

// Of two volatile stores: whether the running thread has read what the other left behind a fence, by a volatile load of
// its own, and so stores after it (PTX ISA, "Coherence").
bool Checker::is_handed_over(const Touch& touch, const Running& running) {
    if (!stores_volatile(touch.action()) || !stores_volatile(running.action)) return false;
    const auto released = released_.find(access_address_);
    if (released == released_.end()) return false;
    const unsigned thread = running.fiber.thread;
    if (read_at(access_address_, thread) < touch.newest) return false;
    for (std::uint32_t warps = touch.warps; warps; warps &= warps - 1)
        for (std::uint32_t lanes = touch.lanes; lanes; lanes &= lanes - 1) {
            const unsigned other = unsigned(__builtin_ctz(warps)) * 32 + unsigned(__builtin_ctz(lanes));
            const Clocks::Time fenced = other < released->second.size() ? released->second[other] : 0;
            if (!fenced || known(thread, other, true) < fenced) return false;
        }
    return true;
}

// When the thread last loaded from a word by which others had released something; 0: never.
Clocks::Time Checker::read_at(const void* address, unsigned thread) const {
    const auto read = read_at_.find(address);
    return read == read_at_.end() || read->second.empty() ? 0 : read->second[thread];
}

// A lane's access speaks for its earlier ones in the same way, and for those of others that it knows of. True when a
// record thus gives its place to the access.
bool Checker::gives_way(Touch& touch, const Touch& fresh, unsigned warp) const {
    if (touch.warps != fresh.warps) return false;
    touch.lanes &= ~fresh.lanes;
    const unsigned thread = warp * 32 + unsigned(__builtin_ctz(fresh.lanes));
    for (std::uint32_t lanes = touch.lanes; lanes; lanes &= lanes - 1)
        if (clocks_.known(thread, warp * 32 + unsigned(__builtin_ctz(lanes))) < touch.newest) return false;
    touch = fresh;
    return true;
}

// The lane leaves the records of its earlier accesses in the same way, so that there are no more records than lines.
// True when one of these, or the access's own, has it.
bool Checker::give_way(ChainedTouch& first, const Touch& fresh, unsigned warp, bool joined) {
    for (ChainedTouch* touch = &first; touch; touch = shadow_.next(*touch)) {
        if (touch->how != fresh.how || touch->warps != fresh.warps) continue;
        if (!joined)
            joined = gives_way(*touch, fresh, warp);
        else if (touch->site != fresh.site)
            touch->lanes &= ~fresh.lanes;
    }
    return joined;
}

bool Checker::more_settled(const Cell& cell, const Touch& fresh, unsigned warp) const {
    for (const ChainedTouch* read = shadow_.at(cell.more_reads); read; read = shadow_.next(*read))
        if (!settled(*read, fresh, warp)) return false;
    return true;
}

// A read of a whole cell that is not to be added to the first record of its reads.
void Checker::keep_beside(Cell& cell, const Touch& fresh, unsigned warp) {
    bool joined = false;
    for (ChainedTouch* read = shadow_.at(cell.more_reads); read && !joined; read = shadow_.next(*read))
        if (read->mapping() == fresh.mapping() && read->warps == fresh.warps) joined = joins(*read, fresh, warp);
    if (!joined)
        joined = gives_way(cell.read, fresh, warp);
    else if (cell.read.warps == fresh.warps)
        cell.read.lanes &= ~fresh.lanes;
    for (ChainedTouch* read = shadow_.at(cell.more_reads); read; read = shadow_.next(*read)) {
        if (read->mapping() != fresh.mapping() || read->warps != fresh.warps) continue;
        if (!joined)
            joined = gives_way(*read, fresh, warp);
        else if (read->site != fresh.site)
            read->lanes &= ~fresh.lanes;
    }
    if (joined) return;
    shadow_.set_aside(cell);
    cell.read = fresh;
}

Clocks::Time Checker::known(unsigned thread, unsigned other, bool fenced) const {
    const Clocks::Time time = clocks_.known(thread, other);
    return fenced && !observed_[thread].empty() ? std::max(time, observed_[thread][other]) : time;
}

bool Checker::ordered(const Touch& touch, const Running& running, unsigned& unordered_thread) const {
    const unsigned thread = running.fiber.thread;
    const bool fenced = needs_no_fence(running.action);
    const bool one_warp = (touch.warps & (touch.warps - 1)) == 0;
    for (std::uint32_t warps = touch.warps; warps; warps &= warps - 1) {
        const unsigned warp = unsigned(__builtin_ctz(warps));
        if (warp == thread / 32 && touch.newest <= clocks_.warp_floor(warp)) continue;
        bool any_known = false, any_unknown = false;
        for (std::uint32_t lanes = touch.lanes; lanes; lanes &= lanes - 1) {
            const unsigned other = warp * 32 + unsigned(__builtin_ctz(lanes));
            // Between a record's oldest and newest time the order of its accesses is unknown: report nothing.
            if ((other == thread && program_ordered(touch.action(), running.action)) ||
                known(thread, other, fenced) >= touch.oldest)
                any_known = true;
            else
                any_unknown = true, unordered_thread = other;
        }
        // Of several warps not every lane may have been there.
        if (any_unknown && (one_warp || !any_known)) return false;
    }
    return true;
}

void Checker::race(std::size_t word, unsigned bytes, const Touch& touch, unsigned thread,
                   const Running& running) {
    const bool early_read = touch.action() == Action::copy && !writes(running.action);
    Finding finding{early_read ? "in_flight_read" : "race",
                    "shared",
                    long(word * 4 + unsigned(__builtin_ctz(bytes))),
                    access_bytes_,
                    party(running),
                    party(thread, touch.site, touch.action())};
    if (known(running.fiber.thread, thread, true) >= touch.oldest) finding.detail = no_reading_fence;
    const bool one_instruction = thread / 32 == running.fiber.thread / 32 && touch.site == offset_of(running.site);
    race_or_suspect(finding, one_instruction);
}

// Of two stores the later one may have stored what was there; that is seen only behind it.
void Checker::race_or_suspect(const Finding& finding, bool one_instruction) {
    if (stores(finding.party.action) && (stores(finding.other.action) || finding.detail == overwrites_an_update))
        return suspect(finding, one_instruction);
    findings().add(finding);
    if (!reads_beside_atomics(finding.party.action, finding.other.action)) return;
    const unsigned thread = block_thread();
    const auto [earlier, is_first] = plain_reads_.try_emplace(thread, PlainRead{access_address_, finding.party.site});
    if (is_first || (earlier->second.address == access_address_ && earlier->second.site == finding.party.site)) return;
    findings().swap_follows(earlier->second.site, false);
    earlier->second = {access_address_, finding.party.site};
}

void Checker::atomic_follows(const void* swapped, unsigned thread) {
    if (plain_reads_.empty()) return;
    const auto read = plain_reads_.find(thread);
    if (read == plain_reads_.end()) return;
    findings().swap_follows(read->second.site, read->second.address == swapped);
    plain_reads_.erase(read);
}

void Checker::suspect(const Finding& finding, bool one_instruction) {
    if (suspect_.bytes && suspect_.one_instruction < one_instruction) return;  // of the same access, in another word
    suspect_.finding = finding;
    suspect_.one_instruction = one_instruction;
    suspect_.address = static_cast<const char*>(access_address_);
    suspect_.bytes = std::min<unsigned>(access_bytes_, sizeof suspect_.before);
    pending_->wait_for_earlier(suspect_.address, suspect_.bytes);
    std::memcpy(suspect_.before, suspect_.address, suspect_.bytes);
    unsettled_ = true;
}

void Checker::settle_now() {
    unsettled_ = behind_a_read_ = false;
    if (suspect_.bytes) judge_suspect();
    pending_->landed();
    if (flag_.address) saw_releases(std::exchange(flag_.address, nullptr), flag_.thread, false);
}

void Checker::judge_suspect() {
    const bool changed = std::memcmp(suspect_.before, suspect_.address, suspect_.bytes) != 0;
    suspect_.bytes = 0;
    if (changed)
        findings().add(suspect_.finding);
    else if (!suspect_.one_instruction)
        block_.worker().note("same_value_writes", suspect_.finding.party.site,
                             "several threads write the same value to the same bytes, and nothing orders them");
}

// True when the access needs no further check.
bool Checker::not_ready(std::size_t word, unsigned bytes, const Running& running) {
    const unsigned state = shadow_.state(word);
    if (state & bytes << 4) {
        in_flight(word, bytes, running);
        return true;
    }
    const unsigned never = bytes & ~state;
    add_of_reading({"uninitialised", "shared", long(word * 4 + unsigned(__builtin_ctz(never))), access_bytes_,
                    party(running)});
    return false;
}

// The list of copies tells which thread the copy belongs to.
void Checker::in_flight(std::size_t word, unsigned bytes, const Running& running) {
    const SharedMemory& shared = block_.shared();
    const std::size_t offset = word * 4 + unsigned(__builtin_ctz(unsigned(shadow_.state(word)) >> 4 & bytes));
    Finding finding{writes(running.action) ? "race" : "in_flight_read", "shared", long(offset), access_bytes_,
                    party(running)};
    const unsigned threads = block_.thread_count();
    for (unsigned t = 0; t < threads && !finding.other.site; t++)
        for (const AsyncCopy& copy : block_.fiber(t).copies)
            if (offset - shared.offset(copy.destination) < std::size_t(copy.bytes))
                finding.other = party(t, offset_of(copy.site), Action::copy);
    finding.detail = "in flight";
    findings().add(finding);
}

void Checker::copy_started(AsyncCopy& copy) {
    copy.issued = clocks_.tick();
    access(copy.source, unsigned(copy.valid_bytes), Action::read, copy.site);
    access(copy.destination, unsigned(copy.bytes), Action::copy, copy.site);
    const std::size_t offset = shared_offset(copy.destination);
    if (is_cell(offset, std::size_t(copy.bytes)))
        return shadow_.set_states(offset / Cell::bytes, Cell::all_written | Cell::all_in_flight);
    for (std::size_t word = offset / 4; word < (offset + std::size_t(copy.bytes)) / 4; word++)
        shadow_.state(word) |= 0xf0;
}

// The waiting thread writes the bytes here; accesses in between have been reported already. The copy may have read its
// source as late as this.
void Checker::copy_landed(const AsyncCopy& copy) {
    copy_issued_ = copy.issued;
    access_range(copy.source, std::size_t(copy.valid_bytes), Action::read, copy.site);
    copy_issued_ = 0;
    const Fiber& self = block_.current();
    const std::size_t offset = shared_offset(copy.destination), words = std::size_t(copy.bytes) / 4;
    const Touch landed = fresh_touch({self, Action::copy, copy.site});
    Cell& cell = shadow_.cell(offset / Cell::bytes);
    const bool words_are_known = cell.words_newest > clocks_.floor();
    if (is_cell(offset, std::size_t(copy.bytes))) {
        shadow_.set_states(offset / Cell::bytes, Cell::all_written);
        cell.write = landed;
        cell.read.newest = 0;
        if (words_are_known)
            for (std::size_t word = 0; word < words; word++) shadow_.first(offset / 4 + word) = {};
        return;
    }
    cell.words_warps = words_are_known ? cell.words_warps | landed.warps : landed.warps;
    cell.words_newest = cell.words_wrote = landed.newest;
    for (std::size_t word = offset / 4; word < offset / 4 + words; word++) {
        shadow_.state(word) = 15;
        shadow_.first(word) = {landed};
    }
}

void Checker::copies_abandoned(const Fiber& fiber) {
    atomic_follows(nullptr, fiber.thread);
    for (const AsyncCopy& copy : fiber.copies)
        findings().add({"unwaited_copy", "shared", long(block_.shared().offset(copy.destination)),
                        unsigned(copy.bytes), party(fiber.thread, offset_of(copy.site), Action::copy)});
}

void Checker::block_met() {
    settle();
    clocks_.block_met();
    shadow_.block_met();
    released_.clear();
    read_at_.clear();
    for (Clocks::Row& row : observed_) row.clear();
}

void Checker::lanes_met(unsigned warp, std::uint32_t lanes, bool all_living) {
    settle();
    clocks_.lanes_met(warp, lanes, all_living);
}

unsigned Checker::block_thread() const { return block_.current().thread; }

}  // namespace gf_emulator
