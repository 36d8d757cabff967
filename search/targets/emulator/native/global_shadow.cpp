#include "global_shadow.h"

#include <algorithm>
#include <set>

#include "memory_map.h"

namespace gf_emulator {

template <class Word>
static void fill(std::vector<Word>& words, std::size_t count, Word value) {
    words.reserve(count);
    prefer_large_pages(words.data(), count * sizeof(Word));
    words.assign(count, value);
}

GlobalShadow::GlobalShadow(const std::vector<BufferSpec>& specs, const ModuleMemory& module)
    : module_(module), specs_count_(specs.size()), touches_(1) {
    for (const BufferSpec& spec : specs) {
        Buffer buffer;
        if (!spec.is_input && spec.fill != BufferSpec::Fill::copy) {
            const std::size_t words = spec.bytes / 4 + 1;
            fill(buffer.written, words, std::uint8_t(spec.fill == BufferSpec::Fill::poison ? 0 : 0xff));
            fill(buffer.first, words, 0u);
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
    keep_last_launch();
    for (Buffer& buffer : buffers_)
        for (std::uint8_t& state : buffer.written) state |= std::uint8_t(state << before_launch);
    touches_.resize(1);
    accesses_ = 0;
    logs_.clear();
    observed_.clear();
    acquired_.clear();
    proxy_fences_.clear();
    read_only_.clear();
    any_read_only_ = false;
}

bool GlobalShadow::written(std::size_t buffer, std::size_t word, unsigned bytes, bool write) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint8_t& state = opened(buffer).written[word];
    if (write) state |= std::uint8_t(bytes);
    return (state & bytes) == bytes;
}

void GlobalShadow::forget(std::size_t buffer, std::size_t word, std::size_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint8_t* const first = &opened(buffer).written[word];
    std::fill(first, first + count, std::uint8_t(0));
}

GlobalShadow::GlobalTouch GlobalShadow::touch_of(const GlobalAccess& access, unsigned bytes) {
    GlobalTouch fresh;
    fresh.block = access.block;
    fresh.how = Touch::pack(bytes, access.action);
    fresh.warps = 1u << access.thread / 32;
    fresh.newest = fresh.oldest = access.clocks->now();
    fresh.lanes = 1u << access.thread % 32;
    fresh.site = access.site;
    fresh.latest = ++accesses_;
    fresh.fills = access.fills;
    if (access.store) access.store->takes_turn(fresh.latest);
    return fresh;
}

bool GlobalShadow::touch_fresh(std::size_t buffer, std::size_t word, std::size_t count, const GlobalAccess& access) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Buffer& all = opened(buffer);
    for (std::size_t i = word; i < word + count; i++)
        if (all.first[i]) return false;
    for (std::size_t i = word; i < word + count; i++) {
        all.first[i] = std::uint32_t(touches_.size());
        all.written[i] |= 15;
    }
    touches_.push_back(touch_of(access, 15));
    touches_.back().shared = count > 1;
    return true;
}

bool GlobalShadow::touch_again(std::size_t buffer, std::size_t word, std::size_t count, const GlobalAccess& access) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<std::uint32_t>& first = opened(buffer).first;
    GlobalTouch& touch = touches_[first[word]];
    const bool own = touch.block == access.block && touch.warp() == access.thread / 32 && touch.lanes == 1u << access.thread % 32;
    if (!first[word] || !touch.shared || !own || touch.site != access.site || touch.action() != Action::write || touch.newest > access.issued)
        return false;
    for (std::size_t i = word; i < word + count; i++)
        if (first[i] != first[word]) return false;
    touch = touch_of(access, 15);
    touch.shared = true;
    return true;
}

bool GlobalShadow::touch(std::size_t buffer, std::size_t word, unsigned bytes, const GlobalAccess& access,
                         Earlier& earlier, std::uint32_t& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Buffer& all = opened(buffer);
    const GlobalTouch fresh = touch_of(access, bytes);
    if (all.first[word] && touches_[all.first[word]].shared) {
        GlobalTouch own = touches_[all.first[word]];
        own.shared = false;
        all.first[word] = std::uint32_t(touches_.size());
        touches_.push_back(own);
    }
    const unsigned warp = access.thread / 32;
    const bool write = writes(access.action);
    const bool is_volatile_store = stores_volatile(access.action);
    bool raced = is_volatile_store && overwrites(all.first[word], bytes, access, earlier), kept = false;
    const Seen seen = is_volatile_store || (access.action == Action::write && all.first[word])
                          ? seen_by(all.first[word], access)
                          : Seen();
    unsigned length = 0, reads = 0;
    std::uint32_t last_write = 0, spare = 0;
    for (std::uint32_t at = all.first[word]; at; at = touches_[at].next, length++) {
        GlobalTouch& touch = touches_[at];
        unsigned lane = 0, no_lane = 0;
        if (writes(touch.action())) last_write = at;
        // Behind the writes there are only reads, the newest first: one of this warp is among the first of them.
        else if (!write && (kept || ++reads > reads_looked_at)) break;
        const bool same_block = touch.block == access.block;
        if ((touch.bytes() & bytes) && conflict(touch, access) &&
            !comes_after(touch, access, seen) &&
            !ordered(touch, access, needs_no_fence(access.action) || (is_volatile_store && touch.latest < seen.by_load),
                     lane)) {
            raced = true;
            earlier = {touch.block, touch.warp() * 32 + lane, touch.site, touch.action(),
                       ordered(touch, access, true, no_lane), false, false};
        }
        if (!kept && same_block && touch.how == fresh.how && touch.warps == fresh.warps && !touch.fills && !fresh.fills) {
            if (is_of_another_line(touch, fresh, *access.clocks, warp))
                spare = touch.lanes & ~fresh.lanes ? spare : at;
            else if ((kept = joins(touch, fresh, *access.clocks, warp)))
                record = at;
        }
    }
    if (spare && kept) touches_[spare].lanes = 0;  // so that there are no more records than lines
    if (spare && !kept) {
        static_cast<Touch&>(touches_[spare]) = fresh;
        touches_[spare].latest = fresh.latest;
        kept = true, record = spare;
    }
    if (!raced && access.action == Action::bulk_load)
        for (std::uint32_t at = all.first[word]; at && !raced; at = touches_[at].next) {
            const GlobalTouch& touch = touches_[at];
            unsigned lane = 0;
            if (!writes(touch.action()) || !(touch.bytes() & bytes) || proxy_fenced(touch, access, lane)) continue;
            raced = true;
            earlier = {touch.block, touch.warp() * 32 + lane, touch.site, touch.action(), false, false, false, true};
        }
    if (!raced && needs_no_fence(access.action))
        raced = may_read_nothing(buffer, word, bytes, access, earlier);
    // A write of the whole word that comes after all others speaks for them.
    if (!raced && bytes == 15 && write && !is_atomic(access.action) &&
        length > (access.action == Action::bulk_write ? 0 : 1)) {
        all.first[word] = 0;
        kept = false, last_write = 0;
    }
    if (!kept) record = keep(all, word, fresh, write ? 0 : last_write);
    return raced;
}

// A relaxed read races with no relaxed write, but where nothing orders it behind any of them, it may read what was
// there before the launch, which is nothing.
bool GlobalShadow::may_read_nothing(std::size_t buffer, std::size_t word, unsigned bytes, const GlobalAccess& access,
                                    Earlier& earlier) const {
    if (buffer >= specs_count_ || full_) return false;  // objects begin as zeros
    const unsigned state = buffers_[buffer].written[word];
    unsigned empty = bytes & ~(state >> before_launch);
    if (!empty || (state & bytes) != bytes) return false;  // the latter is reported as uninitialised
    for (std::uint32_t at = buffers_[buffer].first[word]; at && empty; at = touches_[at].next) {
        const GlobalTouch& touch = touches_[at];
        if (!writes(touch.action()) || !(touch.bytes() & empty)) continue;
        unsigned lane = 0;
        earlier = {touch.block, touch.warp() * 32 + lane, touch.site, touch.action(), false, false, true};
        if (comes_after_one_of(touch, access)) empty &= ~touch.bytes();
    }
    return empty;
}

// Nothing is lost where the storing thread, or one that it comes after, has read the word since.
bool GlobalShadow::overwrites(std::uint32_t first, unsigned bytes, const GlobalAccess& access, Earlier& earlier) const {
    std::uint32_t lost = 0, read = 0;
    for (std::uint32_t at = first; at; at = touches_[at].next) {
        const GlobalTouch& touch = touches_[at];
        if (!(touch.bytes() & bytes)) continue;
        unsigned lane = 0;
        if (touch.changed > (lost ? touches_[lost].changed : 0) && !ordered(touch, access, true, lane)) {
            lost = at;
            earlier = {touch.block, touch.warp() * 32 + lane, touch.site, touch.action(), false, true, false};
        }
        const bool reads = loads_volatile(touch.action()) || is_atomic(touch.action());
        if (reads && touch.latest > read && comes_after_one_of(touch, access)) read = touch.latest;
    }
    return lost && touches_[lost].changed > read;
}

// Who has read a value stores after it (PTX ISA, "Coherence"), without a fence where the load needed none either. An
// atomic that came later would have read the value all the same.
GlobalShadow::Seen GlobalShadow::seen_by(std::uint32_t first, const GlobalAccess& access) const {
    Seen seen;
    for (std::uint32_t at = first; at; at = touches_[at].next) {
        const GlobalTouch& touch = touches_[at];
        const bool own = touch.block == access.block && touch.warp() == access.thread / 32 &&
                         touch.lanes >> access.thread % 32 & 1u;
        if (own && is_atomic(touch.action())) seen.by_atomic = std::max(seen.by_atomic, touch.latest);
        if (own && loads_volatile(touch.action())) seen.by_load = std::max(seen.by_load, touch.latest);
    }
    return seen;
}

// Whether the accessing thread has read what the other left, and so stores after it: by an atomic of its own, also
// where the store is plain (the last block resets its counter in CUDA's "Memory Fence Functions"), or by a volatile load
// of a flag that the other stored behind a fence.
bool GlobalShadow::comes_after(const GlobalTouch& touch, const GlobalAccess& access, const Seen& seen) const {
    if (touch.latest < seen.by_atomic)
        return stores_volatile(access.action) ? is_volatile(touch.action()) : is_atomic(touch.action());
    return stores_volatile(access.action) && stores_volatile(touch.action()) && is_handed_over(touch, access);
}

bool GlobalShadow::is_handed_over(const GlobalTouch& touch, const GlobalAccess& access) const {
    const auto log = logs_.find(access.address);
    const auto saw = [&](const AcquiredByBlock& all, std::size_t release) {
        const auto mine = all.find(access.block);
        return mine != all.end() && std::any_of(mine->second.begin(), mine->second.end(), [&](const Acquired& one) {
                   return one.log == &log->second.releases && one.count > release &&
                          known(one, access.thread, *access.clocks);
               });
    };
    for (std::uint32_t left = touch.lanes; left; left &= left - 1) {
        const unsigned thread = touch.warp() * 32 + unsigned(__builtin_ctz(left));
        if (touch.block == access.block) {
            const Clocks::Time fenced = access.released ? (*access.released)[thread] : 0;
            if (!fenced || access.read_at < touch.newest || known(access, thread, true) < fenced) return false;
            continue;
        }
        if (log == logs_.end()) return false;
        const auto release = log->second.last.find(touch.block << 10 | thread);
        if (release == log->second.last.end()) return false;
        if (!saw(observed_, release->second) && !saw(acquired_, release->second)) return false;
    }
    return true;
}

bool GlobalShadow::comes_after_one_of(const GlobalTouch& touch, const GlobalAccess& access) const {
    for (std::uint32_t left = touch.lanes; left; left &= left - 1) {
        GlobalTouch one = touch;
        unsigned lane = 0;
        one.lanes = left & -left;
        if (ordered(one, access, true, lane)) return true;
    }
    return false;
}

bool GlobalShadow::conflict(const GlobalTouch& touch, const GlobalAccess& access) {
    // What has a block's scope is atomic or relaxed for its block only (PTX ISA, "Morally strong operations").
    if (touch.block != access.block && (of_block(touch.action()) || of_block(access.action)))
        return writes(touch.action()) || writes(access.action);
    return gf_emulator::conflict(touch.action(), access.action, false);
}

// Whether a plain access and a record that it could join are of different lines, each of which a finding may name.
bool GlobalShadow::is_of_another_line(const GlobalTouch& touch, const GlobalTouch& fresh, const Clocks& clocks,
                                      unsigned warp) {
    return touch.site != fresh.site && !is_atomic(fresh.action()) && !is_volatile(fresh.action()) &&
           touch.newest > std::max(clocks.warp_floor(warp), clocks.floor()) && touch.oldest > clocks.event(warp);
}

// Adds an access of the same block and warp in the same way to a record, unless it needs a record of its own: see
// Touch.
bool GlobalShadow::joins(GlobalTouch& touch, const GlobalTouch& fresh, const Clocks& clocks, unsigned warp) {
    if (touch.newest > std::max(clocks.warp_floor(warp), clocks.floor())) {
        if (touch.oldest > clocks.event(warp)) {
            touch.add(fresh);
            touch.latest = fresh.latest;
            return true;
        }
        touch.lanes &= ~fresh.lanes;  // the lane's new access speaks for its old ones
        if (touch.lanes) return false;
    }
    static_cast<Touch&>(touch) = fresh;
    touch.latest = fresh.latest;
    touch.changed = 0;
    return true;
}

// Writes come before reads in a word's chain, so that a read meets them first; `after` is the last of them, or 0.
std::uint32_t GlobalShadow::keep(Buffer& buffer, std::size_t word, const GlobalTouch& touch, std::uint32_t after) {
    GlobalTouch added = touch;
    std::uint32_t& first = buffer.first[word];
    const auto number = std::uint32_t(touches_.size());
    if (number >= most_touches) {
        full_ = true;  // what older ones would show may be missed
        if (first) {
            added.next = touches_[first].next;
            touches_[first] = added;
        }
        return first;
    }
    added.next = after ? touches_[after].next : first;
    (after ? touches_[after].next : first) = number;
    touches_.push_back(added);
    return number;
}

void GlobalShadow::changed(std::uint32_t record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    touches_[record].changed = touches_[record].latest;
}

Clocks::Time GlobalShadow::known(const GlobalAccess& access, unsigned other, bool fenced) {
    const Clocks::Time time = access.clocks->known(access.thread, other);
    return fenced && access.observed && !access.observed->empty() ? std::max(time, (*access.observed)[other]) : time;
}

bool GlobalShadow::ordered(const GlobalTouch& touch, const GlobalAccess& access, bool fenced,
                           unsigned& unordered_lane) const {
    const bool same_block = touch.block == access.block;
    const Clocks& clocks = *access.clocks;
    if (same_block && access.issued && touch.newest > access.issued) {
        unordered_lane = unsigned(__builtin_ctz(touch.lanes));
        return false;
    }
    if (same_block && touch.newest <= clocks.floor()) return true;
    for (std::uint32_t left = touch.lanes; left; left &= left - 1) {
        const unsigned lane = unsigned(__builtin_ctz(left)), thread = touch.warp() * 32 + lane;
        unordered_lane = lane;
        if (same_block && thread == access.thread && program_ordered(touch.action(), access.action)) continue;
        if (same_block ? known(access, thread, fenced) < touch.oldest
                       : !reaches(touch.block, thread, touch.oldest, access, fenced))
            return false;
    }
    return true;
}

bool GlobalShadow::orders(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reaches(block, thread, time, access, needs_no_fence(access.action));
}

// Breadth first through what the access's thread acquired, what those who released it had acquired, ...
bool GlobalShadow::reaches(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access,
                           bool fenced) const {
    return reaches(block, thread, time, access.block,
                   [&](const Acquired& one) { return known(one, access.thread, *access.clocks); }, fenced);
}

template <class Knows>
bool GlobalShadow::reaches(std::uint64_t block, unsigned thread, Clocks::Time time, std::uint64_t from,
                           const Knows& knows, bool fenced) const {
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
        const auto mine = all->find(from);
        if (mine == all->end() || (all == &observed_ && !fenced)) continue;
        for (const Acquired& one : mine->second)
            if (knows(one) && look(one)) return true;
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

void GlobalShadow::proxy_fence(std::uint64_t block, ProxyFence fence) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<ProxyFence>& fences = proxy_fences_[block];
    if (fences.size() >= most_proxy_fences) fences.erase(fences.begin(), fences.begin() + most_proxy_fences / 2);
    fences.push_back(std::move(fence));
}

bool GlobalShadow::proxy_fenced(const GlobalTouch& touch, const GlobalAccess& access, unsigned& unfenced_lane) const {
    if (touch.action() == Action::bulk_write) return true;  // of the same proxy
    for (std::uint32_t left = touch.lanes; left; left &= left - 1) {
        unfenced_lane = unsigned(__builtin_ctz(left));
        if (!proxy_fenced(touch.block, touch.warp() * 32 + unfenced_lane, touch.oldest, access)) return false;
    }
    return true;
}

// The fence lies in the writing thread's block, after the write and before what the load's thread knows of it; or in
// the load's block, after what tells of the write and before the load.
bool GlobalShadow::proxy_fenced(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access) const {
    const auto fences_of = [&](std::uint64_t number) {
        const auto place = proxy_fences_.find(number);
        return place == proxy_fences_.end() ? nullptr : &place->second;
    };
    const auto knows_fence = [&](const ProxyFence& fence) {
        return fence.thread == access.thread || access.clocks->known(access.thread, fence.thread) >= fence.time;
    };
    if (const std::vector<ProxyFence>* fences = fences_of(block))
        for (const ProxyFence& fence : *fences)
            if (fence.known[thread] >= time &&
                (block == access.block ? knows_fence(fence) : reaches(block, fence.thread, fence.time, access, false)))
                return true;
    const std::vector<ProxyFence>* fences = block == access.block ? nullptr : fences_of(access.block);
    return fences && std::any_of(fences->begin(), fences->end(), [&](const ProxyFence& fence) {
               const auto knew = [&](const Acquired& one) { return fence.known[one.thread] >= one.time; };
               return knows_fence(fence) && reaches(block, thread, time, access.block, knew, false);
           });
}

void GlobalShadow::release(const void* address, const Release& release) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Log& log = logs_[address];
    const auto [last, is_first] = log.last.try_emplace(release.block << 10 | release.thread, log.releases.size());
    if (!is_first && log.releases[last->second].says_as_much_as(release)) return;  // a thread that spins
    last->second = log.releases.size();
    log.releases.push_back(release);
}

void GlobalShadow::observe(const void* address, std::uint64_t block, unsigned thread, Clocks::Time time,
                           std::uint32_t record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (record) touches_[record].changed = touches_[record].latest;
    const auto known_log = logs_.find(address);
    if (known_log == logs_.end()) return;
    const std::vector<Release>& log = known_log->second.releases;
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
