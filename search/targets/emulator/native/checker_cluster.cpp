// Distributed shared memory: what blocks of a cluster do to each other's shared memory between two of the
// cluster's barriers. Between them only flags (atomics and fences) order blocks, as in global memory.
#include "worker.h"

namespace gf_emulator {

void Checker::distributed_access(Block& owner, const void* address, unsigned bytes, const Running& running) {
    Cluster& cluster = block_.worker().cluster();
    const bool before = !cluster.barrier().was_met();
    if (before || owner.alive() == 0)
        block_.worker().fail("device_fault", running.site,
                             format("distributed shared memory of block %u of the cluster is accessed %s", owner.rank(),
                                    before ? "before all met at the cluster's barrier: it may not have started"
                                           : "after its end: nothing keeps it from leaving"));
    // Who reads a flag knows that it was set.
    if (!is_atomic(running.action) && !is_volatile(running.action))
        owner.checker().is_visited(*this, running.fiber, running.site);
    const GlobalAccess accessor{index_, running.fiber.thread, offset_of(running.site), running.action, &clocks_};
    const std::size_t offset = owner.shared().offset(address), end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        if (writes(running.action)) owner.checker().written_from_afar(*this, accessor, word, party(running));
        owner.checker().touched_from_afar(word, ((1u << (stop - begin)) - 1u) << begin % 4, accessor, party(running));
        begin = stop;
    }
}

void Checker::touched_from_afar(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor) {
    const bool never_written = bytes & ~unsigned(shadow_.state(word));
    if (writes(accessor.action)) shadow_.state(word) |= std::uint8_t(bytes);
    if (never_written && (!writes(accessor.action) || is_atomic(accessor.action)))
        findings().add({"uninitialised", "shared", long(word * 4), 4, accessor});

    const Cell& cell = shadow_.cell(word / Cell::words);
    for (const Touch* whole : {&cell.write, &cell.read})
        if (whole->newest > cluster_met_at_) meets_local(word, bytes, access, accessor, *whole);
    if (cell.read.newest > clocks_.floor())
        for (const ChainedTouch* read = shadow_.at(cell.more_reads); read; read = shadow_.next(*read))
            meets_local(word, bytes, access, accessor, *read);
    const ChainedTouch* touch = &shadow_.first(word);
    if (touch->newest <= clocks_.floor()) {
        if (touch->newest > cluster_met_at_)
            meets_local(word, bytes, access, accessor, *touch);  // chained ones are gone
    } else {
        for (; touch; touch = shadow_.next(*touch))
            if (touch->newest > cluster_met_at_) meets_local(word, bytes, access, accessor, *touch);
    }
    meets_remote(word, bytes, access, accessor);
    keep_remote(word, bytes, access, accessor);
}

void Checker::written_from_afar(const Checker& by, const GlobalAccess& access, std::size_t word, const Party& accessor) {
    std::vector<AfarWrite>& all = afar_writes_[word / Cell::words];
    const AfarWrite fresh{&by, access.thread, by.clocks_.now(), clocks_.now(), accessor};
    for (AfarWrite& one : all)
        if (one.by == &by && one.thread == access.thread) {
            one = fresh;
            return;
        }
    all.push_back(fresh);
}

// By the writing thread since then, or by one of this block whose fence the issuing threads know.
bool Checker::proxy_fenced(const AfarWrite& write, const AsyncIssue& issue) const {
    if (write.by->clocks_.fenced(write.thread, write.thread) >= write.time) return true;
    for (const unsigned issuing : issue.threads) {
        bool known = false;
        for (unsigned other = 0; other < block_.thread_count() && !known; other++)
            known = clocks_.fenced(issuing, other) >= write.here;
        if (!known) return false;
    }
    return true;
}

// An operation of this block's asynchronous proxy, and what threads of other blocks did to the cell.
void Checker::async_meets_remote(std::size_t cell, const AsyncIssue& issue) {
    const Party& party = issue.operation->party;
    const GlobalAccess access{index_, issue.threads[0], offset_of(party.site), party.action, &clocks_};
    for (std::size_t word = cell * Cell::words; word < (cell + 1) * Cell::words; word++)
        meets_remote(word, 15, access, party);
    const auto place = afar_writes_.find(cell);
    if (place == afar_writes_.end()) return;
    for (const AfarWrite& write : place->second)
        if (!proxy_fenced(write, issue))
            async_finding("race", cell * Cell::bytes, Cell::bytes, party, write.party, no_proxy_fence);
    afar_writes_.erase(place);
}

void Checker::meets_remote(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor) {
    const auto others = remote_.find(word);
    if (others == remote_.end()) return;
    for (const Remote& other : others->second)
        if (other.bytes & bytes && conflict(other.party.action, accessor.action, false) && !comes_before(other, access))
            findings().add({"race", "shared", long(word * 4), 4, accessor, other.party});
}

bool Checker::comes_before(const Remote& other, const GlobalAccess& access) const {
    if (other.block != access.block)
        return block_.worker().launch().global_shadow->orders(other.block, other.thread, other.time, access);
    return other.thread == access.thread || access.clocks->known(access.thread, other.thread) >= other.time;
}

// A thread's new access speaks for its old ones in the same way.
void Checker::keep_remote(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor) {
    is_watched_ = true;
    const Remote fresh{accessor, bytes, access.block, access.thread, access.clocks->now()};
    std::vector<Remote>& others = remote_[word];
    for (Remote& other : others)
        if (other.block == access.block && other.party.action == accessor.action && other.bytes == bytes &&
            (other.thread == access.thread || other.time <= access.clocks->floor())) {
            other = fresh;
            return;
        }
    others.push_back(fresh);
}

void Checker::meets_local(std::size_t word, unsigned bytes, const GlobalAccess& access, const Party& accessor,
                          const Touch& touch) {
    if (!(touch.bytes() & bytes) || !conflict(touch.action(), accessor.action, false)) return;
    for (std::uint32_t lanes = touch.lanes; lanes; lanes &= lanes - 1) {
        const unsigned thread = touch.warp() * 32 + unsigned(__builtin_ctz(lanes));
        if (block_.worker().launch().global_shadow->orders(index_, thread, touch.oldest, access)) continue;
        findings().add({"race", "shared", long(word * 4), 4, accessor, party(thread, touch.site, touch.action())});
        return;
    }
}

void Checker::own_meets_remote(std::size_t offset, unsigned bytes, const Running& running) {
    const GlobalAccess access{index_, running.fiber.thread, offset_of(running.site), running.action, &clocks_};
    const std::size_t end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        meets_remote(word, ((1u << (stop - begin)) - 1u) << begin % 4, access, party(running));
        begin = stop;
    }
}

void Checker::is_visited(const Checker& by, const Fiber& fiber, const void* site) {
    if (&by != this) visits_[{by.index_, fiber.thread}] = {by.clocks_.now(), site};
}

void Checker::finish() {
    unsigned knowing = 0;  // the thread that knew of the last visit knows of the next as a rule
    const GlobalShadow& shadow = *block_.worker().launch().global_shadow;
    for (const auto& [visitor, visit] : visits_) {
        const auto known_to = [&, &visitor = visitor, &visit = visit](unsigned thread) {
            const GlobalAccess end{index_, thread, 0, Action::volatile_read, &clocks_};
            return shadow.orders(visitor.first, visitor.second, visit.time, end);
        };
        if (known_to(knowing)) continue;
        for (knowing = 0; knowing < block_.thread_count() && !known_to(knowing);) knowing++;
        if (knowing < block_.thread_count()) continue;
        Fault fault{"device_fault",
                    format("thread %u of another block of the cluster reaches the shared memory of block %u, which may have "
                           "ended before: none of its threads waits for that", visitor.second, block_.rank()),
                    block_.block_index()};
        fault.site = visit.site;
        return block_.worker().record(std::move(fault));
    }
}

void Checker::cluster_met() {
    block_met();
    remote_.clear();
    visits_.clear();
    is_watched_ = async_.used();
    cluster_met_at_ = clocks_.floor();
}

void Checker::init_fence() {
    settle();
    init_fences_.resize(block_.thread_count());
    make_fence(init_fences_[block_thread()], block_thread(), true);
}

// Releases nothing by itself (PTX ISA, "barrier.cluster"), but an earlier fence with it does.
void Checker::arrives_relaxed(const void* address) {
    settle();
    const unsigned thread = block_thread();
    const bool initialised = thread < init_fences_.size() && init_fences_[thread].time > fences_[thread].time;
    releases(address, false, initialised ? init_fences_[thread] : fences_[thread]);
}

void Checker::arrives_for_all(const void* address, unsigned thread, std::vector<Clocks::Row>& by_rank) {
    fence(true);
    releases(address, false);
    publish_to_cluster(thread, by_rank);
}

void Checker::leaves_relaxed(const void* address, unsigned thread, const std::vector<Clocks::Row>& by_rank) {
    settle();
    saw_releases(address, thread, false);
    take_over(thread, true);
    if (!by_rank.empty()) learn_from_cluster(thread, by_rank);
}

}  // namespace gf_emulator
