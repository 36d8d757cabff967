#include "machine.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace second {

Machine machine;

namespace {

constexpr std::size_t stack_bytes = 192 << 10;
using gf_emulator::Collective;

uint3 unfold(std::uint64_t number, uint3 size) {
    return {unsigned(number % size.x), unsigned(number / size.x % size.y), unsigned(number / size.x / size.y)};
}

std::vector<char*>& stacks() {
    static std::vector<char*> all;
    return all;
}

char* stack_of(unsigned number) {
    while (stacks().size() <= number) {
        void* pages = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) std::abort();
        mprotect(pages, 4096, PROT_NONE);
        stacks().push_back(static_cast<char*>(pages));
    }
    return stacks()[number];
}

void thread_main() {
    machine.launch.entry(machine.launch.arguments);
    machine.exit_thread();
}

}  // namespace

// Saves the callee's registers on the present stack and goes on with another.
extern "C" void second_switch(void** from, void* to);
asm(R"(
.globl second_switch
second_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

void Machine::find(const char* kind, const std::string& text, const void* site, const void* other) {
    if (known_.emplace(kind, site, other).second) findings.push_back({kind, text, site, other});
}

void unsupported(const char* call, const void* site) { machine.fail("unsupported", call, site); }

void Machine::fail(const char* kind, const std::string& text, const void* site) {
    find(kind, text, site);
    void* lost;
    second_switch(&lost, outside_);
    std::abort();
}

// The kernel library has one static segment: each block has its contents while it runs.
void Machine::enter(Block& block) {
    if (entered_ == &block) return;
    if (entered_) std::memcpy(entered_->statics.data(), launch.statics, launch.static_bytes);
    if (launch.static_bytes) std::memcpy(launch.statics, block.statics.data(), launch.static_bytes);
    entered_ = &block;
}

void Machine::switch_to(Thread* next) {
    Thread* self = running;
    if (next == self) return;
    running = next;
    if (next) enter(*next->block);
    second_switch(self ? &self->stack_pointer : &outside_, next ? next->stack_pointer : outside_);
}

// Any thread that can go on; copies land at any time, and at the latest when nothing else can happen.
Thread* Machine::next_ready() {
    for (;;) {
        if (!cluster->loads.empty() && random() % 16 == 0) land(random() % cluster->loads.size());
        const std::size_t size = cluster->blocks[0]->threads.size(), start = random() % cluster->threads;
        for (std::size_t i = 0; i < cluster->threads; i++) {
            const std::size_t number = (start + i) % cluster->threads;
            Thread& thread = cluster->blocks[number / size]->threads[number % size];
            if (thread.ready) return &thread;
        }
        if (cluster->loads.empty()) return nullptr;
        land(random() % cluster->loads.size());
    }
}

void Machine::pause(const char* what) {
    running->ready = false;
    running->waits_for = what;
    switch_to(next_ready());
}

void Machine::give_way() { switch_to(next_ready()); }

void Machine::exit_thread() {
    Thread& self = *running;
    self.alive = self.ready = false;
    Block& block = *self.block;
    block.alive--;
    if (!block.alive) finish_block(block);
    if (!self.accumulators.empty())
        find("unwaited_copy", "a matrix product is not waited for", self.site);
    if (self.has_open_stores || self.stores_waited < self.last_full_group)
        find("unwaited_copy", "a bulk store is not waited for before its thread ends", self.site);
    if (block.alive && block.all.came == block.alive) release(block.all);
    complete_cluster_meeting();
    switch_to(next_ready());
    std::abort();
}

// Nobody may still come to its memory, and its warpgroups must have set their registers as one.
void Machine::finish_block(Block& block) {
    for (const auto& [number, visit] : block.visits) {
        bool known = false;
        for (const Thread& thread : block.threads) known |= thread.knows.of(number) >= visit.time;
        if (!known) find("device_fault", "another block reaches a block that no longer waits for it", visit.site);
    }
    for (std::size_t warp = 0; warp < block.register_calls.size(); warp++)
        if (block.register_calls[warp] != block.register_calls[warp / 4 * 4])
            find("divergence", "the warps of a warpgroup set their registers otherwise", block.threads[warp * 32].site);
}

void Machine::run_cluster(std::uint64_t first_block) {
    Cluster fresh;
    cluster = &fresh;
    entered_ = nullptr;
    const unsigned count = launch.cluster.x * launch.cluster.y * launch.cluster.z;
    const unsigned size = launch.block.x * launch.block.y * launch.block.z;
    fresh.threads = std::size_t(count) * size;
    fresh.facts = 2 * fresh.threads;
    leader = random() % 32;
    const uint3 clusters{launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y, launch.grid.z / launch.cluster.z};
    const uint3 corner = unfold(first_block, clusters);
    for (unsigned rank = 0; rank < count; rank++) {
        fresh.blocks.push_back(std::make_unique<Block>());
        Block& block = *fresh.blocks.back();
        const uint3 inside = unfold(rank, launch.cluster);
        block.rank = rank;
        block.index = {corner.x * launch.cluster.x + inside.x, corner.y * launch.cluster.y + inside.y,
                       corner.z * launch.cluster.z + inside.z};
        block.statics.assign(launch.static_bytes, 0);
        // The same remainder as the offset's, for swizzles.
        char* pages = static_cast<char*>(std::aligned_alloc(1024, (launch.dynamic_bytes + 4096) / 1024 * 1024));
        std::memset(pages, 0, launch.dynamic_bytes + 1024);
        block.dynamic = pages + launch.dynamic_offset % 1024;
        block.past.start(launch.dynamic_offset + launch.dynamic_bytes + 16);
        block.threads.resize(size);
        block.alive = size;
        block.products.resize(size / 128 + 1);
        block.warps.resize((size + 31) / 32);
        block.register_calls.resize(block.warps.size());
        for (std::size_t i = 0; i < block.products.size(); i++) block.product_facts.push_back(fresh.fresh_fact());
        for (unsigned t = 0; t < size; t++) {
            Thread& thread = block.threads[t];
            thread.number = rank * size + t;
            thread.in_block = t, thread.lane = t % 32, thread.warp = t / 32;
            thread.block = &block;
            thread.index = unfold(t, launch.block);
            thread.alive = thread.ready = true;
            thread.knows.learn(thread.number, 1);
            thread.stack = stack_of(thread.number);
            void** top = reinterpret_cast<void**>(thread.stack + stack_bytes - 64);
            *--top = nullptr;
            *--top = reinterpret_cast<void*>(thread_main);
            thread.stack_pointer = top - 6;
            std::memset(thread.stack_pointer, 0, 6 * sizeof(void*));
        }
    }
    running = nullptr;
    switch_to(next_ready());
    finish_cluster();
    running = nullptr;
    for (auto& block : fresh.blocks) std::free(block->dynamic - launch.dynamic_offset % 1024);
    cluster = nullptr;
}

void Machine::finish_cluster() {
    if (!findings.empty() && running) return;  // a failure ended it
    std::set<std::string> waits;
    const void* site = nullptr;
    for (auto& block : cluster->blocks)
        for (Thread& thread : block->threads)
            if (thread.alive) waits.insert(thread.waits_for), site = thread.site;
    std::string text;
    for (const std::string& one : waits) text += (text.empty() ? "" : "; ") + one;
    if (!waits.empty()) find(text.find("warp") != std::string::npos ? "divergence" : "deadlock", "threads wait for: " + text, site);
    for (auto& block : cluster->blocks)
        for (auto& [offset, barrier] : block->barriers)
            if (barrier.now.bytes && waits.empty())
                find("unwaited_copy", "bytes of a phase that nobody waited for", barrier.site);
}

void Machine::meet(Meeting& meeting, unsigned needed, bool waits, const char* what) {
    Thread& self = *running;
    meeting.came++;
    meeting.published.join(self.knows);
    tick(self);
    if (waits) meeting.waiting.push_back(&self);
    if (meeting.came == needed) {
        release(meeting);
        return;
    }
    if (waits) pause(what);
}

void Machine::release(Meeting& meeting) {
    for (Thread* thread : meeting.waiting) thread->knows.join(meeting.published), thread->ready = true;
    meeting = Meeting();
}

void Machine::arrive_at_cluster() {
    cluster->meeting.came++;
    cluster->meeting.published.join(running->knows);
    tick(*running);
    running->cluster_arrivals++;
    complete_cluster_meeting();
}

// Threads that have exited are not waited for.
void Machine::complete_cluster_meeting() {
    unsigned alive = 0;
    for (auto& block : cluster->blocks) alive += block->alive;
    if (!cluster->meeting.came || cluster->meeting.came < alive) return;
    cluster->meetings++;
    cluster->met.join(cluster->meeting.published);
    for (Thread* thread : cluster->meeting.waiting) thread->ready = true;
    cluster->meeting = Meeting();
}

void Machine::wait_for_cluster() {
    Thread& self = *running;
    if (cluster->meetings < self.cluster_arrivals) {
        cluster->meeting.waiting.push_back(&self);
        pause("the cluster's barrier");
    }
    self.knows.join(cluster->met);
}

void Machine::meet_block() { meet(running->block->all, running->block->alive, true, "__syncthreads"); }

// --- operations of a warp ---

void Machine::answer(Block& block, unsigned warp, unsigned mask, Collective kind) {
    Thread* lanes[32];
    for (unsigned lane = 0; lane < 32; lane++)
        lanes[lane] = warp * 32 + lane < block.threads.size() ? &block.threads[warp * 32 + lane] : nullptr;
    unsigned ballot = 0;
    std::uint32_t sum = 0, low = ~0u, high = 0, all_and = ~0u, all_or = 0, all_xor = 0;
    std::int32_t low_signed = INT32_MAX, high_signed = INT32_MIN;
    Knowledge common;
    if (kind == Collective::wgmma) issue_product(block, warp);
    if (kind == Collective::wgmma_commit) commit_products(block, warp);
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) {
            const auto value = std::uint32_t(lanes[lane]->request.value);
            ballot |= unsigned(lanes[lane]->request.value != 0) << lane;
            sum += value, low = std::min(low, value), high = std::max(high, value);
            all_and &= value, all_or |= value, all_xor ^= value;
            low_signed = std::min(low_signed, std::int32_t(value)), high_signed = std::max(high_signed, std::int32_t(value));
            if (kind == Collective::sync_warp) common.join(lanes[lane]->knows);
        }
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        Request& request = lanes[lane]->request;
        const unsigned width = unsigned(request.width ? request.width : 32), base = lane & ~(width - 1);
        const auto argument = unsigned(request.argument);
        unsigned from = lane;
        switch (kind) {
            case Collective::sync_warp:
                lanes[lane]->knows.join(common);
                tick(*lanes[lane]);
                break;
            case Collective::shuffle_index: from = base + argument % width; break;
            case Collective::shuffle_up: from = lane - base >= argument ? lane - argument : lane; break;
            case Collective::shuffle_down: from = lane - base + argument < width ? lane + argument : lane; break;
            case Collective::shuffle_xor: from = (lane ^ argument) < base + width ? lane ^ argument : lane; break;
            case Collective::ballot: request.result = ballot; break;
            case Collective::any: request.result = ballot != 0; break;
            case Collective::all: request.result = ballot == mask; break;
            case Collective::reduce_add: request.result = sum; break;
            case Collective::reduce_min_unsigned: request.result = low; break;
            case Collective::reduce_max_unsigned: request.result = high; break;
            case Collective::reduce_min_signed: request.result = std::uint32_t(low_signed); break;
            case Collective::reduce_max_signed: request.result = std::uint32_t(high_signed); break;
            case Collective::reduce_and: request.result = all_and; break;
            case Collective::reduce_or: request.result = all_or; break;
            case Collective::reduce_xor: request.result = all_xor; break;
            default: break;
        }
        if (kind >= Collective::shuffle_index && kind <= Collective::shuffle_xor)
            request.result = mask >> from & 1 ? lanes[from]->request.value : request.value;
        lanes[lane]->ready = true;
        request.kind = Collective::none;
    }
}

// Ends when all lanes of the mask are at the same operation.
std::uint64_t Machine::collective(Request request, const void* site) {
    Thread& self = *running;
    Block& block = *self.block;
    self.site = site;
    self.request = request;
    if (!(request.mask >> self.lane & 1)) fail("divergence", "a lane outside the mask of its warp's operation", site);
    self.ready = false;
    for (unsigned left = request.mask; left; left &= left - 1) {
        const std::size_t number = self.warp * 32 + unsigned(__builtin_ctz(left));
        const Thread* other = number < block.threads.size() ? &block.threads[number] : nullptr;
        if (other && other->alive && other->request.kind == request.kind && other->request.mask == request.mask) continue;
        pause("an operation of a warp at which not all lanes are");
        return self.request.result;
    }
    answer(block, self.warp, request.mask, request.kind);
    self.ready = true;
    return self.request.result;
}

}  // namespace second
