// The order of one block's accesses. Time is one counter per worker, incremented at every synchronisation; an
// access carries its time. A thread's knowledge of another is the time up to which the other's accesses precede
// its own next one.
//
// A __syncthreads orders all accesses of all threads before it: one number, `floor`, records it. A __syncwarp of
// all living lanes does the same for a warp. Only operations that order some of the threads (partial masks, named
// barriers, atomics after fences) need a row of times for each thread: a vector clock (Flanagan and Freund,
// "FastTrack", 2009).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace gf_emulator {

class Clocks {
public:
    using Time = std::uint32_t;
    // By thread of the block; behind these, once the block has executed a proxy fence, the times up to which the
    // threads' accesses are made known to the asynchronous proxy.
    using Row = std::vector<Time>;

    void start_block(unsigned thread_count);

    Time now() const { return now_; }
    Time floor() const { return floor_; }
    Time warp_floor(unsigned warp) const { return warp_floor_[warp]; }
    // When threads of the warp last made what they did known to anybody. Accesses of one thread that have no such
    // event between them are known to the same others.
    Time event(unsigned warp) const { return std::max(floor_, warp_event_[warp]); }
    // Whether threads were ever ordered otherwise than as whole warps and blocks.
    bool partial() const { return partial_; }
    // What `thread` knows of `other`.
    Time known(unsigned thread, unsigned other) const;

    Time tick() { return now_++; }
    void block_met();
    void lanes_met(unsigned warp, std::uint32_t lanes, bool all_living);
    // Publishes what `thread` knows and did until now, and takes over what was published.
    void release(unsigned thread, Row& into);
    void acquire(unsigned thread, const Row& from);

    // What the thread did and knows is from now on known to the asynchronous proxy, for whoever learns of this fence
    // (PTX ISA, "Proxies" and "fence.proxy.async").
    void proxy_fence(unsigned thread);
    // The same of global memory, whose fences GlobalShadow keeps: up to when the thread knows each other one.
    Row global_proxy_fence(unsigned thread);
    // Up to when `thread` knows `other`'s accesses to be fenced so.
    Time fenced(unsigned thread, unsigned other) const;

private:
    bool has_row(unsigned thread) const { return row_since_[thread] > floor_; }
    Row& row(unsigned thread);
    void add_known(unsigned thread, Row& into) const;
    void open_proxy();
    void join_fenced();

    Time now_ = 1;
    Time floor_ = 0;
    std::array<Time, 32> warp_floor_{};
    std::array<Time, 32> warp_has_rows_since_{};
    std::array<Time, 32> warp_event_{};
    bool partial_ = false;
    unsigned thread_count_ = 0;
    unsigned width_ = 0;  // of rows: twice the number of threads after a proxy fence
    Row all_fenced_;      // what all threads knew to be fenced when the block last met
    std::vector<Time> row_since_;
    std::vector<Row> rows_;
    Row joined_;
};

}  // namespace gf_emulator
