#include "block.h"

#include <algorithm>

#include "launch.h"
#include "worker.h"

namespace gf_emulator {

static uint3 unfold(std::uint64_t linear, uint3 size) {
    return {unsigned(linear % size.x), unsigned(linear / size.x % size.y),
            unsigned(linear / size.x / size.y)};
}

static void fiber_main() {
    Worker& worker = Worker::current();
    worker.launch().entry(worker.launch().arguments);
    worker.block().exit_thread();
}

void Block::start(const Launch& launch, std::uint64_t index) {
    thread_count_ = alive_ = launch.block.x * launch.block.y * launch.block.z;
    if (fibers_.size() < thread_count_) fibers_.resize(thread_count_);
    if (warps_.size() < warp_count()) warps_.resize(warp_count());
    block_index_ = unfold(index, launch.grid);
    order_ = launch.order;
    order_.start_block(index);
    barrier_.reset();
    named_barriers_.reset();
    mbarriers_.start_block();
    bulk_copies_.start_block();
    warpgroups_.start_block();
    register_budget_.start_block(thread_count_);
    yielded_.clear();
    paused_ = 0;
    progressed_ = true;
    abandoned_ = false;
    ready_warps_ = warp_count() == 32 ? ~0u : (1u << warp_count()) - 1;
    shared_.poison();
    checker_.enable(launch.check);
    if (launch.check) checker_.start_block(thread_count_, index);
    for (unsigned w = 0; w < warp_count(); w++)
        warps_[w].start(*this, &fibers_[w * 32], w,
                        thread_count_ - w * 32 < 32 ? thread_count_ - w * 32 : 32);
    StackPool& stacks = worker_.stacks();
    for (unsigned t = 0; t < thread_count_; t++) {
        Fiber& fiber = fibers_[t];
        const unsigned stack = rank_ * thread_count_ + t;
        fiber.context.prepare(stacks.low(stack), stacks.high(stack), fiber_main);
        fiber.warp = &warps_[t / 32];
        fiber.thread = t;
        fiber.lane = t % 32;
        fiber.thread_index = unfold(t, launch.block);
        fiber.site = nullptr;
        fiber.waiting_for = nullptr;
        fiber.aligned_operations = 0;
        fiber.copies.clear();
        fiber.copy_group = 0;
        fiber.atomics_since_yield = 0;
        fiber.spin.start();
        fiber.named_barrier = 0;
        fiber.bulk_group = 0;
        fiber.mbarrier = nullptr;
        fiber.cluster_arrived = false;
    }
}

void Block::resume() {
    if (!ready_warps_) {
        bulk_copies_.land_piece(*this);
        wake_yielded();
        if (!ready_warps_) return;
    }
    current_ = next_ready();
    outside_.switch_to(current_->context);
    current_ = nullptr;
    worker_.counting().block_ended(warp_count());
}

void Block::finish() {
    register_budget_.finish(*this);
    warpgroups_.finish(*this);
    bulk_copies_.finish(*this);
    mbarriers_.finish(*this);
    if (checker_.enabled()) checker_.finish();
    if (const std::size_t damaged = shared_.damaged_bytes())
        worker_.record({"out_of_bounds",
                        format("%zu bytes just outside dynamic shared memory were written", damaged),
                        block_index_});
    // On the device, reads of its shared memory by other blocks are undefined from now on.
    if (worker_.cluster().size() > 1) shared_.poison();
}

void Block::wake_yielded() {
    for (Fiber* fiber : yielded_) fiber->warp->set_ready(*fiber);
    yielded_.clear();
    paused_ = 0;
}

Fiber* Block::next_ready() {
    // A thread that yields in a cluster may wait for another of its blocks, which then runs first. Where all that
    // could go on wait in loops, so may a block for another cluster.
    if (!ready_warps_ && worker_.cluster().size() == 1 && paused_ < yielded_.size()) wake_yielded();
    if (!ready_warps_) return nullptr;
    Warp& warp = warps_[order_.pick(ready_warps_)];
    return &warp.lane(order_.pick(warp.ready()));
}

void Block::run_next() {
    checker_.settle();
    Fiber* self = current_;
    Fiber* next = next_ready();
    if (next == self) return;
    if (!next) {
        self->context.switch_to(outside_);
        return;  // another block of the cluster made this thread ready, or it yielded
    }
    current_ = next;
    self->context.switch_to(next->context);
}

void Block::yield() {
    current_->warp->clear_ready(*current_);
    yielded_.push_back(current_);
    run_next();
}

void Block::pause() {
    Fiber& self = *current_;
    if (self.spin.waits == 0) progresses();
    self.spin.waits++;
    self.spin.unchanged = 0;
    self.warp->clear_ready(self);
    yielded_.push_back(&self);
    paused_++;
    run_next();
}

void Block::pause_behind_read(const void* address) {
    if (!order_.is_seeded()) return;
    yield();
    if (checker_.enabled() && !shared_.contains(address)) pause_for_others();
}

void Block::pause_for_others() {
    checker_.settle();
    worker_.gives_way();
    current_->context.switch_to(outside_);
}

void Block::progresses() {
    progressed_ = true;
    worker_.progresses();
}

bool Block::take_progress() {
    const bool progressed = progressed_;
    progressed_ = false;
    return progressed;
}

void Block::exit_thread() {
    Fiber& self = *current_;
    progresses();
    worker_.thread_exits(self);
    alive_--;
    self.warp->exit(self);
    barrier_.complete_if_all_came(*this);
    worker_.cluster().barrier().thread_exits(worker_.cluster(), self);
    run_next();
    __builtin_unreachable();
}

void Block::abandon() {
    abandoned_ = true;
    PendingStore::of_this_worker().landed();
    Fiber& self = *current_;
    self.context.switch_to(outside_);
    __builtin_unreachable();
}

void Block::release_all(std::uint64_t result) {
    worker_.counting().barrier(warp_count());
    if (checker_.enabled()) checker_.block_met();
    for (unsigned w = 0; w < warp_count(); w++)
        for (std::uint32_t left = warps_[w].alive(); left; left &= left - 1) {
            Fiber& fiber = warps_[w].lane(__builtin_ctz(left));
            fiber.result = result;
            warps_[w].set_ready(fiber);
        }
}

Fault::Waiting Block::waiting(const Fiber& fiber) const {
    if (fiber.mbarrier) return {fiber.thread_index, mbarriers_.describe(*this, fiber), 0, fiber.site};
    const bool in_a_loop = std::find(yielded_.begin(), yielded_.end(), &fiber) != yielded_.end();
    const std::uint64_t value = fiber.spin.last[Spin::place(fiber.spin.address)].value;
    if (in_a_loop && fiber.spin.address)
        return {fiber.thread_index,
                "a loop that reads " + worker_.name_of(fiber.spin.address, shared_) +
                    format(value < 1u << 20 ? ", which stays %lu," : ", which stays %#lx,", value),
                0, fiber.spin.site};
    return {fiber.thread_index,
            in_a_loop             ? "a loop"
            : fiber.named_barrier ? named_barriers_.describe(fiber.named_barrier)
                                  : fiber.waiting_for,
            in_a_loop ? 0 : fiber.waiting_mask, fiber.site};
}

std::vector<Fault::Waiting> Block::waiting_beside(const Fiber& running) const {
    constexpr std::size_t shown = 8;
    std::vector<Fault::Waiting> all;
    for (unsigned t = 0; t < thread_count_ && all.size() < shown; t++) {
        const Fiber& fiber = fibers_[t];
        const std::uint32_t lane = 1u << fiber.lane;
        if (&fiber != &running && fiber.warp->alive() & lane && !(fiber.warp->ready() & lane)) all.push_back(waiting(fiber));
    }
    return all;
}

// At most `shown` of them, in their order: of each place where some wait, at first one.
static void keep_some(std::vector<Fault::Waiting>& waiting, std::size_t shown) {
    const auto same_place = [](const Fault::Waiting& a, const Fault::Waiting& b) {
        return a.operation == b.operation && a.site == b.site;
    };
    std::vector<bool> kept(waiting.size());
    std::vector<Fault::Waiting> places;
    for (std::size_t i = 0; i < waiting.size() && places.size() < shown; i++)
        if (std::none_of(places.begin(), places.end(), [&](const auto& place) { return same_place(place, waiting[i]); })) {
            places.push_back(waiting[i]);
            kept[i] = true;
        }
    std::size_t count = places.size();
    for (std::size_t i = 0; i < waiting.size() && count < shown; i++)
        if (!kept[i]) kept[i] = true, count++;
    std::vector<Fault::Waiting> some;
    for (std::size_t i = 0; i < waiting.size(); i++)
        if (kept[i]) some.push_back(std::move(waiting[i]));
    waiting = std::move(some);
}

void Block::report_deadlock(const std::string& why) {
    constexpr std::size_t shown = 8;
    Fault fault{"deadlock", "", block_index_};
    unsigned alive = 0;
    for (unsigned t = 0; t < thread_count_; t++) {
        const Fiber& fiber = fibers_[t];
        if (!(fiber.warp->alive() >> fiber.lane & 1)) continue;
        const Fault::Waiting how = waiting(fiber);
        // The thread that a loop holds up comes first: others mostly wait for it.
        const bool in_a_loop = fault.waiting.empty() || how.operation.compare(0, 6, "a loop") == 0;
        if (alive++ == 0 || (in_a_loop && fault.waiting[0].operation.compare(0, 6, "a loop") != 0)) {
            fault.thread = fiber.thread_index;
            fault.site = how.site;
            fault.waiting.insert(fault.waiting.begin(), how);
        } else {
            fault.waiting.push_back(how);
        }
    }
    keep_some(fault.waiting, shown);
    fault.sentence = why.empty() ? format("%u of %u threads wait for others that never come", alive, thread_count_)
                                 : why;
    if (warpgroups_.someone_waits()) fault.kind = "divergence";
    worker_.record(std::move(fault));
    abandoned_ = true;
}

}  // namespace gf_emulator
