// The run's buffers in one range of addresses, between pages that fault:
//
//     | guard | canary ... [ buffer ] canary < 256 B | guard | canary ...
//
// A buffer ends within its alignment of a guard page, so an access past the end faults at once and names its
// line; a write into the rest is found afterwards in the canary.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace gf_emulator {

struct BufferSpec {
    // `reserved`: addresses that nothing may touch, between two parts of a tensor with far strides.
    // `copy`: of another buffer, as it is when a launch starts.
    enum class Fill { image, poison, zero, reserved, copy };
    std::string name;
    bool is_input = false;
    bool is_output = false;
    std::size_t bytes = 0;
    Fill fill = Fill::poison;
    int poison = 0xff;  // each byte of it, where the fill is poison
    std::uint64_t image = 0;  // where it lies in the file of images
    std::size_t copied = 0;   // of a copy: the other buffer
    std::size_t alignment = 256;  // it starts at a multiple of this, and of no larger power of two below 256
    std::int64_t owned = -1;  // where its mask lies there, one bit a byte: which bytes belong to elements; -1: all
};

// Which bytes of a buffer belong to its tensor's elements, and which lie in gaps between rows.
class OwnedBytes {
public:
    OwnedBytes() = default;
    explicit OwnedBytes(std::vector<unsigned char> bits) : bits_(std::move(bits)) { bits_.resize(bits_.size() + 8); }
    bool all() const { return bits_.empty(); }
    // Whether `count` bytes from `offset` on all belong to elements.
    bool hold(std::size_t offset, std::size_t count) const {
        constexpr std::size_t step = 32;
        for (; count > step; offset += step, count -= step)
            if (!hold_few(offset, step)) return false;
        return hold_few(offset, count);
    }

private:
    bool hold_few(std::size_t offset, std::size_t count) const {
        std::uint64_t bits;
        std::memcpy(&bits, &bits_[offset / 8], sizeof bits);
        const std::uint64_t mask = (std::uint64_t(1) << count) - 1;
        return (bits >> offset % 8 & mask) == mask;
    }
    std::vector<unsigned char> bits_;
};

struct CanaryDamage {
    std::string buffer;
    bool before;               // the side: in front of the buffer, or behind it
    std::size_t bytes;         // how many canary bytes changed
    std::size_t first_offset;  // of the first changed byte: from the buffer's start, backwards when `before`,
                               // else from its end
};

class GlobalMemory {
public:
    static constexpr std::size_t guard_bytes = 1 << 20;
    static constexpr std::size_t alignment = 256;  // what cudaMalloc promises
    static constexpr std::size_t poison = 0xff;    // NaN in every floating-point format

    // `images`: the file of images; they are compared with it in changed_inputs.
    explicit GlobalMemory(const std::vector<BufferSpec>& specs, const char* images = nullptr);
    ~GlobalMemory();
    GlobalMemory(const GlobalMemory&) = delete;

    static constexpr std::size_t none = ~std::size_t(0);

    char* address(std::size_t buffer) const { return regions_[buffer].buffer; }
    std::size_t count() const { return regions_.size(); }
    const std::string& name(std::size_t buffer) const { return specs_[buffer].name; }
    std::size_t size(std::size_t buffer) const { return specs_[buffer].bytes; }
    bool is_copy(std::size_t buffer) const { return specs_[buffer].fill == BufferSpec::Fill::copy; }
    std::size_t copied(std::size_t buffer) const { return specs_[buffer].copied; }
    void make_copies() const;
    const OwnedBytes& owned(std::size_t buffer) const { return regions_[buffer].owned; }
    // The buffer that holds all `bytes` from `address` on, or none.
    std::size_t buffer_at(const void* address, std::size_t bytes) const;
    // The buffer nearest to an address outside all of them, and how far from its start that lies.
    std::size_t nearest(const void* address) const;
    long offset_in(std::size_t buffer, const void* address) const {
        return static_cast<const char*>(address) - regions_[buffer].buffer;
    }
    // False when touching it would end the process.
    bool accessible(const void* address) const;
    bool contains(const void* address) const {
        return std::uintptr_t(address) - std::uintptr_t(base_) < bytes_;
    }
    std::size_t offset(const void* address) const { return std::uintptr_t(address) - std::uintptr_t(base_); }

    std::vector<CanaryDamage> canary_damage() const;
    std::vector<std::string> changed_inputs() const;
    // "12 bytes past the end of 'q'" when a buffer is within reach of the address, else empty.
    std::string describe(const void* address) const;
    void copy_to(char* destination, std::size_t buffer) const;

private:
    struct Region {
        char* first;  // of the accessible pages
        char* buffer;
        char* end;   // of the buffer
        char* last;  // end of the accessible pages
        OwnedBytes owned;
    };
    void fill(std::size_t buffer);

    const std::vector<BufferSpec>& specs_;
    const char* images_;
    std::vector<Region> regions_;
    char* base_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace gf_emulator
