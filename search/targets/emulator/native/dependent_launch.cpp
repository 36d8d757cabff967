// Programmatic dependent launch (PTX ISA, "griddepcontrol"). Launches run one after the other here, each to its end. A
// launch that waits for the one before it, or follows one that lets others start early, may start before that one has
// ended: what comes before the wait must not meet what that launch wrote, nor write what it read.
#include "worker.h"

namespace gf_emulator {

void GlobalShadow::keep_last_launch() {
    const bool keeps = touches_.size() > 1 && touches_.size() <= most_kept_touches;
    // The end of a launch that started early and did not wait says nothing about the one before it.
    const bool waited = waited_.exchange(false), keeps_older = started_early_ && !waited;
    touches_older_.clear();
    if (keeps_older) touches_older_.swap(touches_before_);
    touches_before_.clear();
    if (keeps) touches_before_.swap(touches_);
    for (Buffer& buffer : buffers_) {
        buffer.first_older.clear();
        if (keeps_older) buffer.first_older.swap(buffer.first_before);
        buffer.first_before.clear();
        if (keeps) buffer.first_before.swap(buffer.first);
        buffer.first.assign(buffer.written.size(), 0);  // an object that nobody has opened has no words
    }
    may_start_early_ = started_early_ = lets_others_start_.exchange(false);
}

bool GlobalShadow::met_earlier_launch(bool older, std::size_t buffer, std::size_t word, unsigned bytes, Action action,
                                      Earlier& earlier) const {
    const std::vector<GlobalTouch>& touches = older ? touches_older_ : touches_before_;
    const std::vector<std::uint32_t>& first = older ? buffers_[buffer].first_older : buffers_[buffer].first_before;
    if (word >= first.size() || touches.empty()) return false;
    for (std::uint32_t at = first[word]; at; at = touches[at].next) {
        const GlobalTouch& touch = touches[at];
        if (!(touch.bytes() & bytes) || (!writes(touch.action()) && !writes(action))) continue;
        earlier = {touch.block, touch.warp() * 32 + unsigned(__builtin_ctz(touch.lanes)), touch.site, touch.action(),
                   false, false, false};
        return true;
    }
    return false;
}

void Checker::waits_for_last_launch(unsigned thread) {
    settle();
    block_.worker().launch().global_shadow->waits_for_last_launch();
    launch_waits_.resize(block_.thread_count(), 0);
    if (!launch_waits_[thread]) launch_waits_[thread] = clocks_.tick();
}

bool Checker::comes_after_last_launch(unsigned thread) const {
    for (unsigned other = 0; other < launch_waits_.size(); other++)
        if (launch_waits_[other] && (other == thread || clocks_.known(thread, other) >= launch_waits_[other])) return true;
    return false;
}

void Checker::meets_last_launch(std::size_t buffer, const std::string& memory, std::size_t offset, unsigned bytes,
                                const Running& running) {
    const GlobalShadow& shadow = *block_.worker().launch().global_shadow;
    const bool waited = comes_after_last_launch(running.fiber.thread);
    if (waited && !shadow.passes_over()) return;
    const std::size_t end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        GlobalShadow::Earlier earlier;
        const unsigned mask = ((1u << (stop - begin)) - 1u) << begin % 4;
        const bool meets_last = !waited && shadow.met_earlier_launch(false, buffer, word, mask, running.action, earlier);
        if (meets_last || shadow.met_earlier_launch(true, buffer, word, mask, running.action, earlier)) {
            // The other launch's library is the same; its blocks' and threads' places are not known any more.
            Finding finding{"race", memory, long(begin), bytes, party(running), party(0, earlier.site, earlier.action)};
            finding.detail = meets_last ? launch_is_under_way : older_launch_is_under_way;
            return findings().add(finding);
        }
        begin = stop;
    }
}

}  // namespace gf_emulator

using namespace gf_emulator;

#pragma GCC visibility push(default)
extern "C" {

void gf_emulator_dependent_launch_wait() {
    Worker& worker = Worker::current();
    if (Checker* checker = worker.checker()) checker->waits_for_last_launch(worker.fiber().thread);
}

void gf_emulator_dependent_launch_allow() {
    Worker& worker = Worker::current();
    if (worker.checker()) worker.launch().global_shadow->lets_others_start();
}

}  // extern "C"
#pragma GCC visibility pop
