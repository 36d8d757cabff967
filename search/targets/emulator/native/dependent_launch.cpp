// Programmatic dependent launch (PTX ISA, "griddepcontrol"). Launches run one after the other here, each to its end. A
// launch that waits for the one before it, or follows one that lets others start early, may start before that one has
// ended: what comes before the wait must not meet what that launch wrote, nor write what it read.
#include "worker.h"

namespace gf_emulator {

void GlobalShadow::keep_last_launch() {
    const bool keeps = touches_.size() > 1 && touches_.size() <= most_kept_touches;
    touches_before_.clear();
    if (keeps) touches_before_.swap(touches_);
    for (Buffer& buffer : buffers_) {
        buffer.first_before.clear();
        if (keeps) buffer.first_before.swap(buffer.first);
        buffer.first.assign(buffer.written.size(), 0);  // an object that nobody has opened has no words
    }
    may_start_early_ = lets_others_start_.exchange(false);
}

bool GlobalShadow::met_last_launch(std::size_t buffer, std::size_t word, unsigned bytes, Action action,
                                   Earlier& earlier) const {
    const Buffer& all = buffers_[buffer];
    if (word >= all.first_before.size() || touches_before_.empty()) return false;
    for (std::uint32_t at = all.first_before[word]; at; at = touches_before_[at].next) {
        const GlobalTouch& touch = touches_before_[at];
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
    if (comes_after_last_launch(running.fiber.thread)) return;
    const std::size_t end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        GlobalShadow::Earlier earlier;
        if (shadow.met_last_launch(buffer, word, ((1u << (stop - begin)) - 1u) << begin % 4, running.action, earlier)) {
            // The other launch's library is the same; its blocks' and threads' places are not known any more.
            Finding finding{"race", memory, long(begin), bytes, party(running), party(0, earlier.site, earlier.action)};
            finding.detail = launch_is_under_way;
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
