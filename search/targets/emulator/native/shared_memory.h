// One block's shared memory: what stands for the kernel library's thread-local segment (static) and, apart from it, the
// launch's dynamic part, which ends near a guard page. The static part lies between guard pages, too, so
// that a block that writes on cannot reach what is ours.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace gf_emulator {

struct Launch;

// Pages between two that fault.
class GuardedPages {
public:
    GuardedPages() = default;
    GuardedPages(const GuardedPages&) = delete;
    ~GuardedPages();
    void reserve(std::size_t bytes);
    char* first() const { return first_; }
    char* end() const { return first_ + bytes_; }
    bool contains(const void* address) const { return address >= first_ && address < end(); }

private:
    char* first_ = nullptr;
    std::size_t bytes_ = 0;
};

class SharedMemory {
public:
    static constexpr std::size_t alignment = 128;

    // Must run on the worker's own OS thread. Where the library's thread-local segment cannot be placed, the static part
    // of the worker's first block (rank 0) is the thread's own.
    void prepare(const Launch& launch, unsigned rank);
    // Lets the kernel library find this block's static part where it looks for thread-local storage.
    void make_static_current();
    void poison();

    char* dynamic() const { return dynamic_; }
    std::size_t dynamic_bytes() const { return dynamic_bytes_; }
    const char* statics() const { return static_; }
    std::size_t static_bytes() const { return static_bytes_; }
    bool contains(const void* address) const { return in_static(address) || in_dynamic(address); }
    // As the device's 32-bit window shows it: static first, then dynamic.
    std::size_t offset(const void* address) const;
    std::size_t bytes() const;  // offsets are below this
    // Where `offset` lies; null where the block has no memory.
    char* at(std::size_t offset) const;
    // The same for an address near the dynamic or static part.
    long signed_offset(const void* address) const;
    // False when touching it would end the process.
    bool accessible(const void* address) const;

    // The address here of what `address` is in another block's shared memory.
    void* at_same_place(const SharedMemory& other, const void* address) const;

    // How many bytes behind or in front of the dynamic part were written; 0 when all is well.
    std::size_t damaged_bytes() const;
    std::string describe(const void* address) const;

private:
    bool in_static(const void* address) const {
        return std::uintptr_t(address) - std::uintptr_t(static_) < static_bytes_;
    }
    bool in_dynamic(const void* address) const {
        return std::uintptr_t(address) - std::uintptr_t(dynamic_) < dynamic_bytes_;
    }
    bool near_static(const void* address) const {
        constexpr std::size_t reach = 4096;
        return static_bytes_ &&
               std::uintptr_t(address) - (std::uintptr_t(static_) - reach) < static_bytes_ + 2 * reach;
    }
    char* placed_static(std::size_t bytes, std::size_t multiple);

    char* static_ = nullptr;
    std::size_t static_bytes_ = 0;
    unsigned long tls_module_ = 0;
    GuardedPages static_pages_;
    GuardedPages pages_;  // of the dynamic part
    char* dynamic_ = nullptr;
    std::size_t dynamic_bytes_ = 0, dynamic_begin_ = 0;  // and its offset: behind the static part
};

}  // namespace gf_emulator
