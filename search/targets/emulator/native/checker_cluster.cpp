// Distributed shared memory: what blocks of a cluster do to each other's shared memory between two of the
// cluster's barriers. Between them only flags (atomics and fences) order blocks; races are not reported in a
// cluster that uses flags.
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
    if (running.action == Action::atomic) cluster.blocks_use_flags();
    const std::size_t offset = owner.shared().offset(address), end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        owner.checker().touched_from_afar(word, ((1u << (stop - begin)) - 1u) << begin % 4, party(running));
        begin = stop;
    }
}

void Checker::touched_from_afar(std::size_t word, unsigned bytes, const Party& accessor) {
    if (writes(accessor.action))
        shadow_.state(word) |= std::uint8_t(bytes);
    else if (bytes & ~unsigned(shadow_.state(word)))
        findings().add({"uninitialised", "shared", long(word * 4), 4, accessor});

    const Cell& cell = shadow_.cell(word / Cell::words);
    for (const Touch* whole : {&cell.write, &cell.read})
        if (whole->newest > cluster_met_at_) meets_local(word, bytes, accessor, *whole);
    const ChainedTouch* touch = &shadow_.first(word);
    if (touch->newest <= clocks_.floor()) {
        if (touch->newest > cluster_met_at_)
            meets_local(word, bytes, accessor, *touch);  // chained ones are gone
    } else {
        for (; touch; touch = shadow_.next(*touch))
            if (touch->newest > cluster_met_at_) meets_local(word, bytes, accessor, *touch);
    }
    std::vector<Remote>& others = remote_[word];
    bool known = false;
    for (const Remote& other : others) {
        const bool same_block = accessor.block.x == other.party.block.x &&
                                accessor.block.y == other.party.block.y &&
                                accessor.block.z == other.party.block.z;
        known |= same_block && other.party.action == accessor.action && other.bytes == bytes;
        if (!same_block && other.bytes & bytes && conflict(other.party.action, accessor.action))
            cluster_race(word, accessor, other.party);
    }
    if (!known) others.push_back({accessor, bytes});
}

void Checker::meets_local(std::size_t word, unsigned bytes, const Party& accessor, const Touch& touch) {
    if (touch.bytes() & bytes && conflict(touch.action(), accessor.action))
        cluster_race(
            word, accessor,
            party(touch.warp() * 32 + unsigned(__builtin_ctz(touch.lanes)), touch.site, touch.action()));
}

void Checker::own_meets_remote(std::size_t offset, unsigned bytes, const Running& running) {
    for (std::size_t word = offset / 4; word * 4 < offset + bytes; word++) {
        const auto found = remote_.find(word);
        if (found == remote_.end()) continue;
        for (const Remote& other : found->second)
            if (conflict(other.party.action, running.action)) cluster_race(word, party(running), other.party);
    }
}

void Checker::cluster_race(std::size_t word, const Party& one, const Party& other) {
    if (!block_.worker().cluster().uses_flags())
        findings().add({"race", "shared", long(word * 4), 4, one, other});
}

void Checker::cluster_met() {
    block_met();
    remote_.clear();
    cluster_met_at_ = clocks_.floor();
}

}  // namespace gf_emulator
