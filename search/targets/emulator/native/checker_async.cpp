// The checker's view of the asynchronous proxy. An operation comes after what its issuer knows, and before what knows
// its completion; between a generic write and an operation there must be a proxy fence, too (PTX ISA, "Memory
// Consistency Model", "Proxies"). A generic read before an asynchronous write needs no more than an order here.
#include "worker.h"

namespace gf_emulator {

void Checker::watch_async() {
    if (async_.used()) return;
    async_.open(block_.shared().bytes() / Cell::bytes + 1);
    is_watched_ = true;
    // What was written before: the newest writes that the record still holds.
    const auto keep = [this](std::size_t cell, const Touch& touch) {
        if (touch.newest <= started_ || !writes(touch.action())) return;
        for (std::uint32_t lanes = touch.lanes; lanes; lanes &= lanes - 1)
            async_.cell(cell).generic_writes.push_back(
                {touch.warp() * 32 + unsigned(__builtin_ctz(lanes)), touch.newest, touch.site});
    };
    for (std::size_t cell = 0; cell < async_.size(); cell++) {
        keep(cell, shadow_.cell(cell).write);
        for (std::size_t word = 0; word < Cell::words; word++) keep(cell, shadow_.first(cell * Cell::words + word));
    }
}

std::shared_ptr<AsyncOperation> Checker::operation(const Fiber& fiber, Action action, const void* site,
                                                   std::shared_ptr<Completion> end) {
    auto fresh = std::make_shared<AsyncOperation>();
    fresh->party = party_of(fiber, action, site);
    fresh->end = std::move(end);
    fresh->agent = fiber.thread;
    return fresh;
}

void Checker::async_finding(const char* kind, std::size_t offset, unsigned bytes, const Party& party,
                            const Party& other, const std::string& detail) {
    Finding finding{kind, "shared", long(offset), bytes, party, other};
    finding.detail = detail;
    findings().add(finding);
}

bool Checker::knows(unsigned thread, Completion& end) const {
    static const std::shared_ptr<AsyncOperation> none;
    if (&end.of != this) return end.of.knows({const_cast<Checker&>(*this), {thread, thread}, none}, end);
    for (Completion* one = &end; one; one = one->later.get()) {
        if (one->seen[thread]) return true;
        for (unsigned other = 0; other < one->seen.size(); other++)
            if (one->seen[other] && clocks_.known(thread, other) >= one->seen[other]) {
                end.seen[thread] = clocks_.now();
                return true;
            }
    }
    return false;
}

bool Checker::knows(const AsyncIssue& issue, Completion& end) const {
    if (&end.of != this) return end.of.knows(issue, end);
    if (&issue.issuer == this) return knows(issue.threads[0], end) && knows(issue.threads[1], end);
    for (Completion* one = &end; one; one = one->later.get())
        for (unsigned other = 0; other < one->seen.size(); other++)
            if (one->seen[other] && knows(issue, other, one->seen[other], 0)) return true;
    return false;
}

// Whether what `thread` of this block did at `time` comes before the operation.
bool Checker::knows(const AsyncIssue& issue, unsigned thread, Clocks::Time time, std::uint32_t site) const {
    if (&issue.issuer == this) {
        for (const unsigned issuing : issue.threads)
            if (issuing != thread && clocks_.known(issuing, thread) < time) return false;
        return true;
    }
    if (time <= cluster_met_at_ || issue.issuer.knows_afar(issue.threads[0], block_.rank(), thread, time)) return true;
    const GlobalAccess access{issue.issuer.index_, issue.threads[0], site, Action::write, &issue.issuer.clocks_};
    return block_.worker().launch().global_shadow->orders(index_, thread, time, access);
}

bool Checker::did_before(unsigned thread, Clocks::Time time, Checker& by, const Fiber& fiber, const void* site) const {
    static const std::shared_ptr<AsyncOperation> none;
    return knows({by, {fiber.thread, fiber.thread}, none}, thread, time, offset_of(site));
}

void Checker::publish_to_cluster(unsigned thread, std::vector<Clocks::Row>& by_rank) {
    const auto join = [&](unsigned rank, const Clocks::Row& row) {
        if (by_rank.size() <= rank) by_rank.resize(rank + 1);
        by_rank[rank].resize(std::max(by_rank[rank].size(), row.size()), 0);
        for (std::size_t t = 0; t < row.size(); t++) by_rank[rank][t] = std::max(by_rank[rank][t], row[t]);
    };
    Clocks::Row own;
    clocks_.release(thread, own);
    for (unsigned t = 0; t < block_.thread_count(); t++) own[t] = std::max(own[t], clocks_.floor());
    join(block_.rank(), own);
    for (const Afar& one : afar_)
        if (one.thread == thread || clocks_.known(thread, one.thread) >= one.time)
            for (unsigned rank = 0; rank < one.by_rank.size(); rank++) join(rank, one.by_rank[rank]);
}

void Checker::learn_from_cluster(unsigned thread, const std::vector<Clocks::Row>& by_rank) {
    if (afar_.size() >= most_afar) afar_.erase(afar_.begin(), afar_.begin() + most_afar / 2);
    afar_.push_back({thread, clocks_.tick(), by_rank});
}

bool Checker::knows_afar(unsigned thread, unsigned rank, unsigned other, Clocks::Time time) const {
    for (auto one = afar_.rbegin(); one != afar_.rend(); ++one)
        if (rank < one->by_rank.size() && other < one->by_rank[rank].size() && one->by_rank[rank][other] >= time &&
            (one->thread == thread || clocks_.known(thread, one->thread) >= one->time))
            return true;
    return false;
}

void Checker::async_meets_touch(std::size_t word, const Touch& touch, bool write, const AsyncIssue& issue) {
    if (touch.newest <= started_ || (!write && !writes(touch.action()))) return;
    for (std::uint32_t warps = touch.warps; warps; warps &= warps - 1)
        for (std::uint32_t lanes = touch.lanes; lanes; lanes &= lanes - 1) {
            const unsigned thread = unsigned(__builtin_ctz(warps)) * 32 + unsigned(__builtin_ctz(lanes));
            if (thread >= block_.thread_count() || knows(issue, thread, touch.oldest, touch.site)) continue;
            findings().add({"race", "shared", long(word * 4), 16, issue.operation->party,
                            party(thread, touch.site, touch.action())});
            return;
        }
}

// Everything that the record holds of the cell. What the block's barriers ordered is known to all its threads, and
// chains are forgotten there.
void Checker::async_meets_generic(std::size_t number, bool write, const AsyncIssue& issue) {
    const Cell& cell = shadow_.cell(number);
    const Clocks::Time since = &issue.issuer == this ? clocks_.floor() : cluster_met_at_;
    const std::size_t first_word = number * Cell::words;
    for (const Touch* whole : {&cell.write, &cell.read})
        if (whole->newest > since) async_meets_touch(first_word, *whole, write, issue);
    if (cell.read.newest > clocks_.floor())
        for (const ChainedTouch* read = shadow_.at(cell.more_reads); read; read = shadow_.next(*read))
            async_meets_touch(first_word, *read, write, issue);
    for (std::size_t word = first_word; word < first_word + Cell::words; word++) {
        const ChainedTouch* touch = &shadow_.first(word);
        const bool has_chain = touch->newest > clocks_.floor();
        for (; touch; touch = has_chain ? shadow_.next(*touch) : nullptr)
            if (touch->newest > since) async_meets_touch(word, *touch, write, issue);
    }
}

void Checker::async_meets_unfenced(std::size_t number, const AsyncIssue& issue) {
    if (&issue.issuer != this) return;
    if (!afar_writes_.empty() || !remote_.empty()) async_meets_remote(number, issue);
    for (const AsyncShadow::GenericWrite& write : async_.cell(number).generic_writes) {
        bool fenced = true, ordered = true;
        for (const unsigned issuing : issue.threads) {
            fenced &= clocks_.fenced(issuing, write.thread) >= write.time;
            ordered &= issuing == write.thread || clocks_.known(issuing, write.thread) >= write.time;
        }
        if (fenced || !ordered) continue;  // without an order it is a race, and reported as such
        async_finding("race", number * Cell::bytes, Cell::bytes, issue.operation->party,
                      party(write.thread, write.site, Action::write), no_proxy_fence);
        async_.cell(number).generic_writes.clear();
        return;
    }
}

void Checker::async_write(std::size_t offset, std::size_t bytes, const AsyncIssue& issue) {
    watch_async();
    for (std::size_t number = offset / Cell::bytes; number < (offset + bytes) / Cell::bytes; number++) {
        AsyncShadow::Cell& cell = async_.cell(number);
        const std::size_t place = number * Cell::bytes;
        if (cell.barrier_bytes)
            async_finding("race", place, Cell::bytes, issue.operation->party, cell.barrier_site,
                          "async:over the mbarrier of {other}");
        if (cell.write && !knows(issue, *cell.write->end))
            async_finding("race", place, Cell::bytes, issue.operation->party, cell.write->party, copy_is_under_way);
        for (const auto& read : cell.reads)
            if (!knows(issue, *read->end))
                async_finding("race", place, Cell::bytes, issue.operation->party, read->party, operand_is_in_use);
        async_meets_generic(number, true, issue);
        async_meets_unfenced(number, issue);
        cell.write = issue.operation;
        cell.reads.clear();
        cell.generic_writes.clear();
        // From now on the operation's completion orders the cell, and not the time of its issue.
        shadow_.cell(number) = gf_emulator::Cell();
        shadow_.set_states(number, gf_emulator::Cell::all_written);
        for (std::size_t word = number * Cell::words; word < (number + 1) * Cell::words; word++)
            shadow_.first(word) = {};
    }
}

void Checker::async_read(std::size_t offset, std::size_t bytes, const AsyncIssue& issue) {
    watch_async();
    for (std::size_t number = offset / Cell::bytes; number < (offset + bytes) / Cell::bytes; number++) {
        AsyncShadow::Cell& cell = async_.cell(number);
        const std::size_t place = number * Cell::bytes;
        if (cell.write && !knows(issue, *cell.write->end))
            async_finding("in_flight_read", place, Cell::bytes, issue.operation->party, cell.write->party,
                          copy_is_under_way);
        if ((shadow_.states(number) & gf_emulator::Cell::all_written) != gf_emulator::Cell::all_written)
            findings().add({"uninitialised", "shared", long(place), Cell::bytes, issue.operation->party});
        async_meets_generic(number, false, issue);
        async_meets_unfenced(number, issue);
        bool known = false;
        for (auto& read : cell.reads)
            if (read->ends_before(*issue.operation)) read = issue.operation, known = true;
        if (!known) cell.reads.push_back(issue.operation);
    }
}

bool Checker::meets_others(std::size_t offset, unsigned bytes, const Running& running) {
    if (async_.used()) meets_async(offset, bytes, running);
    if (remote_.empty()) return false;
    own_meets_remote(offset, bytes, running);
    return true;
}

// A generic access of the running thread.
void Checker::meets_async(std::size_t offset, unsigned bytes, const Running& running) {
    const unsigned thread = running.fiber.thread;
    const bool write = writes(running.action);
    for (std::size_t number = offset / Cell::bytes; number <= (offset + bytes - 1) / Cell::bytes; number++) {
        AsyncShadow::Cell& cell = async_.cell(number);
        const std::size_t from = std::max(offset, number * Cell::bytes) % Cell::bytes;
        const std::size_t to = std::min(offset + bytes - 1, number * Cell::bytes + Cell::bytes - 1) % Cell::bytes;
        const unsigned halves = (from < 8 ? 1u : 0u) | (to >= 8 ? 2u : 0u);
        if (cell.barrier_bytes & halves)
            async_finding(write ? "race" : "uninitialised", offset, bytes, party(running), cell.barrier_site,
                          "async:where the mbarrier of {other} lies, whose bytes are no data");
        if (cell.write && !knows(thread, *cell.write->end))
            async_finding(write ? "race" : "in_flight_read", offset, bytes, party(running), cell.write->party,
                          copy_is_under_way);
        if (!write) continue;
        for (const auto& read : cell.reads)
            if (!knows(thread, *read->end))
                async_finding("race", offset, bytes, party(running), read->party, operand_is_in_use);
        bool known = false;
        for (AsyncShadow::GenericWrite& one : cell.generic_writes)
            if (one.thread == thread) one.time = clocks_.now(), one.site = offset_of(running.site), known = true;
        if (!known) cell.generic_writes.push_back({thread, clocks_.now(), offset_of(running.site)});
    }
}

void Checker::barrier_lies_at(std::size_t offset, bool lies, const Fiber& fiber, const void* site) {
    watch_async();
    AsyncShadow::Cell& cell = async_.cell(offset / Cell::bytes);
    const auto half = std::uint8_t(offset % Cell::bytes ? 2 : 1);
    cell.barrier_bytes = std::uint8_t(lies ? cell.barrier_bytes | half : cell.barrier_bytes & ~half);
    if (lies) cell.barrier_site = party_of(fiber, Action::barrier, site);
}

}  // namespace gf_emulator
