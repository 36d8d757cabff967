#include "bulk_copy.h"

#include <algorithm>
#include <cstring>

#include "atomics.h"
#include "worker.h"

namespace gf_emulator {

namespace {

constexpr std::size_t chunk_bytes = 16, sector_bytes = 32;
constexpr unsigned char bulk_poison = 0xff;
constexpr unsigned char nan_bytes[2] = {0xf7, 0x7f};  // of what lies outside, in each type (an H200)
constexpr unsigned most_box_elements = 256;  // elements along an axis (CUDA Driver API, "cuTensorMapEncodeTiled")

// What every copy asks for, beside its barrier.
void check_box(Worker& worker, const Block& block, const CopiedBox& box, const void* site, bool store) {
    const EmulatedTensorMap& map = box.map;
    const char* what = store ? "a bulk store" : "a bulk load";
    const bool is_tensor = map.tag == tensor_map_tag;
    if (box.row_bytes() % chunk_bytes)
        worker.fail("misaligned", site,
                    format("%s of %s%zu bytes, which is not a multiple of 16", what, is_tensor ? "rows of " : "",
                           box.row_bytes()));
    if (map.swizzle_bytes && box.row_bytes() > map.swizzle_bytes)
        worker.fail("misaligned", site,
                    format("%s of rows of %zu bytes, and its swizzle has %u", what, box.row_bytes(), map.swizzle_bytes));
    const SharedMemory& shared = const_cast<Block&>(block).shared();
    if (!shared.contains(box.shared))
        worker.fail("out_of_bounds", site, format("%s names an address outside its block's shared memory", what));
    if (!box.all_parts([&](char* begin, std::size_t bytes) { return shared.contains(begin + bytes - 1); }))
        worker.fail("out_of_bounds", site,
                    format("%s of %zu bytes begins in shared memory at +%zu and ends behind it", what, box.bytes(),
                           shared.offset(box.shared)));
    bool strides_fit = std::uintptr_t(map.base) % chunk_bytes == 0;
    for (unsigned axis = 1; axis < map.rank; axis++) strides_fit &= map.strides_bytes[axis - 1] % chunk_bytes == 0;
    if (!strides_fit && !is_tensor)
        worker.fail("misaligned", site,
                    format("%s an address that is not a multiple of 16", store ? "a bulk store to" : "a bulk load from"));
    if (!strides_fit)
        worker.fail("misaligned", site, format("%s of a tensor whose address or strides are no multiples of 16", what));
}

// A swizzled box may begin within its pattern, which follows the address's bits (CUDA C++ Programming Guide, "TMA
// swizzle": 128 bytes for each mode).
void check_place(Worker& worker, const Block& block, const CopiedBox& box, const void* site, std::size_t needed) {
    if (std::uintptr_t(box.shared) % needed)
        worker.fail("misaligned", site,
                    format("a bulk copy's place in shared memory, +%zu, is not a multiple of %zu",
                           const_cast<Block&>(block).shared().offset(box.shared), needed));
}

void check_reduction(Worker& worker, const CopiedBox& box, const void* site) {
    const int type = box.map.element_type;
    if (type < 0) worker.fail("device_fault", site, "a bulk reduction of a tensor whose type has no atomics");
    const bool of_floats = AtomicType(type) == AtomicType::float32 || AtomicType(type) == AtomicType::float64 ||
                           AtomicType(type) == AtomicType::float16 || AtomicType(type) == AtomicType::bfloat16;
    if (of_floats && box.reduction != AtomicOperation::add)
        worker.fail("device_fault", site, "a bulk reduction of floats by another operation than add");
}

// A tensor's memory outside its buffer faults here, where the copy was written.
void touch_tensor(Worker& worker, const CopiedBox& box, Action action, const void* site) {
    for (std::size_t row = 0; row < box.rows(); row++) {
        char* address = nullptr;
        std::size_t bytes = box.inside(row, address);
        if (!bytes) continue;
        if (action == Action::write) bytes = box.stored(bytes, address);
        if (Checker* checker = worker.checker()) checker->access(address, unsigned(bytes), action, site);
        static_cast<void>(*static_cast<const volatile char*>(address));
        static_cast<void>(*static_cast<const volatile char*>(address + bytes - 1));
        if (!worker.counting().enabled()) continue;
        for (std::size_t at = 0; at < bytes;) {
            const std::size_t next = std::min(bytes, at + sector_bytes - std::uintptr_t(address + at) % sector_bytes);
            worker.count_access(address + at, unsigned(next - at), writes(action), site);
            at = next;
        }
    }
}

}  // namespace

std::size_t BulkCopies::Load::chunk_of(unsigned piece) const { return box.bytes() / chunk_bytes * piece / pieces; }

std::size_t CopiedBox::rows() const {
    std::size_t count = 1;
    for (unsigned axis = 1; axis < map.rank; axis++) count *= map.box[axis];
    return count;
}

char* CopiedBox::place(std::size_t chunk) const {
    const std::size_t in_row = row_bytes() / chunk_bytes, step = std::max<std::size_t>(row_bytes(), map.swizzle_bytes);
    return swizzled(shared + chunk / in_row * step + chunk % in_row * chunk_bytes, map.swizzle_bytes);
}

bool CopiedBox::all_parts(const std::function<bool(char*, std::size_t)>& holds) const {
    if (!map.swizzle_bytes || row_bytes() == map.swizzle_bytes) return holds(shared, bytes());
    for (std::size_t chunk = 0; chunk < bytes() / chunk_bytes; chunk++)
        if (!holds(place(chunk), chunk_bytes)) return false;
    return true;
}

std::size_t CopiedBox::inside(std::size_t row, char*& address) const {
    address = reinterpret_cast<char*>(map.base);
    for (unsigned axis = 1; axis < map.rank; axis++) {
        const long index = at[axis] + long(row % map.box[axis]);
        row /= map.box[axis];
        if (index < 0 || index >= long(map.sizes[axis])) return 0;
        address += std::size_t(index) * map.strides_bytes[axis - 1];
    }
    const long begin = std::max(at[0], 0l), end = std::min(at[0] + long(map.box[0]), long(map.sizes[0]));
    if (begin >= end) return 0;
    address += std::size_t(begin) * map.element_bytes;
    return std::size_t(end - begin) * map.element_bytes;
}

void CopiedBox::move_to_global(char* to, const char* from, std::size_t bytes) const {
    if (reduces)
        update_element(to, from, reduction, AtomicType(map.element_type));
    else
        std::memcpy(to, from, bytes);
}

std::size_t CopiedBox::stored(std::size_t bytes, const char* address) const {
    const std::size_t beside = -(std::uintptr_t(address) + bytes) % chunk_bytes;
    const long behind = (at[0] + long(map.box[0]) - long(map.sizes[0])) * long(map.element_bytes);
    return bytes + std::min(beside, std::size_t(std::max(behind, 0l)));
}

bool CopiedBox::is_inside() const {
    for (unsigned axis = 0; axis < map.rank; axis++)
        if (at[axis] < 0 || at[axis] + long(map.box[axis]) > long(map.sizes[axis])) return false;
    return true;
}

bool CopiedBox::chunk_is_outside(std::size_t chunk) const {
    const std::size_t in_row = row_bytes() / chunk_bytes;
    char* first = nullptr;
    if (!inside(chunk / in_row, first)) return true;
    const long begin = long(chunk % in_row * chunk_bytes), element = long(map.element_bytes);
    return begin + long(chunk_bytes) <= -at[0] * element || begin >= (long(map.sizes[0]) - at[0]) * element;
}

void CopiedBox::move_chunk(std::size_t chunk, bool to_shared) const {
    const std::size_t in_row = row_bytes() / chunk_bytes, row = chunk / in_row;
    char* const there = place(chunk);
    char* first = nullptr;  // of the row's part inside the tensor
    std::size_t bytes = inside(row, first);
    if (!to_shared && bytes && !reduces) bytes = stored(bytes, first);
    const long skipped = std::max(-at[0], 0l) * long(map.element_bytes);  // of the row, before that part
    for (std::size_t i = 0; i < chunk_bytes; i += map.element_bytes) {
        const long in_part = long(chunk % in_row * chunk_bytes + i) - skipped;
        const bool is_inside = in_part >= 0 && in_part < long(bytes);
        if (to_shared && is_inside)
            std::memcpy(there + i, first + in_part, map.element_bytes);
        else if (to_shared)
            for (std::size_t b = i; b < i + map.element_bytes; b++) there[b] = char(map.fill_nan ? nan_bytes[b % 2] : 0);
        else if (is_inside)
            move_to_global(first + in_part, there + i, map.element_bytes);
    }
}

void CopiedBox::move(std::size_t from_chunk, std::size_t to_chunk, bool to_shared) const {
    for (std::size_t chunk = from_chunk; chunk < to_chunk; chunk++) move_chunk(chunk, to_shared);
}

void BulkCopies::start_block() {
    loads_.clear();
    stores_.clear();
    read_.clear();
}

void BulkCopies::load(Block& block, Block& from, Fiber& fiber, const CopiedBox& box, void* barrier, const void* site) {
    Load load{box, barrier, 0, nullptr};
    for (unsigned piece = 0; piece < pieces; piece++)
        if (load.chunk_of(piece) < load.chunk_of(piece + 1)) load.left |= 1u << piece;
    std::shared_ptr<Completion> end = block.mbarriers().completion_of_copy(block, from, fiber, barrier, site);
    if (block.checker().enabled()) {
        load.operation = from.checker().operation(fiber, Action::bulk_write, site, end);
        const char* source = reinterpret_cast<const char*>(box.map.base);
        if (from.shared().contains(source)) {
            const auto reading = from.checker().operation(fiber, Action::bulk_read, site, end);
            reading->ends_at_a_barrier = true;
            from.checker().async_read(from.shared().offset(source), box.bytes(),
                                      {from.checker(), {fiber.thread, fiber.thread}, reading});
        }
        box.all_parts([&](char* begin, std::size_t bytes) {
            block.checker().async_write(block.shared().offset(begin), bytes,
                                        {from.checker(), {fiber.thread, fiber.thread}, load.operation});
            return true;
        });
    }
    box.all_parts([&](char* begin, std::size_t bytes) {
        std::memset(begin, bulk_poison, bytes);
        return true;
    });
    block.worker().counting().events.bulk_copy_bytes += box.bytes();
    loads_.push_back(std::move(load));
    block.progresses();
    stir(block);
}

// Nothing is stored from the part of a box that lies outside the tensor: nobody needs to have written it.
void BulkCopies::reads_source(Block& block, const Fiber& fiber, const CopiedBox& box,
                              const std::shared_ptr<AsyncOperation>& operation) {
    const Checker::AsyncIssue issue{block.checker(), {fiber.thread, fiber.thread}, operation};
    const auto is_read = [&](char* begin, std::size_t bytes) {
        block.checker().async_read(block.shared().offset(begin), bytes, issue);
        return true;
    };
    if (box.is_inside()) {
        box.all_parts(is_read);
        return;
    }
    for (std::size_t chunk = 0; chunk < box.bytes() / chunk_bytes; chunk++)
        if (!box.chunk_is_outside(chunk)) is_read(box.place(chunk), chunk_bytes);
}

void BulkCopies::store(Block& block, Fiber& fiber, const CopiedBox& box, const void* site) {
    Store store{box, &fiber, fiber.bulk_group, 0, nullptr};
    if (block.checker().enabled()) {
        store.issued = block.checker().clocks().tick();
        store.operation = block.checker().operation(fiber, Action::bulk_read, site,
                                                    std::make_shared<Completion>(block.checker(), block.thread_count()));
        reads_source(block, fiber, box, store.operation);
    }
    block.worker().counting().events.bulk_copy_bytes += box.bytes();
    stores_.push_back(std::move(store));
}

// Whoever is not ordered after this moment may meet the store under way, and so does its block before it.
void BulkCopies::is_complete(Block& block, const Store& store) {
    for (std::size_t row = 0; row < store.box.rows(); row++) {
        char* address = nullptr;
        const std::size_t bytes = store.box.inside(row, address);
        if (bytes && store.box.reduces)
            block.checker().access(address, unsigned(bytes), Action::atomic, store.operation->party.site);
        else if (bytes)
            block.checker().bulk_store_ends(address, unsigned(store.box.stored(bytes, address)), store.issued,
                                            store.operation->party.site);
    }
}

void BulkCopies::wait(Block& block, Fiber& fiber, unsigned groups_left_in_flight, bool for_reads) {
    const auto is_over = [&](const Store& store) {
        return store.fiber == &fiber && store.group + groups_left_in_flight < fiber.bulk_group;
    };
    if (!for_reads && !read_.empty()) {
        for (const Store& store : read_)
            if (is_over(store)) is_complete(block, store);
        read_.erase(std::remove_if(read_.begin(), read_.end(), is_over), read_.end());
    }
    for (const Store& store : stores_) {
        if (!is_over(store)) continue;
        store.box.move(0, store.box.bytes() / chunk_bytes, false);
        if (!store.operation) continue;
        block.checker().saw(*store.operation->end, fiber.thread);
        if (for_reads)
            read_.push_back(store);
        else
            is_complete(block, store);
    }
    stores_.erase(std::remove_if(stores_.begin(), stores_.end(), is_over), stores_.end());
}

const BulkCopies::Load* BulkCopies::under_way_for(const Completion* end) const {
    for (const Load& load : loads_)
        if (load.operation && load.operation->end.get() == end) return &load;
    return nullptr;
}

void BulkCopies::land_piece(Block& block) {
    if (loads_.empty()) return;
    block.progresses();
    const std::size_t number = block.choose(unsigned(std::min<std::size_t>(loads_.size(), 32)));
    Load& load = loads_[number];
    const unsigned piece = block.choose_bit(load.left);
    const std::size_t begin = load.chunk_of(piece), end = load.chunk_of(piece + 1);
    load.box.move(begin, end, true);
    load.left &= ~(1u << piece);
    void* const barrier = load.barrier;
    if (!load.left) loads_.erase(loads_.begin() + long(number));
    block.mbarriers().bytes_landed(block, barrier, unsigned((end - begin) * chunk_bytes));
}

void BulkCopies::stir(Block& block) {
    if (!loads_.empty() && block.order().is_seeded() && block.choose(4) == 0) land_piece(block);
}

void BulkCopies::finish(Block& block) {
    const auto unwaited = [&](const std::shared_ptr<AsyncOperation>& operation, const CopiedBox& box) {
        if (operation)
            block.checker().async_finding("unwaited_copy", block.shared().offset(box.shared), unsigned(box.bytes()),
                                          operation->party, {}, "async:and nobody waits for the copy before the block ends");
    };
    for (const Load& load : loads_) unwaited(load.operation, load.box);
    for (const Store& store : stores_) {
        unwaited(store.operation, store.box);
        store.box.move(0, store.box.bytes() / chunk_bytes, false);
        if (store.operation) read_.push_back(store);
    }
    for (const Store& store : read_) block.on_behalf_of(*store.fiber, [&] { is_complete(block, store); });
    start_block();
}

}  // namespace gf_emulator

#define SITE __builtin_return_address(0)
using namespace gf_emulator;

namespace {

CopiedBox box_of(const void* map, int rank, const int* at, void* shared, const void* site) {
    CopiedBox box{};
    Worker& worker = Worker::current();
    worker.fiber().site = site;
    if (Checker* checker = worker.checker()) checker->access(map, unsigned(sizeof box.map), Action::read, site);
    std::memcpy(&box.map, map, sizeof box.map);
    if (box.map.tag == copied_tensor_map_tag)
        worker.fail("device_fault", site,
                    "a tensor copy is given a map in local memory: the kernel's parameter is not __grid_constant__, so its "
                    "address is that of a copy; a kernel takes a map as const __grid_constant__");
    if (box.map.tag != tensor_map_tag)
        worker.fail("device_fault", site,
                    "a tensor copy is given 128 bytes that the launch has not made a tensor map");
    if (int(box.map.rank) != rank)
        worker.fail("device_fault", site,
                    format("a tensor copy with %d coordinates of a tensor map of %u dims", rank, box.map.rank));
    const unsigned element = box.map.element_bytes, swizzle = box.map.swizzle_bytes;
    bool is_whole = (element == 1 || element == 2 || element == 4 || element == 8) &&
                    (swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128);
    for (int axis = 0; axis < rank; axis++) {
        box.at[axis] = at[axis];
        is_whole &= box.map.box[axis] >= 1 && box.map.box[axis] <= most_box_elements;
    }
    if (!is_whole) worker.fail("device_fault", site, "a tensor copy is given a map with sizes that no map has");
    if (box.at[0] * long(element) % long(chunk_bytes))
        worker.fail("misaligned", site,
                    format("a tensor copy begins at coordinate %ld of the innermost dim, which takes multiples of %zu: a "
                           "box begins at a multiple of 16 bytes (a GPU ends the kernel with an illegal instruction)",
                           box.at[0], chunk_bytes / element));
    box.shared = static_cast<char*>(shared);
    return box;
}

CopiedBox bytes_of(const void* global, unsigned bytes, void* shared) {
    CopiedBox box{};
    box.map.base = static_cast<unsigned char*>(const_cast<void*>(global));
    box.map.sizes[0] = box.map.box[0] = bytes;
    box.map.rank = box.map.element_bytes = 1;
    box.shared = static_cast<char*>(shared);
    return box;
}

void load_box(const CopiedBox& box, void* barrier, const unsigned* rank_mask, std::size_t alignment, const void* site) {
    Worker& worker = Worker::current();
    Block& from = worker.block();
    Fiber& fiber = from.current();
    fiber.site = site;
    if (!box.map.box[0]) return;  // no bytes
    check_box(worker, from, box, site, false);
    check_place(worker, from, box, site, alignment);
    touch_tensor(worker, box, Action::bulk_load, site);
    if (!rank_mask) return from.bulk_copies().load(from, from, fiber, box, barrier, site);
    for (unsigned left = *rank_mask; left; left &= left - 1) {
        Block& to = worker.cluster().block_of_rank(barrier, unsigned(__builtin_ctz(left)), site);
        CopiedBox there = box;
        there.shared = static_cast<char*>(to.shared().at_same_place(from.shared(), box.shared));
        to.bulk_copies().load(to, from, fiber, there, to.shared().at_same_place(from.shared(), barrier), site);
    }
}

void move_box(const CopiedBox& box, void* barrier, const void* site) {
    Worker& worker = Worker::current();
    Block& from = worker.block();
    from.current().site = site;
    if (!box.map.box[0]) return;  // no bytes
    const char* source = reinterpret_cast<const char*>(box.map.base);
    if (!from.shared().contains(source) || !from.shared().contains(source + box.bytes() - 1))
        worker.fail("out_of_bounds", site,
                    format("a bulk copy of %zu bytes to another block comes from outside its own block's shared memory",
                           box.bytes()));
    Block& to = worker.cluster().owner(box.shared, site);
    if (&worker.cluster().owner(barrier, site) != &to)
        worker.fail("device_fault", site, "a bulk copy to a block's shared memory completes on an mbarrier of another block");
    check_box(worker, to, box, site, false);
    check_place(worker, to, box, site, chunk_bytes);
    to.bulk_copies().load(to, from, from.current(), box, barrier, site);
}

// Loads fill what lies before the tensor, stores may not begin there (measured on an H200).
void check_no_negative(Worker& worker, const CopiedBox& box, const void* site) {
    for (unsigned axis = 0; axis < box.map.rank; axis++)
        if (box.at[axis] < 0)
            worker.fail("device_fault", site,
                        format("a tensor store at coordinate %ld of dim %u, innermost first: a store takes no negative "
                               "coordinates (a GPU ends the kernel with an illegal instruction)",
                               box.at[axis], axis));
}

void store_box(const CopiedBox& box, std::size_t alignment, const void* site) {
    Worker& worker = Worker::current();
    Block& block = worker.block();
    block.current().site = site;
    if (!box.map.box[0]) return;  // no bytes
    check_no_negative(worker, box, site);
    check_box(worker, block, box, site, true);
    check_place(worker, block, box, site, alignment);
    if (box.reduces) check_reduction(worker, box, site);
    touch_tensor(worker, box, box.reduces ? Action::atomic : Action::write, site);
    block.bulk_copies().store(block, block.current(), box, site);
}

}  // namespace

extern "C" {

void gf_emulator_tensor_load(void* shared, const void* map, void* barrier, const unsigned* rank_mask, int rank,
                             const int* at) {
    load_box(box_of(map, rank, at, shared, SITE), barrier, rank_mask, 128, SITE);
}
void gf_emulator_tensor_store(const void* map, const void* shared, int rank, const int* at) {
    store_box(box_of(map, rank, at, const_cast<void*>(shared), SITE), 128, SITE);
}
void gf_emulator_tensor_reduce(const void* map, const void* shared, int rank, const int* at, AtomicOperation reduction) {
    CopiedBox box = box_of(map, rank, at, const_cast<void*>(shared), SITE);
    box.reduces = true;
    box.reduction = reduction;
    store_box(box, 128, SITE);
}
void gf_emulator_bulk_load(void* shared, const void* global, unsigned bytes, void* barrier) {
    load_box(bytes_of(global, bytes, shared), barrier, nullptr, 16, SITE);
}
void gf_emulator_bulk_multicast(void* shared, const void* global, unsigned bytes, void* barrier, unsigned ranks) {
    load_box(bytes_of(global, bytes, shared), barrier, &ranks, 16, SITE);
}
void gf_emulator_bulk_move(void* to, const void* from, unsigned bytes, void* barrier) {
    move_box(bytes_of(from, bytes, to), barrier, SITE);
}
void gf_emulator_bulk_reduce(void* global, const void* shared, unsigned bytes, AtomicOperation reduction,
                             AtomicType type) {
    CopiedBox box = bytes_of(global, bytes, const_cast<void*>(shared));
    const unsigned element = size_of(type);
    box.map.element_bytes = element;
    box.map.sizes[0] = box.map.box[0] = bytes / element;
    box.map.element_type = int(type);
    box.reduces = true;
    box.reduction = reduction;
    store_box(box, 16, SITE);
}
void gf_emulator_bulk_store(void* global, const void* shared, unsigned bytes) {
    store_box(bytes_of(global, bytes, const_cast<void*>(shared)), 16, SITE);
}
void gf_emulator_bulk_commit() { Worker::current().fiber().bulk_group++; }
void gf_emulator_bulk_wait(int groups_left_in_flight, bool for_reads) {
    Block& block = Worker::current().block();
    block.current().site = SITE;
    block.bulk_copies().wait(block, block.current(), unsigned(groups_left_in_flight), for_reads);
}

}  // extern "C"
