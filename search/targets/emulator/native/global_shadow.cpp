#include "global_shadow.h"

#include <algorithm>
#include <set>

namespace gf_emulator {

GlobalShadow::GlobalShadow(const std::vector<BufferSpec>& specs, const ModuleMemory& module)
    : module_(module), specs_count_(specs.size()), touches_(1) {
    for (const BufferSpec& spec : specs) {
        Buffer buffer;
        if (!spec.is_input) {
            const std::size_t words = spec.bytes / 4 + 1;
            buffer.written.assign(words, spec.fill == BufferSpec::Fill::poison ? 0 : 15);
            buffer.first.assign(words, 0);
        }
        buffers_.push_back(std::move(buffer));
    }
    buffers_.resize(specs.size() + module.objects().size());
}

// Objects may be many, or large and unused: each is opened by its first access.
void GlobalShadow::open_object(std::size_t number) {
    const std::size_t words = module_.objects()[number - specs_count_].bytes / 4 + 2;
    buffers_[number].written.assign(words, 0);
    buffers_[number].first.assign(words, 0);
}

void GlobalShadow::start_launch() {
    for (Buffer& buffer : buffers_) std::fill(buffer.first.begin(), buffer.first.end(), 0);
    touches_.resize(1);
    logs_.clear();
    observed_.clear();
    acquired_.clear();
}

bool GlobalShadow::written(std::size_t buffer, std::size_t word, unsigned bytes, bool write) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint8_t& state = opened(buffer).written[word];
    if (write) state |= std::uint8_t(bytes);
    return (state & bytes) == bytes;
}

GlobalShadow::GlobalTouch GlobalShadow::touch_of(const GlobalAccess& access, unsigned bytes) {
    GlobalTouch fresh;
    fresh.block = access.block;
    fresh.how = Touch::pack(bytes, access.action);
    fresh.warps = 1u << access.thread / 32;
    fresh.newest = fresh.oldest = access.clocks->now();
    fresh.lanes = 1u << access.thread % 32;
    fresh.site = access.site;
    return fresh;
}

bool GlobalShadow::touch_fresh(std::size_t buffer, std::size_t word, std::size_t count, const GlobalAccess& access) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Buffer& all = opened(buffer);
    for (std::size_t i = word; i < word + count; i++)
        if (all.first[i]) return false;
    for (std::size_t i = word; i < word + count; i++) {
        all.first[i] = std::uint32_t(touches_.size());
        all.written[i] = 15;
    }
    touches_.push_back(touch_of(access, 15));
    touches_.back().shared = count > 1;
    return true;
}

bool GlobalShadow::touch(std::size_t buffer, std::size_t word, unsigned bytes, const GlobalAccess& access,
                         Earlier& earlier) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Buffer& all = opened(buffer);
    const GlobalTouch fresh = touch_of(access, bytes);
    if (all.first[word] && touches_[all.first[word]].shared) {
        GlobalTouch own = touches_[all.first[word]];
        own.shared = false;
        all.first[word] = std::uint32_t(touches_.size());
        touches_.push_back(own);
    }
    bool raced = false, kept = false;
    unsigned length = 0;
    for (std::uint32_t at = all.first[word]; at; at = touches_[at].next, length++) {
        GlobalTouch& touch = touches_[at];
        unsigned lane = 0, no_lane = 0;
        if ((touch.bytes() & bytes) && conflict(touch.action(), access.action) &&
            !ordered(touch, access, needs_no_fence(access.action), lane)) {
            raced = true;
            earlier = {touch.block, touch.warp() * 32 + lane, touch.site, touch.action(),
                       ordered(touch, access, true, no_lane)};
        }
        if (!kept && touch.block == access.block && touch.how == fresh.how && touch.warps == fresh.warps) {
            kept = true;
            const Clocks::Time met = std::max(access.clocks->warp_floor(access.thread / 32), access.clocks->floor());
            touch.add(fresh, touch.newest <= met);
        }
    }
    // A write of the whole word that comes after all others speaks for them.
    if (!raced && bytes == 15 && writes(access.action) && access.action != Action::atomic && length > 1) {
        all.first[word] = 0;
        kept = false, length = 0;
    }
    if (!kept) keep(all, word, fresh, length);
    return raced;
}

void GlobalShadow::keep(Buffer& buffer, std::size_t word, const GlobalTouch& touch, unsigned chain_length) {
    GlobalTouch added = touch;
    std::uint32_t& first = buffer.first[word];
    if (chain_length >= longest_chain) {  // an old one is forgotten: what it would show is missed
        added.next = touches_[first].next;
        touches_[first] = added;
        return;
    }
    added.next = first;
    first = std::uint32_t(touches_.size());
    touches_.push_back(added);
}

bool GlobalShadow::ordered(const GlobalTouch& touch, const GlobalAccess& access, bool fenced,
                           unsigned& unordered_lane) const {
    const bool same_block = touch.block == access.block;
    const Clocks& clocks = *access.clocks;
    if (same_block && touch.newest <= clocks.floor()) return true;
    for (std::uint32_t left = touch.lanes; left; left &= left - 1) {
        const unsigned lane = unsigned(__builtin_ctz(left)), thread = touch.warp() * 32 + lane;
        unordered_lane = lane;
        if (same_block && thread == access.thread && program_ordered(touch.action(), access.action)) continue;
        if (same_block ? clocks.known(access.thread, thread) < touch.oldest
                       : !reaches(touch.block, thread, touch.oldest, access, fenced))
            return false;
    }
    return true;
}

// Breadth first through what the access's thread acquired, what those who released it had acquired, ...
bool GlobalShadow::reaches(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access,
                           bool fenced) const {
    std::vector<const Release*> found;
    std::set<const Release*> seen;
    const auto look = [&](const Acquired& acquired) {
        for (std::size_t i = 0; i < acquired.count; i++) {
            const Release& release = (*acquired.log)[i];
            if (release.block == block && release.covers(thread, time)) return true;
            if (release.block != block && seen.insert(&release).second) found.push_back(&release);
        }
        return false;
    };
    for (const AcquiredByBlock* all : {&acquired_, &observed_}) {
        const auto mine = all->find(access.block);
        if (mine == all->end() || (all == &observed_ && !fenced)) continue;
        for (const Acquired& one : mine->second)
            if (known(one, access.thread, *access.clocks) && look(one)) return true;
    }
    for (std::size_t i = 0; i < found.size(); i++) {
        const auto theirs = acquired_.find(found[i]->block);
        if (theirs == acquired_.end()) continue;
        for (const Acquired& one : theirs->second)
            if (found[i]->covers(one.thread, one.time) || 
                (one.thread == found[i]->thread && one.time <= found[i]->now))
                if (look(one)) return true;
    }
    return false;
}

void GlobalShadow::release(const void* address, const Release& release) {
    const std::lock_guard<std::mutex> lock(mutex_);
    logs_[address].push_back(release);
}

void GlobalShadow::observe(const void* address, std::uint64_t block, unsigned thread, Clocks::Time time) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<Release>& log = logs_[address];
    if (log.empty()) return;
    std::vector<Acquired>& observed = observed_[block];
    for (Acquired& one : observed)  // who spins on an address sees it often
        if (one.log == &log && one.thread == thread) {
            one.count = log.size();
            return;
        }
    observed.push_back({&log, log.size(), thread, time});
}

void GlobalShadow::fence(std::uint64_t block, unsigned thread, const Clocks& clocks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto observed = observed_.find(block);
    if (observed == observed_.end()) return;
    std::vector<Acquired>& acquired = acquired_[block];
    for (const Acquired& one : observed->second) {
        if (!known(one, thread, clocks)) continue;
        const bool again = std::any_of(acquired.begin(), acquired.end(), [&](const Acquired& other) {
            return other.log == one.log && other.thread == thread && other.count == one.count;
        });
        if (!again) acquired.push_back({one.log, one.count, thread, clocks.now()});
    }
}

}  // namespace gf_emulator
