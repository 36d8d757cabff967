// The recorded state of the run's output and workspace buffers, and of the library's `__device__` objects: which
// bytes were ever written, and which blocks touched each word in the present launch. Inputs are read-only, so nothing
// is recorded for them.
//
// Only atomics after fences order blocks. They are recorded as they happen, and a path through them is searched
// only when two blocks touch the same bytes and one of them writes.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "clocks.h"
#include "global_memory.h"
#include "module_memory.h"
#include "pending_store.h"
#include "shadow_memory.h"

namespace gf_emulator {

// The knowledge that a thread's atomic passes to later atomics on the same address.
struct Release {
    std::uint64_t block = 0;
    unsigned thread = 0;
    Clocks::Time floor = 0;     // of its block: up to here all threads' accesses are known to the thread ...
    Clocks::Row fenced;         // ... and those are published that this thread had fenced, or their own one before what
                                // this thread knows of it
    Clocks::Time fence_floor = 0;
    // What the thread knew of others at its fence beyond the floors: from its warp, or from flags inside the block.
    std::shared_ptr<const Clocks::Row> known;
    Clocks::Time now = 0;

    // Whether a later release of the same thread says no more.
    bool says_as_much_as(const Release& later) const {
        return floor == later.floor && fence_floor == later.fence_floor && known == later.known && fenced == later.fenced;
    }
    bool covers(unsigned other, Clocks::Time time) const {
        if (time <= fence_floor || (known && time <= (*known)[other])) return true;
        return time <= fenced[other];
    }
};

// One lane's access, and what orders it inside its own block.
struct GlobalAccess {
    std::uint64_t block;
    unsigned thread;
    std::uint32_t site;
    Action action;
    const Clocks* clocks;
    const Clocks::Row* observed = nullptr;  // what the thread would know of its block if a fence followed its atomics
    PendingStore* store = nullptr;          // null: it is none, or waits for nobody
    // Of a volatile store: its address, and what threads of the block had fenced when they released by that word.
    const void* address = nullptr;
    const Clocks::Row* released = nullptr;
    Clocks::Time read_at = 0;  // when the thread last saw one of these releases
    Clocks::Time issued = 0;  // a bulk store that ends now: what its block did since then met it under way
    bool fills = false;       // an exchange of bytes that nobody has written
};

class GlobalShadow {
public:
    struct Earlier {
        std::uint64_t block;
        unsigned thread;
        std::uint32_t site;
        Action action;
        bool fence_is_missing;  // and would order the two: the accessing thread's own, after its atomic
        bool is_overwritten;    // an atomic's update, by a volatile store of a thread that has not read it
        bool may_come_later;    // than this read, of what nobody wrote before the launch
        bool proxy_fence_is_missing = false;  // between this load of the copy engine and a thread's write
    };

    GlobalShadow(const std::vector<BufferSpec>& specs, const ModuleMemory& module);
    void start_launch();

    bool watches(std::size_t buffer) const { return !buffers_[buffer].written.empty(); }
    // What stands for a buffer in the calls below. No byte of an object has been written at the run's start.
    std::size_t number_of(const ModuleMemory::Object& object) const {
        return specs_count_ + std::size_t(&object - module_.objects().data());
    }
    // True, with the other access, when an unordered access of another thread conflicts with this one. `record` is
    // what the access was kept as.
    bool touch(std::size_t buffer, std::size_t word, unsigned bytes, const GlobalAccess& access,
               Earlier& earlier, std::uint32_t& record);
    // The same for a write of `count` whole words that nobody touched before; false when somebody did.
    bool touch_fresh(std::size_t buffer, std::size_t word, std::size_t count, const GlobalAccess& access);
    // Programmatic dependent launch (dependent_launch.cpp): whether this launch may start before the last one ends.
    bool may_start_early() const { return may_start_early_.load(std::memory_order_relaxed); }
    void lets_others_start() { lets_others_start_ = true; }
    void waits_for_last_launch() { may_start_early_ = waited_ = true; }
    // Whether the last launch may have ended before the one that precedes it.
    bool passes_over() const { return !touches_older_.empty(); }
    // True, with the access, when the last launch, or the one before it, touched the word so that `action` conflicts
    // with it.
    bool met_earlier_launch(bool older, std::size_t buffer, std::size_t word, unsigned bytes, Action action,
                            Earlier& earlier) const;
    // The same for the end of a bulk store that made such a record at its issue, and nobody touched the words since.
    bool touch_again(std::size_t buffer, std::size_t word, std::size_t count, const GlobalAccess& access);
    // Whether so much was touched in this launch that some of it was forgotten.
    bool full() const { return full_; }
    // Whether all `bytes` (one bit each) of the word hold something; writes make it so.
    bool written(std::size_t buffer, std::size_t word, unsigned bytes, bool write);
    // Whole words that hold nothing from now on.
    void forget(std::size_t buffer, std::size_t word, std::size_t count);

    // A load through the read-only path (checker_read_only.cpp) of `bytes` of a word.
    struct ReadOnlyLoad {
        std::uint64_t block;
        unsigned thread;
        std::uint32_t site;
        unsigned bytes;
        bool by_parameter;  // that is const and __restrict__, and not by __ldg
    };
    // True, with the write, when this launch has written some of the load's bytes; else they are kept.
    bool reads_only(std::size_t buffer, std::size_t word, unsigned bytes, const ReadOnlyLoad& load, Earlier& earlier);
    // True, with the load, when this launch has loaded them so.
    bool writes_read_only(std::size_t buffer, std::size_t word, unsigned bytes, Earlier& earlier,
                          bool& by_parameter) const;
    bool any_read_only() const { return any_read_only_.load(std::memory_order_relaxed); }

    // Whether what `thread` of another block did at `time` comes before `access`.
    bool orders(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access) const;

    // Before an atomic on `address`: publish the thread's knowledge. After it: take over what it saw. `record` is what
    // the atomic was kept as where it changed the word, else 0.
    void release(const void* address, const Release& release);
    void observe(const void* address, std::uint64_t block, unsigned thread, Clocks::Time time, std::uint32_t record);
    // The atomic of a block's scope that was kept as `record` has changed its word.
    void changed(std::uint32_t record);
    // A thread's fence between the proxies, and what it knew of its block then.
    struct ProxyFence {
        unsigned thread;
        Clocks::Time time;
        Clocks::Row known;
    };
    void proxy_fence(std::uint64_t block, ProxyFence fence);
    // From now on the thread knows what its earlier atomics saw.
    void fence(std::uint64_t block, unsigned thread, const Clocks& clocks);

private:
    struct GlobalTouch : ChainedTouch {
        std::uint64_t block = 0;
        bool shared = false;  // it is the first of several words, and none has another
        std::uint32_t latest = 0;   // access of these, in the order of all
        std::uint32_t changed = 0;  // the latest atomic of these that changed the word; 0: none
        bool fills = false;         // no later atomic joins it: who comes behind it finds a value
    };
    // Of a word's state: one bit a byte that was ever written, and the same as of the launch's start.
    static constexpr unsigned before_launch = 4;
    struct Buffer {
        std::vector<std::uint8_t> written;
        std::vector<std::uint32_t> first;  // into touches_; 0: none
        std::vector<std::uint32_t> first_before, first_older;  // into touches_before_ and touches_older_, or empty
    };
    Buffer& opened(std::size_t number) {
        Buffer& buffer = buffers_[number];
        if (__builtin_expect(buffer.first.empty(), 0)) open_object(number);
        return buffer;
    }
    void open_object(std::size_t number);
    // A thread's atomic saw the first `count` releases of an address; or, with a fence, took them over.
    struct Acquired {
        const std::vector<Release>* log;
        std::size_t count;
        unsigned thread;
        Clocks::Time time;
    };
    // The releases of one address, and which of them is the last of each thread.
    struct Log {
        std::vector<Release> releases;
        std::unordered_map<std::uint64_t, std::size_t> last;
    };
    static constexpr unsigned reads_looked_at = 8;
    static constexpr std::size_t most_read_only_words = 1u << 20;
    static constexpr std::uint32_t most_touches = 1u << 24;  // of a launch, 56 bytes each

    static bool known(const Acquired& one, unsigned thread, const Clocks& clocks) {
        return one.thread == thread || clocks.known(thread, one.thread) >= one.time;
    }

    // What the accessing thread knows of another of its block.
    static Clocks::Time known(const GlobalAccess& access, unsigned other, bool fenced);
    // `fenced`: as if the accessing thread's atomics were followed by a fence.
    bool ordered(const GlobalTouch& touch, const GlobalAccess& access, bool fenced, unsigned& unordered_lane) const;
    bool reaches(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access, bool fenced) const;
    // The same for whoever of `from` knows what `knows` is true of.
    template <class Knows>
    bool reaches(std::uint64_t block, unsigned thread, Clocks::Time time, std::uint64_t from, const Knows& knows,
                 bool fenced) const;
    // Whether a fence makes the lanes' writes visible to the copy engine's load, which they are ordered before.
    bool proxy_fenced(const GlobalTouch& touch, const GlobalAccess& access, unsigned& unfenced_lane) const;
    bool proxy_fenced(std::uint64_t block, unsigned thread, Clocks::Time time, const GlobalAccess& access) const;
    GlobalTouch touch_of(const GlobalAccess& access, unsigned bytes);
    bool overwrites(std::uint32_t first, unsigned bytes, const GlobalAccess& access, Earlier& earlier) const;
    bool may_read_nothing(std::size_t buffer, std::size_t word, unsigned bytes, const GlobalAccess& access,
                          Earlier& earlier) const;
    // The accessing thread's latest volatile load and atomic of a word.
    struct Seen {
        std::uint32_t by_load = 0, by_atomic = 0;
    };
    Seen seen_by(std::uint32_t first, const GlobalAccess& access) const;
    bool comes_after(const GlobalTouch& touch, const GlobalAccess& access, const Seen& seen) const;
    bool is_handed_over(const GlobalTouch& touch, const GlobalAccess& access) const;
    bool comes_after_one_of(const GlobalTouch& touch, const GlobalAccess& access) const;
    static bool conflict(const GlobalTouch& touch, const GlobalAccess& access);
    static bool is_of_another_line(const GlobalTouch& touch, const GlobalTouch& fresh, const Clocks& clocks, unsigned warp);
    static bool joins(GlobalTouch& touch, const GlobalTouch& fresh, const Clocks& clocks, unsigned warp);
    std::uint32_t keep(Buffer& buffer, std::size_t word, const GlobalTouch& touch, std::uint32_t after);

    void keep_last_launch();
    static constexpr std::size_t most_kept_touches = 1u << 20;  // of the last launch

    const ModuleMemory& module_;
    const std::size_t specs_count_;
    mutable std::mutex mutex_;
    std::vector<Buffer> buffers_;
    std::vector<GlobalTouch> touches_, touches_before_, touches_older_;
    std::atomic<bool> lets_others_start_{false}, may_start_early_{false}, waited_{false};
    bool started_early_ = false;  // by leave of the last launch
    bool full_ = false;
    std::uint32_t accesses_ = 0;  // of this launch
    std::unordered_map<const void*, Log> logs_;
    using AcquiredByBlock = std::unordered_map<std::uint64_t, std::vector<Acquired>>;
    AcquiredByBlock observed_, acquired_;
    static constexpr std::size_t most_proxy_fences = 1u << 13;  // of a block
    std::unordered_map<std::uint64_t, std::vector<ProxyFence>> proxy_fences_;
    std::map<std::pair<std::size_t, std::size_t>, ReadOnlyLoad> read_only_;  // by buffer and word
    std::atomic<bool> any_read_only_{false};
};

}  // namespace gf_emulator
