// One cluster of CUDA threads on one OS thread: fibers, what they wait for, and what they know.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gf_emulator/abi.h"
#include "knowledge.h"

namespace second {

struct Block;

// What a lane brings to its warp's common operation, and takes away.
struct Request {
    gf_emulator::Collective kind = gf_emulator::Collective::none;
    unsigned mask = 0;
    std::uint64_t value = 0, result = 0;
    int argument = 0, width = 32;
};

struct InFlight {  // accumulators of one lane
    const char* first;
    std::size_t bytes;
    Count group;
};

struct Thread {
    unsigned number = 0;  // in the cluster
    unsigned in_block = 0, lane = 0, warp = 0;  // the warp in its block
    Block* block = nullptr;
    uint3 index{};
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    bool alive = false, ready = false;
    const char* waits_for = "";
    const void* site = nullptr;
    Request request;
    Knowledge knows;
    Count store_groups = 0, stores_waited = 0, last_full_group = 0;
    std::size_t store_fact = 0;  // 0: it has stored nothing
    bool has_open_stores = false;
    std::vector<InFlight> accumulators;
    std::vector<std::pair<const char*, std::size_t>> written_since_fence;
    bool fenced_products = false;
    Count cluster_arrivals = 0;
};

struct Moment {  // of a thread's past
    unsigned thread;
    Count time;
    const void* site;
};
struct Phase {
    Knowledge published;
    long pending = 0, bytes = 0;
    std::vector<Moment> expectations;
};
struct Barrier {
    unsigned expected = 0;
    Count completed = 0;
    Phase now;
    Knowledge last;  // published in the phase that ended last
    std::size_t fact = 0;
    unsigned initialiser = 0;
    Count initialised = 0, fenced = 0;
    const void* site = nullptr;
    std::vector<Thread*> waiting;
};
struct Load {
    Block* to;
    std::size_t barrier;  // its offset
    Count phase;
    long bytes;
    Operation operation;
    std::size_t offset;
};

struct Meeting {  // a barrier of threads
    unsigned came = 0;
    Knowledge published;
    std::vector<Thread*> waiting;
};

struct ProductOperands {
    float* d;
    std::uint64_t a, b;
    bool a_in_registers;
    int columns;
    gf_emulator::Element element;
    unsigned flags;  // 1: accumulate; 2 and 4: A and B are transposed
    auto shape() const { return std::tuple(a_in_registers ? 0 : a, b, a_in_registers, columns, element, flags); }
};
struct WarpProducts {
    std::size_t issued = 0;
    Count committed = 0;
};

struct Block {
    unsigned rank = 0;
    uint3 index{};
    std::vector<Thread> threads;
    char* dynamic = nullptr;
    std::vector<char> statics;
    Past past;
    std::map<std::size_t, Barrier> barriers;
    std::map<unsigned, Meeting> named;
    Meeting all;
    unsigned alive = 0;
    std::vector<std::vector<ProductOperands>> products;  // by warpgroup, in order
    std::vector<std::size_t> product_facts;
    std::vector<WarpProducts> warps;
    std::vector<Thread*> product_waiters;
    std::map<unsigned, Moment> visits;  // the last of each thread of another block
    std::vector<std::vector<int>> register_calls;  // by warp; negative: a shrink
    void visited_by(const Thread& thread, const void* site) {
        if (thread.block != this) visits[thread.number] = {thread.number, thread.knows.of(thread.number), site};
    }
};

struct Cluster {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<Load> loads;  // under way
    Meeting meeting;
    Knowledge met;  // what was published when it met
    Count meetings = 0;
    std::size_t threads = 0, facts = 0;
    std::size_t fresh_fact() { return facts++; }
};

struct Finding {
    std::string kind, text;
    const void *site, *other;
};

struct Launch {
    void (*entry)(void**);
    void** arguments;
    uint3 grid, block, cluster;
    std::size_t dynamic_bytes, static_bytes, dynamic_offset;
    char* statics;  // the kernel library's thread-local segment
};

class Machine {
public:
    Launch launch{};
    Cluster* cluster = nullptr;
    Thread* running = nullptr;
    std::mt19937 random;
    unsigned leader = 0;  // the lane that elect.sync names
    std::vector<Finding> findings;

    void run_cluster(std::uint64_t first_block);
    void find(const char* kind, const std::string& text, const void* site, const void* other = nullptr);
    [[noreturn]] void fail(const char* kind, const std::string& text, const void* site);
    void pause(const char* what);  // until somebody makes the running thread ready
    void give_way();               // to another, if there is any
    void tick(Thread& thread) { thread.knows.learn(thread.number, thread.knows.of(thread.number) + 1); }
    void exit_thread();

    // --- memory of the cluster's blocks ---
    bool place_of(const void* address, Block*& block, std::size_t& offset);
    char* at(Block& block, std::size_t offset);
    void generic(const void* address, std::size_t bytes, bool write, const void* site);
    void async(Block& block, std::size_t offset, std::size_t bytes, bool write, const Knowledge& issuer,
               const Operation& operation);
    void local(const void* address, std::size_t bytes, bool write, const void* site);

    // --- what threads do together ---
    void meet(Meeting& meeting, unsigned needed, bool waits, const char* what);
    void meet_block();
    void arrive_at_cluster();
    void wait_for_cluster();
    std::uint64_t collective(Request request, const void* site);
    Barrier& barrier(Block& block, std::size_t offset, const void* site, bool by_copy);
    void complete(Block& block, Barrier& barrier, std::size_t offset);
    void land(std::size_t number);

    // --- a warpgroup's products ---
    void issue_product(Block& block, unsigned warp);
    void commit_products(Block& block, unsigned warp);
    void wait_for_products(Count left_in_flight, const void* site);

private:
    void switch_to(Thread* next);
    void release(Meeting& meeting);
    void complete_cluster_meeting();
    Thread* next_ready();
    void finish_cluster();
    void finish_block(Block& block);
    void enter(Block& block);
    void answer(Block& block, unsigned warp, unsigned mask, gf_emulator::Collective kind);

    Block* entered_ = nullptr;
    void* outside_ = nullptr;
    std::set<std::tuple<std::string, const void*, const void*>> known_;
};

extern Machine machine;
[[noreturn]] void unsupported(const char* call, const void* site);

}  // namespace second
