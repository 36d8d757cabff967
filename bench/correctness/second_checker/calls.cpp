// What a kernel library calls: the hooks of its loads and stores, and the border gf_emulator/abi.h. Of the latter only
// what the wgmma templates use; any other call ends the judgement as `unsupported`.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine.h"

using namespace second;
using gf_emulator::Collective;

#define SITE __builtin_return_address(0)

namespace {

Thread& self() { return *machine.running; }

struct Place {
    Block* block;
    std::size_t offset;
};
Place shared(const void* address, const void* site) {
    Place place{};
    if (!machine.place_of(address, place.block, place.offset))
        machine.fail("out_of_bounds", "an operation of shared memory is given another address", site);
    return place;
}

struct Map {  // what child.py makes of a tensor map
    char* base;
    std::uint64_t tag;
    std::uint32_t rank, element_bytes, box[4];
    std::uint64_t box_bytes() const {
        std::uint64_t bytes = element_bytes;
        for (unsigned axis = 0; axis < rank; axis++) bytes *= box[axis];
        return bytes;
    }
};
constexpr std::uint64_t map_tag = 0x5345434f4e44;

const Map& map_at(const void* map, const void* site) {
    const Map& known = *static_cast<const Map*>(map);
    if (known.tag != map_tag) machine.fail("device_fault", "a tensor copy is given no tensor map", site);
    return known;
}

void load(Place to, std::uint64_t bytes, std::size_t barrier_offset, const void* site) {
    Barrier& barrier = machine.barrier(*to.block, barrier_offset, site, true);
    const Operation operation{barrier.fact, barrier.completed + 1, site};
    machine.async(*to.block, to.offset, bytes, true, self().knows, operation);
    machine.cluster->loads.push_back({to.block, barrier_offset, barrier.completed + 1, long(bytes), operation, to.offset});
}

void store(const void* from, std::uint64_t bytes, const void* site) {
    const Place place = shared(from, site);
    Thread& thread = self();
    if (!thread.store_fact) thread.store_fact = machine.cluster->fresh_fact();
    thread.has_open_stores = true;
    machine.async(*place.block, place.offset, bytes, false, thread.knows, {thread.store_fact, thread.store_groups + 1, site});
}

void arrive(Block& block, std::size_t offset, const void* site) {
    Barrier& barrier = machine.barrier(block, offset, site, false);
    if (barrier.now.pending == 0) return machine.find("race", "an arrival beyond those of the phase", site, barrier.site);
    block.visited_by(self(), site);
    barrier.now.published.join(self().knows);
    machine.tick(self());
    barrier.now.pending--;
    machine.complete(block, barrier, offset);
}

bool has_completed(Barrier& barrier, unsigned parity) {
    if ((barrier.completed & 1) == (parity & 1)) return false;
    if (barrier.completed) {
        self().knows.join(barrier.last);
        self().knows.learn(barrier.fact, barrier.completed);
    }
    return true;
}

void rows(const void* row, int matrices, bool write, const void* site) {
    // Eight lanes give the rows of each matrix.
    if (self().lane < unsigned(matrices) * 8) {
        if (std::uintptr_t(row) % 16) machine.fail("misaligned", "a matrix's row is no multiple of 16", site);
        machine.generic(row, 16, write, site);
    }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#define HOOK(name, bytes, write) \
    void __tsan_##name##bytes(void* address) { machine.generic(address, bytes, write, SITE); }
#define HOOKS(bytes)                             \
    HOOK(read, bytes, false)                     \
    HOOK(write, bytes, true)                     \
    HOOK(unaligned_read, bytes, false)           \
    HOOK(unaligned_write, bytes, true)           \
    HOOK(volatile_read, bytes, false)            \
    HOOK(volatile_write, bytes, true)            \
    HOOK(unaligned_volatile_read, bytes, false)  \
    HOOK(unaligned_volatile_write, bytes, true)
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* address, unsigned long bytes) { machine.generic(address, bytes, false, SITE); }
void __tsan_write_range(void* address, unsigned long bytes) { machine.generic(address, bytes, true, SITE); }
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
    machine.generic(from, bytes, false, SITE), machine.generic(to, bytes, true, SITE);
    return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
    machine.generic(from, bytes, false, SITE), machine.generic(to, bytes, true, SITE);
    return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
    machine.generic(to, bytes, true, SITE);
    return std::memset(to, value, bytes);
}
void __tsan_init() {}

uint3 gf_emulator_thread_index() { return self().index; }
uint3 gf_emulator_block_index() { return self().block->index; }
uint3 gf_emulator_block_size() { return machine.launch.block; }
uint3 gf_emulator_grid_size() { return machine.launch.grid; }
uint3 gf_emulator_cluster_size() { return machine.launch.cluster; }
unsigned gf_emulator_lane() { return self().lane; }
void* gf_emulator_dynamic_shared() { return self().block->dynamic; }
std::size_t gf_emulator_shared_offset(const void* pointer) { return shared(pointer, SITE).offset; }
void gf_emulator_special_function() {}
void gf_emulator_set_registers(unsigned registers, bool grow) {
    self().site = SITE;
    if (self().lane == 0) self().block->register_calls[self().warp].push_back(grow ? int(registers) : -int(registers));
    machine.collective({Collective::set_registers, ~0u, 0, 0, 0, 32}, SITE);
}
void gf_emulator_yield() { machine.give_way(); }

int gf_emulator_block_barrier(gf_emulator::BarrierOperation, int predicate, int) {
    self().site = SITE;
    machine.meet_block();
    return predicate;
}
void gf_emulator_named_barrier(unsigned id, unsigned threads, bool wait) {
    self().site = SITE;
    machine.meet(self().block->named[id], threads, wait, "a named barrier");
}
void gf_emulator_cluster_arrive() { machine.arrive_at_cluster(); }
void gf_emulator_cluster_wait() {
    self().site = SITE;
    machine.wait_for_cluster();
}
void* gf_emulator_map_shared_rank(void* address, unsigned rank) {
    const Place place = shared(address, SITE);
    if (rank >= machine.cluster->blocks.size() || place.offset < machine.launch.dynamic_offset)
        machine.fail("unsupported", "a static variable of another block", SITE);
    return machine.cluster->blocks[rank]->dynamic + (place.offset - machine.launch.dynamic_offset);
}
std::uint64_t gf_emulator_warp_collective(unsigned mask, Collective kind, std::uint64_t value, int argument, int width) {
    return machine.collective({kind, mask, value, 0, argument, width}, SITE);
}
bool gf_emulator_elect() {
    machine.collective({Collective::elect, ~0u, 0, 0, 0, 32}, SITE);
    return self().lane == machine.leader;
}
bool gf_emulator_elect_of(unsigned lanes) {
    machine.collective({Collective::elect, lanes, 0, 0, 0, 32}, SITE);
    const unsigned among = lanes & ~((1u << machine.leader) - 1u);
    return self().lane == unsigned(__builtin_ctz(among ? among : lanes));
}
void gf_emulator_ldmatrix(unsigned* registers, const void* row, int count, bool) {
    machine.collective({Collective::ldmatrix, ~0u, 0, 0, 0, 32}, SITE);
    rows(row, count, false, SITE);
    for (int i = 0; i < count; i++) registers[i] = 0;
}
void gf_emulator_stmatrix(void* row, const unsigned*, int count, bool) {
    machine.collective({Collective::stmatrix, ~0u, 0, 0, 0, 32}, SITE);
    rows(row, count, true, SITE);
}

void gf_emulator_mbarrier_init(void* address, unsigned arrivals) {
    const Place place = shared(address, SITE);
    if (place.block->barriers.count(place.offset)) machine.find("race", "a new mbarrier while the old one lives", SITE);
    machine.generic(address, 8, true, SITE);
    place.block->past.chunks[place.offset / 16].barrier |= std::uint16_t(0xff << place.offset % 16);
    Barrier& barrier = place.block->barriers[place.offset];
    barrier = Barrier();
    barrier.expected = arrivals;
    barrier.now.pending = arrivals;
    barrier.fact = machine.cluster->fresh_fact();
    barrier.initialiser = self().number;
    barrier.initialised = self().knows.of(self().number);
    barrier.site = SITE;
    machine.tick(self());
}
void gf_emulator_mbarrier_init_fence() {
    for (auto& [offset, barrier] : self().block->barriers)
        if (barrier.initialiser == self().number && !barrier.fenced) barrier.fenced = self().knows.of(self().number);
    machine.tick(self());
}
void gf_emulator_mbarrier_invalidate(void* address) {
    const Place place = shared(address, SITE);
    place.block->barriers.erase(place.offset);
    place.block->past.chunks[place.offset / 16].barrier &= std::uint16_t(~(0xff << place.offset % 16));
    machine.generic(address, 8, true, SITE);
}
void gf_emulator_mbarrier_arrive(void* address) {
    const Place place = shared(address, SITE);
    arrive(*place.block, place.offset, SITE);
}
void gf_emulator_mbarrier_arrive_rank(void* address, unsigned rank) {
    const Place place = shared(address, SITE);
    if (rank >= machine.cluster->blocks.size()) machine.fail("out_of_bounds", "a rank beyond the cluster", SITE);
    arrive(*machine.cluster->blocks[rank], place.offset, SITE);
}
void gf_emulator_mbarrier_expect(void* address, unsigned bytes, bool arrives) {
    const Place place = shared(address, SITE);
    Barrier& barrier = machine.barrier(*place.block, place.offset, SITE, false);
    barrier.now.bytes += bytes;
    barrier.now.expectations.push_back({self().number, self().knows.of(self().number), SITE});
    if (arrives)
        arrive(*place.block, place.offset, SITE);
    else
        machine.complete(*place.block, barrier, place.offset);
}
bool gf_emulator_mbarrier_try_wait(void* address, unsigned parity) {
    const Place place = shared(address, SITE);
    if (has_completed(machine.barrier(*place.block, place.offset, SITE, false), parity)) return true;
    machine.give_way();
    return false;
}
void gf_emulator_mbarrier_wait(void* address, unsigned parity) {
    const Place place = shared(address, SITE);
    self().site = SITE;
    while (!has_completed(machine.barrier(*place.block, place.offset, SITE, false), parity)) {
        place.block->barriers[place.offset].waiting.push_back(&self());
        machine.pause("a phase of an mbarrier");
    }
}
void gf_emulator_proxy_fence(bool of_shared, bool) {
    if (!of_shared) return;  // global memory is not judged
    self().knows.fence(machine.cluster->threads);
    machine.tick(self());
}
void gf_emulator_fence(bool) {}

void gf_emulator_tensor_load(void* to, const void* map, void* barrier, const unsigned* ranks, int, const int*) {
    const Place place = shared(to, SITE), at = shared(barrier, SITE);
    const Map& known = map_at(map, SITE);
    if (place.offset % 128) machine.fail("misaligned", "a tensor copy's place is no multiple of 128", SITE);
    if (!ranks) return load(place, known.box_bytes(), at.offset, SITE);
    for (unsigned rank = 0; rank < 32; rank++)
        if (*ranks >> rank & 1) {
            if (rank >= machine.cluster->blocks.size()) machine.fail("out_of_bounds", "a rank beyond the cluster", SITE);
            load({machine.cluster->blocks[rank].get(), place.offset}, known.box_bytes(), at.offset, SITE);
        }
}
void gf_emulator_tensor_store(const void* map, const void* from, int, const int*) {
    store(from, map_at(map, SITE).box_bytes(), SITE);
}
void gf_emulator_bulk_load(void* to, const void*, unsigned bytes, void* barrier) {
    load(shared(to, SITE), bytes, shared(barrier, SITE).offset, SITE);
}
void gf_emulator_bulk_store(void*, const void* from, unsigned bytes) { store(from, bytes, SITE); }
void gf_emulator_bulk_commit() {
    self().store_groups++;
    if (!self().has_open_stores) return;
    self().has_open_stores = false;
    self().last_full_group = self().store_groups;
}
void gf_emulator_dependent_launch_wait() {}
void gf_emulator_dependent_launch_allow() {}
void gf_emulator_bulk_wait(int left, bool) {
    if (self().store_groups <= Count(left)) return;
    self().stores_waited = self().store_groups - Count(left);
    if (self().store_fact) self().knows.learn(self().store_fact, self().stores_waited);
}

void gf_emulator_wgmma(float* d, unsigned long long a, const unsigned* registers, unsigned long long b, int columns,
                       gf_emulator::Element element, unsigned flags) {
    const ProductOperands operands{d, a, b, registers != nullptr, columns, element, flags};
    machine.collective({Collective::wgmma, ~0u, std::uint64_t(&operands), 0, 0, 32}, SITE);
}
void gf_emulator_wgmma_fence() {
    machine.collective({Collective::wgmma_fence, ~0u, 0, 0, 0, 32}, SITE);
    self().fenced_products = true;
    self().written_since_fence.clear();
}
void gf_emulator_wgmma_commit() { machine.collective({Collective::wgmma_commit, ~0u, 0, 0, 0, 32}, SITE); }
void gf_emulator_wgmma_wait(int left) {
    machine.collective({Collective::wgmma_wait, ~0u, 0, 0, 0, 32}, SITE);
    machine.wait_for_products(Count(left), SITE);
}

void __ubsan_handle_type_mismatch_v1_abort(void*, std::uintptr_t) {
    machine.fail("misaligned", "an access at an address that is no multiple of its size", SITE);
}

// --- for the child in Python ---

struct SecondJob {
    void (*entry)(void**);
    void** arguments;
    unsigned grid[3], block[3], cluster[3];
    unsigned long dynamic_bytes, static_bytes;
    char* statics;
    unsigned long seed, clusters;  // at most so many of them run, evenly chosen
};
// The findings as lines of JSON, in a buffer that lives until the next call.
const char* second_judge(const SecondJob* job) {
    Launch& launch = machine.launch;
    launch = {job->entry, job->arguments, {job->grid[0], job->grid[1], job->grid[2]},
              {job->block[0], job->block[1], job->block[2]}, {job->cluster[0], job->cluster[1], job->cluster[2]},
              job->dynamic_bytes, job->static_bytes, (job->static_bytes + 127) / 128 * 128, job->statics};
    machine.random.seed(unsigned(job->seed));
    machine.findings.clear();
    const std::uint64_t all = std::uint64_t(job->grid[0]) * job->grid[1] * job->grid[2] /
                              (job->cluster[0] * job->cluster[1] * job->cluster[2]);
    const std::uint64_t count = std::min<std::uint64_t>(all, job->clusters);
    for (std::uint64_t i = 0; i < count && machine.findings.empty(); i++)
        machine.run_cluster(count == 1 ? 0 : i * (all - 1) / (count - 1));
    static std::string text;
    text.clear();
    for (const Finding& one : machine.findings) {
        char line[64];
        std::snprintf(line, sizeof line, "\", \"site\": %lu, \"other\": %lu}\n", (unsigned long)one.site, (unsigned long)one.other);
        text += "{\"kind\": \"" + one.kind + "\", \"text\": \"" + one.text + line;
    }
    return text.c_str();
}

}  // extern "C"
#pragma GCC visibility pop
