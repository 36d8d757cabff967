// Matrix products of warpgroups (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). A product is issued by
// each of four warps, and done when the first of them waits for its group: the operands are read then and not before.
// From its issue to each warp's own wait the accumulators hold poison.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "async_shadow.h"
#include "matrix_descriptor.h"
#include "gf_emulator/abi.h"
#include "fiber.h"

namespace gf_emulator {

class Block;
class Warp;

// What each lane brings.
struct WgmmaOperands {
    std::uint32_t* d;
    void* const* places;  // of D's words; null: `d` is an array of them
    std::uint64_t a;
    const unsigned* a_registers;  // null: A lies in shared memory
    std::uint64_t b;
    unsigned columns;
    Element of_d, of_a, of_b;
    unsigned flags;

    bool accumulate() const { return (flags & 1) != 0; }
    bool transpose_a() const { return (flags & 2) != 0; }
    bool transpose_b() const { return (flags & 4) != 0; }
    bool negated() const { return ((flags >> 3 ^ flags >> 4) & 1) != 0; }
    bool saturates() const { return (flags & 32) != 0; }
    unsigned element_bytes() const {
        return of_a == Element::float16 || of_a == Element::bfloat16 ? 2 : of_a == Element::tf32 ? 4 : 1;
    }
    unsigned depth() const { return 32 / element_bytes(); }
    // A lane's registers of D; one holds two numbers of float16.
    unsigned words() const { return columns / (of_d == Element::float16 ? 4 : 2); }
    bool same_product(const WgmmaOperands& other) const {
        return a == other.a && !a_registers == !other.a_registers && b == other.b && columns == other.columns &&
               of_d == other.of_d && of_a == other.of_a && of_b == other.of_b && flags == other.flags;
    }
};

class Warpgroups {
public:
    static constexpr unsigned warps = 4, rows_of_warp = 16;
    // Whether any checked run of this process has accumulators: their accesses are then watched.
    static inline std::atomic<bool> watched{false};

    void start_block();
    void fence(Warp& warp);
    void issue(Block& block, Warp& warp, const void* site);
    void commit(Block& block, Warp& warp, const void* site);
    void wait(Block& block, Fiber& fiber, unsigned groups_left_in_flight, const void* site);
    // A thread's access of its own memory, which may be an accumulator.
    void own_access(Block& block, Fiber& fiber, const void* address, std::size_t bytes, bool write, const void* site);
    bool someone_waits() const;
    void finish(Block& block);

private:
    // One warp's part of an accumulator, by its lanes' addresses.
    struct Accumulator {
        std::array<std::uint32_t*, 32> lanes{};
        std::vector<std::uint32_t*> places;  // of all lanes' words; empty: each lane has an array
        unsigned columns = 0, words = 0;
        Element element = Element::float32;
        bool changed = true;     // by its threads, since their last fence
        unsigned in_flight = 0;  // products
        std::uint64_t last = 0;  // the last one's number
        std::vector<std::uint32_t> sums;  // while in flight: 16 rows of floats, or of integers
        Party issued{};

        // The byte of the lane's part that lies at the address; -1: none does.
        long offset(unsigned lane, const void* address) const {
            constexpr std::size_t word = sizeof(std::uint32_t);
            const auto from = [&](const void* start) { return std::uintptr_t(address) - std::uintptr_t(start); };
            if (places.empty()) return from(lanes[lane]) < words * word ? long(from(lanes[lane])) : -1;
            for (unsigned i = 0; i < words; i++)
                if (const std::size_t byte = from(places[lane * words + i]); byte < word) return long(i * word + byte);
            return -1;
        }
        std::uint32_t& at(unsigned lane, unsigned i) const {
            return places.empty() ? lanes[lane][i] : *places[lane * words + i];
        }
        bool lies_at(const WgmmaOperands& operands) const;
        void take_registers();  // the sums that its lanes hold
        void poison_registers();
        void hand_over();  // the sums to its lanes
    };
    struct Product {
        WgmmaOperands operands;
        unsigned came = 0;  // a bit for each warp
        std::array<Accumulator*, warps> d{};
        std::array<std::array<std::array<unsigned, 4>, 32>, warps> a_registers;
        Party issued{};
    };
    struct Group {
        std::uint64_t end = 0;  // of its products
        unsigned committed = 0;  // a bit for each warp
        std::shared_ptr<Completion> completion;  // of checked runs
    };
    struct Warpgroup {
        std::deque<Product> products;  // not done yet
        std::uint64_t done = 0;        // products before these
        std::array<std::uint64_t, warps> issued{};
        std::vector<Group> groups;
        std::array<std::size_t, warps> committed{};
        std::size_t done_groups = 0;
        std::array<bool, warps> fenced{};
        // What the warp's first lane has written between a fence and the group's commit: it may be an accumulator of
        // which no product has told yet.
        std::array<std::vector<std::pair<const char*, std::size_t>>, warps> fresh_writes;
        std::array<bool, warps> between{};
        std::array<std::vector<std::unique_ptr<Accumulator>>, warps> accumulators;
        std::vector<Fiber*> waiting;
    };

    Warpgroup& of(Warp& warp);
    Group& group(Block& block, Warpgroup& warpgroup, std::size_t number);
    Accumulator& accumulator(Block& block, Warpgroup& warpgroup, Warp& warp, const void* site);
    void read_operands(Block& block, Warpgroup& warpgroup, Warp& warp, const WgmmaOperands& operands, const void* site);
    void multiply(Block& block, Product& product);
    void add_to(Accumulator& sums, const WgmmaOperands& operands, const float* a, const float* b);
    void hand_over(Warpgroup& warpgroup, unsigned warp, std::uint64_t end);

    std::array<Warpgroup, 8> warpgroups_;
    bool used_ = false;
};

}  // namespace gf_emulator
