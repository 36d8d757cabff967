#include "counting.h"

#include <algorithm>

#include "warp.h"

namespace gf_emulator {

void SiteTotals::add(const SiteTotals& other) {
    instructions += other.instructions;
    bytes += other.bytes;
    wavefronts += other.wavefronts;
    wavefronts_ideal += other.wavefronts_ideal;
    sectors += other.sectors;
    sectors_ideal += other.sectors_ideal;
}

void EventTotals::add(const EventTotals& other) {
    barriers += other.barriers;
    warp_collectives += other.warp_collectives;
    special_functions += other.special_functions;
    async_copy_bytes += other.async_copy_bytes;
    bulk_copy_bytes += other.bulk_copy_bytes;
    for (std::size_t i = 0; i < wgmma_flop.size(); i++) wgmma_flop[i] += other.wgmma_flop[i];
    operand_bytes += other.operand_bytes;
    mbarrier_operations += other.mbarrier_operations;
    copy_rounds += other.copy_rounds;
    atomics += other.atomics;
    printfs += other.printfs;
    for (std::size_t i = 0; i < matrix_flop.size(); i++) matrix_flop[i] += other.matrix_flop[i];
}

void Counting::clear() {
    events = EventTotals();
    sites_.clear();
    slots_.clear();
    keys_.clear();
    for (WarpTable& table : tables_) table = WarpTable();
}

void Counting::grow() {
    slots_.assign(std::max<std::size_t>(256, slots_.size() * 2), Slot());
    const std::vector<std::uintptr_t> keys = std::move(keys_);
    keys_.clear();
    for (const std::uintptr_t key : keys)
        site_number(reinterpret_cast<const void*>(key / kinds), Access(key % kinds));
}

unsigned Counting::site_number(const void* site, Access kind) {
    if (keys_.size() * 2 >= slots_.size()) grow();
    const std::uintptr_t key = std::uintptr_t(site) * kinds + std::uintptr_t(kind);
    for (std::size_t probe = key * 0x9E3779B97F4A7C15ull >> 40;; probe++) {
        Slot& slot = slots_[probe & (slots_.size() - 1)];
        if (slot.key == key) return slot.number;
        if (slot.key != 0) continue;
        slot = {key, unsigned(keys_.size())};
        keys_.push_back(key);
        return slot.number;
    }
}

void Counting::access(unsigned warp, unsigned lane, std::uint64_t offset, unsigned bytes, Access kind,
                      const void* site) {
    const unsigned number = site_number(site, kind);
    WarpTable& table = tables_[warp];
    if (number >= table.by_site.size()) table.by_site.resize(keys_.size());
    Executions& executions = table.by_site[number];
    const std::size_t turn = executions.by_lane[lane]++;
    if (turn >= recorded_limit) {
        executions.unrecorded++;
        return;
    }
    if (executions.accesses.empty()) table.used.push_back(number);
    if (turn >= executions.accesses.size()) executions.accesses.emplace_back();
    WarpAccess& access = executions.accesses[turn];
    access.lanes |= 1u << lane;
    access.bytes = std::max(access.bytes, bytes);
    access.offset[lane] = offset;
}

void Counting::judge_shared(const WarpAccess& access, Access kind, SiteTotals& totals) {
    // 32 lanes of 4 bytes move at once; of 8 bytes, 16 lanes; of 16 bytes, 8. One phase takes as many
    // wavefronts as its busiest bank has different words; lanes that add floats to one word take turns, too.
    const unsigned lanes_a_phase = access.bytes <= 4 ? 32 : access.bytes == 8 ? 16 : 8;
    for (unsigned first = 0; first < 32; first += lanes_a_phase) {
        std::array<std::uint64_t, 64> words;
        unsigned count = 0;
        for (unsigned lane = first; lane < first + lanes_a_phase; lane++) {
            if (!(access.lanes >> lane & 1)) continue;
            const std::uint64_t begin = access.offset[lane] / 4,
                                end = (access.offset[lane] + access.bytes - 1) / 4;
            for (std::uint64_t word = begin; word <= end && count < words.size(); word++)
                words[count++] = word;
        }
        if (count == 0) continue;
        std::sort(words.begin(), words.begin() + count);
        if (kind != Access::shared_float_addition)
            count = unsigned(std::unique(words.begin(), words.begin() + count) - words.begin());
        std::array<unsigned, 32> by_bank{};
        unsigned busiest = 0;
        for (unsigned i = 0; i < count; i++) busiest = std::max(busiest, ++by_bank[words[i] % 32]);
        totals.wavefronts += busiest;
        totals.wavefronts_ideal++;
    }
}

void Counting::judge_global(const WarpAccess& access, SiteTotals& totals) {
    constexpr unsigned sector_bytes = 32;
    std::array<std::uint64_t, 64> sectors;
    unsigned count = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(access.lanes >> lane & 1)) continue;
        sectors[count++] = access.offset[lane] / sector_bytes;
        const std::uint64_t last = (access.offset[lane] + access.bytes - 1) / sector_bytes;
        if (last != sectors[count - 1]) sectors[count++] = last;
    }
    std::sort(sectors.begin(), sectors.begin() + count);
    count = unsigned(std::unique(sectors.begin(), sectors.begin() + count) - sectors.begin());
    const std::uint64_t wanted = std::uint64_t(access.bytes) * __builtin_popcount(access.lanes);
    totals.sectors += count;
    totals.sectors_ideal += std::min<std::uint64_t>(count, (wanted + sector_bytes - 1) / sector_bytes);
}

void Counting::flush(WarpTable& table) {
    for (const unsigned number : table.used) {
        Executions& executions = table.by_site[number];
        const Access kind = Access(keys_[number] % kinds);
        const bool shared = kind != Access::global_read && kind != Access::global_write;
        SiteTotals totals;
        std::uint64_t recorded = 0;
        for (const WarpAccess& access : executions.accesses) {
            totals.instructions++;
            recorded += __builtin_popcount(access.lanes);
            totals.bytes += std::uint64_t(access.bytes) * __builtin_popcount(access.lanes);
            shared ? judge_shared(access, kind, totals) : judge_global(access, totals);
        }
        const double scale = 1.0 + double(executions.unrecorded) / double(recorded);
        if (executions.unrecorded)
            for (std::uint64_t* sum : {&totals.instructions, &totals.bytes, &totals.wavefronts,
                                       &totals.wavefronts_ideal, &totals.sectors, &totals.sectors_ideal})
                *sum = std::uint64_t(double(*sum) * scale + 0.5);
        sites_[{reinterpret_cast<const void*>(keys_[number] / kinds), kind}].add(totals);
        executions.by_lane.fill(0);
        executions.unrecorded = 0;
        executions.accesses.clear();
    }
    table.used.clear();
}

void Counting::lanes_agree(const Warp& warp, std::uint32_t arrived) {
    if (enabled_ && arrived == warp.alive()) flush(tables_[warp.index()]);
}

void Counting::barrier(unsigned warp_count) {
    events.barriers++;
    block_ended(warp_count);
}

void Counting::block_ended(unsigned warp_count) {
    if (!enabled_) return;
    for (unsigned w = 0; w < warp_count; w++) flush(tables_[w]);
}

}  // namespace gf_emulator
