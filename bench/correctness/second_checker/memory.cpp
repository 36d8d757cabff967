// The judgement: each access and each asynchronous operation against the recorded past of its bytes.
#include <cstring>

#include "machine.h"

namespace second {

namespace {

std::string where(const Block& block, std::size_t offset, std::size_t bytes) {
    return std::to_string(bytes) + " bytes of shared memory at +" + std::to_string(offset) + " of block " +
           std::to_string(block.index.x) + "," + std::to_string(block.index.y) + "," + std::to_string(block.index.z);
}

bool is_over(const Operation& operation, const Knowledge& knows) { return knows.of(operation.fact) >= operation.end; }

unsigned mask_of(std::size_t word, std::size_t begin, std::size_t end) {
    unsigned mask = 0;
    for (unsigned byte = 0; byte < 4; byte++)
        mask |= unsigned(word * 4 + byte >= begin && word * 4 + byte < end) << byte;
    return mask;
}

}  // namespace

// Offsets as the kernel's own addresses of shared memory count: the static part, then the dynamic one.
bool Machine::place_of(const void* address, Block*& block, std::size_t& offset) {
    const char* byte = static_cast<const char*>(address);
    if (byte >= launch.statics && byte < launch.statics + launch.static_bytes) {
        block = running->block, offset = std::size_t(byte - launch.statics);
        return true;
    }
    for (auto& one : cluster->blocks)
        if (byte >= one->dynamic && byte < one->dynamic + launch.dynamic_bytes) {
            block = one.get(), offset = launch.dynamic_offset + std::size_t(byte - one->dynamic);
            return true;
        }
    return false;
}

void Machine::generic(const void* address, std::size_t bytes, bool write, const void* site) {
    if (!running || !bytes) return;
    const char* stack = running->stack;
    if (static_cast<const char*>(address) >= stack && static_cast<const char*>(address) < stack + (192 << 10))
        return local(address, bytes, write, site);
    Block* block;
    std::size_t offset;
    if (!place_of(address, block, offset)) return;  // global memory, which is not judged here
    Thread& self = *running;
    if (!block->alive) find("race", "shared memory of a block that has ended is touched", site);
    block->visited_by(self, site);
    const std::size_t end = offset + bytes;
    if (end > launch.dynamic_offset + launch.dynamic_bytes)
        return find("out_of_bounds", where(*block, offset, bytes), site);
    for (std::size_t number = offset / 16; number <= (end - 1) / 16; number++) {
        Chunk& chunk = block->past.chunks[number];
        unsigned mask = 0;
        for (unsigned i = 0; i < 16; i++) mask |= unsigned(number * 16 + i >= offset && number * 16 + i < end) << i;
        if (chunk.barrier & mask) find(write ? "race" : "uninitialised", "an mbarrier's bytes are used as data", site);
        if (chunk.is_written_by_copy && !is_over(chunk.copy, self.knows))
            find(write ? "race" : "in_flight_read", where(*block, offset, bytes) + ": a copy to it may be under way", site,
                 chunk.copy.site);
        if (!write && (chunk.written & mask) != mask)
            find("uninitialised", where(*block, offset, bytes) + " were never written", site);
        if (!write) continue;
        chunk.written |= std::uint16_t(mask);
        for (const Operation& read : chunk.reads)
            if (!is_over(read, self.knows))
                find("race", where(*block, offset, bytes) + ": an asynchronous read of it may be under way", site, read.site);
    }
    const Count now = self.knows.of(self.number);
    for (std::size_t number = offset / 4; number <= (end - 1) / 4; number++) {
        Word& word = block->past.words[number];
        const unsigned mask = mask_of(number, offset, end);
        const auto against = [&](std::vector<Generic>& others) {
            for (std::size_t i = 0; i < others.size();) {
                const Generic& other = others[i];
                const bool before = self.knows.of(other.thread) >= other.time;
                if ((other.bytes & mask) && !before)
                    find("race", where(*block, offset, bytes) + ": no order between two threads", site, other.site);
                if (write && before && !(other.bytes & ~mask))
                    others[i] = others.back(), others.pop_back();
                else
                    i++;
            }
        };
        against(word.writes);
        if (write) against(word.reads);
        std::vector<Generic>& mine = write ? word.writes : word.reads;
        bool known = false;
        for (Generic& one : mine)
            if (one.thread == self.number && one.bytes == mask) one.time = now, one.site = site, known = true;
        if (!known) mine.push_back({self.number, now, site, mask});
    }
}

// An asynchronous operation of whole chunks, by an issuer who knows `issuer`.
void Machine::async(Block& block, std::size_t offset, std::size_t bytes, bool write, const Knowledge& issuer,
                    const Operation& operation) {
    const std::size_t all = launch.dynamic_offset + launch.dynamic_bytes;
    if (offset + bytes > all) return find("out_of_bounds", where(block, offset, bytes), operation.site);
    const auto before = [&](const Generic& other, bool wrote) {
        if (issuer.of(other.thread) < other.time)
            find("race", where(block, offset, bytes) + ": a thread's access is not ordered before it", operation.site, other.site);
        else if (wrote && issuer.of(cluster->threads + other.thread) < other.time)
            find("race", where(block, offset, bytes) + ": no proxy fence behind a thread's write", operation.site, other.site);
    };
    for (std::size_t number = offset / 16; number <= (offset + bytes - 1) / 16; number++) {
        Chunk& chunk = block.past.chunks[number];
        if (chunk.barrier && write) find("race", "a copy overwrites an mbarrier", operation.site);
        if (chunk.is_written_by_copy && !is_over(chunk.copy, issuer))
            find(write ? "race" : "in_flight_read", where(block, offset, bytes) + ": a copy to it may be under way",
                 operation.site, chunk.copy.site);
        if (!write && chunk.written != 0xffff)
            find("uninitialised", where(block, offset, bytes) + " were never written", operation.site);
        for (std::size_t word = number * 4; word < number * 4 + 4; word++) {
            for (const Generic& other : block.past.words[word].writes) before(other, true);
            if (!write) continue;
            for (const Generic& other : block.past.words[word].reads) before(other, false);
            block.past.words[word] = {};
        }
        if (write) {
            for (const Operation& read : chunk.reads)
                if (!is_over(read, issuer))
                    find("race", where(block, offset, bytes) + ": an asynchronous read of it may be under way", operation.site,
                         read.site);
            chunk.reads.clear();
            chunk.copy = operation, chunk.is_written_by_copy = true, chunk.written = 0xffff;
            continue;
        }
        bool known = false;
        for (Operation& read : chunk.reads)
            if (read.fact == operation.fact) read = operation, known = true;
        if (!known) chunk.reads.push_back(operation);
    }
}

// A thread's own memory: only accumulators of products matter.
void Machine::local(const void* address, std::size_t bytes, bool write, const void* site) {
    Thread& self = *running;
    const char* byte = static_cast<const char*>(address);
    for (const InFlight& one : self.accumulators)
        if (byte + bytes > one.first && byte < one.first + one.bytes)
            find(write ? "race" : "in_flight_read", "accumulators are touched while their product may be under way", site);
    if (write && self.fenced_products) self.written_since_fence.emplace_back(byte, bytes);
}

// --- mbarriers ---

Barrier& Machine::barrier(Block& block, std::size_t offset, const void* site, bool by_copy) {
    Thread& self = *running;
    const auto place = block.barriers.find(offset);
    if (offset % 8) fail("misaligned", "an mbarrier's address is no multiple of 8", site);
    if (place == block.barriers.end()) fail("uninitialised", "no mbarrier was made here", site);
    Barrier& barrier = place->second;
    const bool remote = &block != self.block;
    if (remote && !block.alive) find("race", "an mbarrier of a block that has ended", site, barrier.site);
    if (self.knows.of(barrier.initialiser) < barrier.initialised)
        find("race", "an mbarrier is used by a thread that its mbarrier_init is not ordered before", site, barrier.site);
    const bool fenced = barrier.fenced && self.knows.of(barrier.initialiser) >= barrier.fenced;
    const bool by_proxy_fence = self.knows.of(cluster->threads + barrier.initialiser) >= barrier.initialised;
    if ((remote && !fenced) || (by_copy && !fenced && !by_proxy_fence))
        find("race", "an mbarrier is used by a copy or another block, and no mbarrier_init_fence lies between", site, barrier.site);
    return barrier;
}

void Machine::complete(Block& block, Barrier& barrier, std::size_t offset) {
    if (barrier.now.pending || barrier.now.bytes) return;
    for (const Load& load : cluster->loads)
        if (load.to == &block && load.barrier == offset && load.phase == barrier.completed + 1)
            find("in_flight_read", "a phase ends before all bytes of its copies have landed", load.operation.site, barrier.site);
    for (const Moment& one : barrier.now.expectations)
        if (barrier.now.published.of(one.thread) < one.time)
            find("race", "bytes are expected in a phase that may end before", one.site, barrier.site);
    barrier.completed++;
    barrier.last = barrier.now.published;
    barrier.now = Phase();
    barrier.now.pending = barrier.expected;
    for (Thread* thread : barrier.waiting) thread->ready = true;
    barrier.waiting.clear();
}

void Machine::land(std::size_t number) {
    const Load load = cluster->loads[number];
    cluster->loads.erase(cluster->loads.begin() + long(number));
    const auto place = load.to->barriers.find(load.barrier);
    if (place == load.to->barriers.end()) return find("race", "a copy's mbarrier is gone", load.operation.site);
    if (!load.to->alive) find("unwaited_copy", "a copy lands in a block that has ended", load.operation.site);
    place->second.now.bytes -= load.bytes;
    complete(*load.to, place->second, load.barrier);
}

// --- products (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions") ---

namespace {

// The 16 bytes of line `line` (a row of A, a column of B; along K where the operand is transposed) at chunk `chunk`.
std::size_t chunk_at(std::uint64_t descriptor, bool transposed, unsigned line, unsigned chunk) {
    const std::size_t start = (descriptor & 0x3fff) * 16, leading = (descriptor >> 16 & 0x3fff) * 16,
                      stride = (descriptor >> 32 & 0x3fff) * 16;
    const unsigned mode = unsigned(descriptor >> 62);
    if (mode == 0) {  // core matrices of 8 lines of 16 bytes, one after the other
        const std::size_t lines = line / 8 * (transposed ? leading : stride);
        return start + lines + line % 8 * 16 + chunk * (transposed ? stride : leading);
    }
    const std::size_t width = mode == 1 ? 128 : mode == 2 ? 64 : 32;
    std::size_t at = start + line / 8 * stride + line % 8 * width;
    at += transposed ? chunk * 16 / width * leading + chunk * 16 % width : chunk * 16;
    // Within 8 lines the place of a chunk is its number, exclusive-or the line's.
    const std::size_t bits = width == 128 ? 7 : width == 64 ? 3 : 1;
    return at ^ (at >> 7 & bits) << 4;
}

}  // namespace

void Machine::issue_product(Block& block, unsigned warp) {
    Thread* lanes = &block.threads[warp * 32];
    const auto& operands = *reinterpret_cast<const ProductOperands*>(lanes[0].request.value);
    const void* site = lanes[0].site;
    if (block.threads.size() < (warp / 4 + 1) * 128) fail("divergence", "a product of a warpgroup that is not whole", site);
    std::vector<ProductOperands>& order = block.products[warp / 4];
    WarpProducts& mine = block.warps[warp];
    if (mine.issued == order.size()) order.push_back(operands);
    if (order[mine.issued].shape() != operands.shape())
        fail("divergence", "the warps of a warpgroup issue different products", site);
    mine.issued++;
    Knowledge common = lanes[0].knows;
    for (unsigned lane = 1; lane < 32; lane++) {
        const auto& other = *reinterpret_cast<const ProductOperands*>(lanes[lane].request.value);
        if (other.shape() != operands.shape()) fail("divergence", "the lanes of a warp issue different products", site);
        common.meet(lanes[lane].knows);
    }
    // A group is the warpgroup's ("wgmma.commit_group"): the wait of any of its warps speaks for all. CUTLASS relies on
    // that, too: one thread of a warpgroup sets a stage free.
    const Operation operation{block.product_facts[warp / 4], mine.committed + 1, site};
    const unsigned element_bytes = operands.element == gf_emulator::Element::float16 ||
                                   operands.element == gf_emulator::Element::bfloat16 ? 2 : 1;
    const unsigned depth = 32 / element_bytes;
    const auto read = [&](std::uint64_t descriptor, bool transposed, unsigned size, unsigned from, unsigned to) {
        const unsigned mode = unsigned(descriptor >> 62), pattern = mode == 0 ? 16 : mode == 1 ? 1024 : mode == 2 ? 512 : 256;
        if (mode && (descriptor & 0x3fff) * 16 % pattern >= pattern / 8)
            fail("misaligned", "an operand of a product starts between the rows of its swizzle", site);
        const bool by_stride = (transposed ? depth : size) > 8;
        if (mode && by_stride && (descriptor >> 32 & 0x3fff) * 16 % pattern)
            fail("misaligned", "an operand's stride is no multiple of its swizzle's pattern", site);
        // Transposed, lines run along K and chunks along the operand's rows.
        for (unsigned line = transposed ? 0 : from; line < (transposed ? depth : to); line++)
            for (unsigned chunk = transposed ? from * element_bytes / 16 : 0;
                 chunk < (transposed ? to * element_bytes / 16 : 2); chunk++)
                async(block, chunk_at(descriptor, transposed, line, chunk), 16, false, common, operation);
    };
    read(operands.b, operands.flags & 4, unsigned(operands.columns), 0, unsigned(operands.columns));
    if (!operands.a_in_registers) read(operands.a, operands.flags & 2, 64, warp % 4 * 16, warp % 4 * 16 + 16);
    for (unsigned lane = 0; lane < 32; lane++) {
        Thread& thread = lanes[lane];
        const auto& own = *reinterpret_cast<const ProductOperands*>(thread.request.value);
        const char* first = reinterpret_cast<const char*>(own.d);
        const std::size_t bytes = std::size_t(own.columns) * 2;
        bool known = false;
        for (InFlight& one : thread.accumulators)
            if (one.first == first) one.group = mine.committed + 1, known = true;
        if (known) continue;
        bool changed = !thread.fenced_products;
        for (const auto& [written, count] : thread.written_since_fence)
            changed |= written < first + bytes && written + count > first;
        if (changed) find("race", "accumulators were written since the warp's last wgmma_fence, or it has none", site);
        thread.accumulators.push_back({first, bytes, mine.committed + 1});
        // Any values: what a kernel does with them must not matter for its order.
        for (int i = 0; i < own.columns / 2; i++)
            if (!(own.flags & 1)) own.d[i] = float(int(random() % 4096) - 2048) / 64;
    }
}

void Machine::commit_products(Block& block, unsigned warp) {
    block.warps[warp].committed++;
    for (Thread* thread : block.product_waiters) thread->ready = true;
    block.product_waiters.clear();
}

void Machine::wait_for_products(Count left_in_flight, const void* site) {
    Thread& self = *running;
    Block& block = *self.block;
    self.site = site;
    const Count committed = block.warps[self.warp].committed;
    if (committed <= left_in_flight) return;
    const Count end = committed - left_in_flight;
    const unsigned first = self.warp / 4 * 4;
    for (unsigned warp = first; warp < first + 4;) {
        if (block.warps[warp].committed >= end) {
            warp++;
            continue;
        }
        block.product_waiters.push_back(&self);
        pause("products that not every warp of the warpgroup has issued");
    }
    self.knows.learn(block.product_facts[self.warp / 4], end);
    for (std::size_t i = 0; i < self.accumulators.size();)
        if (self.accumulators[i].group <= end)
            self.accumulators[i] = self.accumulators.back(), self.accumulators.pop_back();
        else
            i++;
}

}  // namespace second
