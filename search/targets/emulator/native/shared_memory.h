// One worker's shared memory: the kernel library's thread-local segment (static) and, apart from it, the
// launch's dynamic part, which ends within 128 bytes of a guard page.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace gf_emulator {

class SharedMemory {
public:
    static constexpr std::size_t alignment = 128;

    ~SharedMemory();
    // Must run on the worker's own OS thread: the static part is that thread's.
    void prepare(const void* module_base, std::size_t dynamic_bytes);
    void poison();

    char* dynamic() const { return dynamic_; }
    std::size_t static_bytes() const { return static_bytes_; }
    bool contains(const void* address) const { return in_static(address) || in_dynamic(address); }
    // As the device's 32-bit window shows it: static first, then dynamic.
    std::size_t offset(const void* address) const;

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
    void reserve(std::size_t bytes);

    char* static_ = nullptr;
    std::size_t static_bytes_ = 0;
    char* pages_ = nullptr;  // accessible ones; one guard page lies on either side
    std::size_t pages_bytes_ = 0;
    char* dynamic_ = nullptr;
    std::size_t dynamic_bytes_ = 0;
};

}  // namespace gf_emulator
