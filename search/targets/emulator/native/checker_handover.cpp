// What hands a thread's knowledge on through memory: fences, and the atomics and volatile accesses behind and before
// them. In the block it is kept here, and beyond it by GlobalShadow.
#include <algorithm>
#include <utility>

#include "checker.h"
#include "worker.h"

namespace gf_emulator {

namespace {

void merge(const Clocks::Row& row, Clocks::Row& into) {
    if (into.size() < row.size()) into.resize(row.size(), 0);
    for (std::size_t t = 0; t < row.size(); t++) into[t] = std::max(into[t], row[t]);
}

}  // namespace

// Makes known to others what the thread did and knows, and to the thread what its atomics saw. A barrier hands the
// latter on, and so does the fence of a thread that comes after the atomic: the fences of both sides are ordered
// then (PTX ISA, "Fence-SC").
void Checker::fence(bool device_wide) {
    settle();
    const unsigned thread = block_thread();
    take_over(thread, device_wide);
    make_fence(fences_[thread], thread, device_wide);
}

void Checker::take_over(unsigned thread, bool device_wide) {
    // A lane may spin for its warp, and each lane have a fence behind the __syncwarp that follows.
    const unsigned end = std::min(thread / 32 * 32 + 32, block_.thread_count());
    for (unsigned lane = thread / 32 * 32; lane < end; lane++)
        if (!observed_[lane].empty() && (lane == thread || clocks_.known(thread, lane) >= observed_at_[lane]))
            clocks_.acquire(thread, observed_[lane]);
    if (device_wide) block_.worker().launch().global_shadow->fence(index_, thread, clocks_);
}

void Checker::make_fence(Fence& fence, unsigned thread, bool device_wide) {
    if (device_wide) {
        fence.floor = clocks_.floor();
        fence.time = clocks_.now();
    }
    fence.known.clear();
    clocks_.release(thread, fence.known);
    if (device_wide) fence.device_known = beyond_floor(fence.known, thread);
}

// What the thread knows of others beyond the block's floor; null: nothing.
std::shared_ptr<const Clocks::Row> Checker::beyond_floor(const Clocks::Row& known, unsigned thread) const {
    const Clocks::Time floor = clocks_.floor();
    for (unsigned other = 0; other < block_.thread_count(); other++)
        if (other != thread && known[other] > floor) return std::make_shared<const Clocks::Row>(known);
    return nullptr;
}

// Whether only threads of the block can order themselves by an atomic on `address`.
bool Checker::stays_in_block(const void* address) const {
    return block_.worker().cluster().size() == 1 && block_.shared().contains(address);
}

void Checker::undefined_shuffle(const Fiber& fiber, int source) {
    Finding finding{"undefined_shuffle", "", 0, 0, party(fiber.thread, offset_of(fiber.site), Action::read)};
    finding.detail = format("%d", source);
    findings().add(finding);
}

// Of global memory, watched_access reports it.
void Checker::atomic_reads(const void* address, unsigned bytes, Action action, const void* site) {
    if (!dynamic_.contains(address, bytes) && !static_.contains(address, bytes)) return;
    const std::size_t offset = shared_offset(address);
    const unsigned used = ((1u << std::min(bytes, 4u)) - 1u) << offset % 4;
    access_bytes_ = bytes;
    for (std::size_t word = offset / 4; word * 4 < offset + bytes; word++)
        if (const unsigned never = used & ~unsigned(shadow_.state(word)); never && !(shadow_.state(word) & never << 4))
            not_ready(word, used, {**running_, action, site});
}

void Checker::add_of_reading(const Finding& finding) {
    if (exchanges_)
        exchanged_.try_emplace(block_thread(), finding);
    else
        findings().add(finding);
}

void Checker::uses_exchanged() {
    const auto exchanged = exchanged_.find(block_thread());
    if (exchanged == exchanged_.end()) return;
    findings().add(exchanged->second);
    exchanged_.erase(exchanged);
}

void Checker::before_atomic(const void* address, bool block_wide) {
    settle();
    releases(address, block_wide);
}

void Checker::releases(const void* address, bool block_wide, const Fence& fence) {
    const unsigned thread = block_thread();
    if (fence.known.empty()) return;
    Clocks::Row& published = released_[address];
    merge(fence.known, published);
    // The fences of others count where a barrier lies between them and the atomic.
    for (unsigned other = 0; other < block_.thread_count(); other++) {
        const Clocks::Row& theirs = fences_[other].known;
        if (theirs.empty() || theirs[other] <= clocks_.floor() || fence.known[other] >= theirs[other]) continue;
        if (clocks_.known(thread, other) >= theirs[other]) merge(theirs, published);
    }
    if (block_wide || fence.time == 0 || stays_in_block(address)) return;
    Release release;
    release.block = index_;
    release.thread = thread;
    release.floor = clocks_.floor();
    release.fence_floor = fence.floor;
    release.known = fence.device_known;
    release.now = clocks_.tick();
    for (unsigned other = 0; other < block_.thread_count(); other++) {
        const Clocks::Time time = fences_[other].time;
        release.fenced.push_back(clocks_.known(thread, other) >= time ? time : std::min(time, release.floor));
    }
    release.fenced[thread] = fence.time;
    block_.worker().launch().global_shadow->release(address, release);
}

void Checker::after_atomic(const void* address, bool block_wide, bool changed) {
    const std::uint32_t record = changed && atomic_.address == address ? atomic_.record : 0;
    if (record && block_wide) block_.worker().launch().global_shadow->changed(record);
    saw_releases(address, block_thread(), block_wide, record);
}

void Checker::saw_releases(const void* address, unsigned thread, bool block_wide, std::uint32_t record) {
    const auto published = released_.find(address);
    if (published != released_.end()) {
        Clocks::Row& read = read_at_[address];
        if (read.empty()) read.assign(block_.thread_count(), 0);
        read[thread] = clocks_.now();
        Clocks::Row& observed = observed_[thread];
        const Clocks::Row& row = published->second;
        merge(row, observed);
        observed_at_[thread] = clocks_.now();
    }
    if (!block_wide && !stays_in_block(address))
        block_.worker().launch().global_shadow->observe(address, index_, thread, clocks_.tick(), record);
}

}  // namespace gf_emulator
