#include "clocks.h"

#include <algorithm>

namespace gf_emulator {

void Clocks::start_block(unsigned thread_count) {
    thread_count_ = width_ = thread_count;
    if (rows_.size() < thread_count) {
        rows_.resize(thread_count);
        row_since_.resize(thread_count, 0);
    }
    block_met();
}

Clocks::Time Clocks::known(unsigned thread, unsigned other) const {
    Time time = floor_;
    if (thread / 32 == other / 32) time = std::max(time, warp_floor_[other / 32]);
    if (has_row(thread)) time = std::max(time, rows_[thread][other]);
    return time;
}

void Clocks::block_met() {
    if (width_ > thread_count_) join_fenced();
    floor_ = now_++;
}

void Clocks::open_proxy() {
    if (width_ > thread_count_) return;
    width_ = 2 * thread_count_;
    all_fenced_.assign(thread_count_, 0);
    for (unsigned t = 0; t < thread_count_; t++)
        if (has_row(t)) rows_[t].resize(width_, 0);
}

void Clocks::join_fenced() {
    for (unsigned t = 0; t < thread_count_; t++)
        if (has_row(t))
            for (unsigned other = 0; other < thread_count_; other++)
                all_fenced_[other] = std::max(all_fenced_[other], rows_[t][thread_count_ + other]);
}

void Clocks::proxy_fence(unsigned thread) {
    open_proxy();
    Row& mine = row(thread);
    for (unsigned other = 0; other < thread_count_; other++)
        mine[thread_count_ + other] = std::max(mine[thread_count_ + other], known(thread, other));
    warp_event_[thread / 32] = mine[thread_count_ + thread] = now_++;
}

Clocks::Row Clocks::global_proxy_fence(unsigned thread) {
    Row all(thread_count_);
    for (unsigned other = 0; other < thread_count_; other++) all[other] = known(thread, other);
    warp_event_[thread / 32] = all[thread] = now_++;
    return all;
}

Clocks::Time Clocks::fenced(unsigned thread, unsigned other) const {
    if (width_ == thread_count_) return 0;
    return has_row(thread) ? std::max(all_fenced_[other], rows_[thread][thread_count_ + other]) : all_fenced_[other];
}

Clocks::Row& Clocks::row(unsigned thread) {
    Row& mine = rows_[thread];
    if (!has_row(thread)) {
        mine.assign(width_, 0);
        row_since_[thread] = warp_has_rows_since_[thread / 32] = now_;
    }
    return mine;
}

void Clocks::add_known(unsigned thread, Row& into) const {
    if (into.size() < width_) into.resize(width_, 0);
    if (has_row(thread))
        for (unsigned t = 0; t < width_; t++) into[t] = std::max(into[t], rows_[thread][t]);
    const unsigned warp = thread / 32, end = std::min(thread_count_, warp * 32 + 32);
    for (unsigned t = warp * 32; t < end; t++) into[t] = std::max(into[t], warp_floor_[warp]);
    into[thread] = now_;
}

void Clocks::lanes_met(unsigned warp, std::uint32_t lanes, bool all_living) {
    warp_event_[warp] = now_;
    if (all_living && warp_has_rows_since_[warp] <= floor_) {
        warp_floor_[warp] = now_++;
        return;
    }
    partial_ = true;
    joined_.assign(width_, 0);
    for (std::uint32_t left = lanes; left; left &= left - 1)
        add_known(warp * 32 + unsigned(__builtin_ctz(left)), joined_);
    for (std::uint32_t left = lanes; left; left &= left - 1)
        row(warp * 32 + unsigned(__builtin_ctz(left))) = joined_;
    if (all_living) warp_floor_[warp] = now_;
    now_++;
}

void Clocks::release(unsigned thread, Row& into) {
    partial_ = true;
    add_known(thread, into);
    warp_event_[thread / 32] = now_++;
}

void Clocks::acquire(unsigned thread, const Row& from) {
    Row& mine = row(thread);
    for (unsigned t = 0; t < width_ && t < from.size(); t++) mine[t] = std::max(mine[t], from[t]);
    mine[thread] = now_++;
}

}  // namespace gf_emulator
