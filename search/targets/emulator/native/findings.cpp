#include "findings.h"

#include "report.h"

namespace gf_emulator {

Findings& findings() {
    static Findings instance;
    return instance;
}

const char* name_of(Action action) {
    switch (action) {
        case Action::read: return "read";
        case Action::write: return "write";
        case Action::atomic: return "atomic";
        case Action::copy: return "copy";
        case Action::matrix_read: return "matrix_read";
        case Action::matrix_write: return "matrix_write";
        case Action::volatile_read: return "volatile_read";
        case Action::volatile_write: return "volatile_write";
        case Action::block_atomic: return "block_atomic";
        case Action::bulk_write: return "bulk_write";
        case Action::bulk_read: return "bulk_read";
        case Action::wgmma_read: return "wgmma_read";
        case Action::barrier: return "barrier";
        case Action::block_volatile_read: return "block_volatile_read";
        case Action::block_volatile_write: return "block_volatile_write";
        case Action::bulk_load: return "bulk_load";
    }
    return "?";
}

void Findings::start_run() {
    const std::lock_guard<std::mutex> lock(mutex_);
    numbers_.clear();
    counts_.clear();
    expected_.clear();
    announced_.clear();
}

void Findings::add(const Finding& finding) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_reader = reads_beside_atomics(finding.party.action, finding.other.action);
    if (!is_reader && !reads_beside_atomics(finding.other.action, finding.party.action)) return keep(finding);
    const void* reader = is_reader ? finding.party.site : finding.other.site;
    Expected& expected = expected_[reader];
    if (expected.refuted) return keep(finding);
    if (expected.waiting.size() >= kept) return;
    expected.waiting.push_back(finding);
    if (!expected.explained) announce(finding, reader);
}

void Findings::announce(const Finding& finding, const void* reader) {
    if (announced_.size() < kept && announced_.emplace(finding.kind, finding.party.site, finding.other.site).second)
        report().waiting_finding(finding, reader);
}

void Findings::swap_follows(const void* site, bool follows) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Expected& expected = expected_[site];
    if (follows && !expected.explained) report().explained(site);
    (follows ? expected.explained : expected.refuted) = true;
    if (follows) return;
    for (const Finding& finding : expected.waiting) keep(finding);
    expected.waiting.clear();
}

void Findings::end_run() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [site, expected] : expected_)
        if (!expected.explained)
            for (const Finding& finding : expected.waiting) keep(finding);
    expected_.clear();
}

void Findings::keep(const Finding& finding) {
    const Key key{finding.kind, finding.party.site, finding.other.site};
    const auto found = numbers_.find(key);
    if (found != numbers_.end()) {
        counts_[found->second]++;
        return;
    }
    if (numbers_.size() >= kept) return;
    counts_[numbers_.size()] = 1;
    numbers_.emplace(key, numbers_.size());
    report().finding(finding);
}

std::string Findings::counts() const {
    std::string text;
    for (const auto& [number, count] : counts_) text += format("%s%lu", text.empty() ? "" : ",", count);
    return text;
}

}  // namespace gf_emulator
