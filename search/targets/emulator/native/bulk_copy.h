// Copies by the asynchronous proxy (PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor"): boxes of a tensor, or runs of
// bytes. The device may land the bytes of a load at any time, in any order; here the destination turns to poison at
// the issue, and the pieces come when no thread of the block can go on, or at moments that the seed chooses. A store
// reads its source when it is waited for. A copy to another block's shared memory is a load there.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "async_shadow.h"
#include "fiber.h"
#include "tensor_map.h"

namespace gf_emulator {

class Block;

// What one copy moves: a box of the tensor, and where it lies in shared memory.
struct CopiedBox {
    EmulatedTensorMap map;
    long at[most_tensor_map_axes];
    char* shared;
    bool reduces;  // of a store: it updates the elements by `reduction`
    AtomicOperation reduction;

    std::size_t row_bytes() const { return std::size_t(map.box[0]) * map.element_bytes; }
    std::size_t rows() const;
    std::size_t bytes() const { return rows() * row_bytes(); }
    // Where a chunk of 16 bytes lies in shared memory. Rows that are shorter than the swizzle lie at multiples of it
    // (measured on an H200), so that there are gaps between them.
    char* place(std::size_t chunk) const;
    // Every part of shared memory that the box fills, until one returns false: all of it, or each chunk beside gaps.
    bool all_parts(const std::function<bool(char* begin, std::size_t bytes)>& holds) const;
    // The part of a row that lies inside the tensor: its address, and its bytes; 0 when none does.
    std::size_t inside(std::size_t row, char*& address) const;
    bool is_inside() const;
    bool chunk_is_outside(std::size_t chunk) const;
    // What a store of these bytes writes: the copy engine writes runs of 16 bytes, so that a tensor whose rows end
    // within a run loses what lies behind them (measured on an H200: 12 bytes behind a tensor of 4).
    std::size_t stored(std::size_t bytes, const char* address) const;
    void move(std::size_t from_chunk, std::size_t to_chunk, bool to_shared) const;  // chunks of 16 bytes
    // Where the swizzle puts a chunk of a shared matrix; it looks at the address's bits (PTX ISA, "Swizzling modes").
    static char* swizzled(char* address, unsigned swizzle_bytes) {
        const auto bits = std::uintptr_t(address);
        return reinterpret_cast<char*>(swizzle_bytes ? bits ^ (bits >> 7 & (swizzle_bytes / 16 - 1)) << 4 : bits);
    }

private:
    void move_chunk(std::size_t chunk, bool to_shared) const;
    void move_to_global(char* to, const char* from, std::size_t bytes) const;
};

class BulkCopies {
public:
    static constexpr unsigned pieces = 4;  // of a load, each with a bit in `left`; a short load has fewer
    struct Load {
        CopiedBox box;
        void* barrier;
        unsigned left;
        std::shared_ptr<AsyncOperation> operation;  // of checked runs

        std::size_t chunk_of(unsigned piece) const;  // the first one of a piece
    };

    void start_block();
    // Into `block`, which is the issuing fiber's own or another of its cluster.
    void load(Block& block, Block& from, Fiber& fiber, const CopiedBox& box, void* barrier, const void* site);
    void store(Block& block, Fiber& fiber, const CopiedBox& box, const void* site);
    // `for_reads`: only until the groups have read shared memory; their writes may come later.
    void wait(Block& block, Fiber& fiber, unsigned groups_left_in_flight, bool for_reads);

    bool under_way() const { return !loads_.empty(); }
    const Load* under_way_for(const Completion* end) const;
    // Lands a piece of a load.
    void land_piece(Block& block);
    // The seed may let a piece land here.
    void stir(Block& block);
    void finish(Block& block);

private:
    struct Store {
        CopiedBox box;
        Fiber* fiber;
        std::uint32_t group;
        Clocks::Time issued;
        std::shared_ptr<AsyncOperation> operation;  // of checked runs
    };
    void is_complete(Block& block, const Store& store);
    void reads_source(Block& block, const Fiber& fiber, const CopiedBox& box,
                      const std::shared_ptr<AsyncOperation>& operation);

    std::vector<Load> loads_;
    std::vector<Store> stores_;
    std::vector<Store> read_;  // in checked runs: those that have read shared memory, and may not have written yet
};

}  // namespace gf_emulator
