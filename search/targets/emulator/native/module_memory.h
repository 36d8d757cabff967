// The kernel library's own memory as its symbol table names it: `__device__` and `__constant__` objects, the
// compiler's tables, and string literals, which have no name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gf_emulator {

class ModuleMemory {
public:
    enum class Kind { device, constant, table };
    struct Object {
        char* begin = nullptr;
        std::size_t bytes = 0;
        Kind kind = Kind::table;
        bool starts_as_zeros = false;
        std::size_t image_offset = 0;  // of its initial values, where these are not zeros
        std::string name;

        bool holds(const void* address, std::size_t count) const {
            const std::size_t from = std::uintptr_t(address) - std::uintptr_t(begin);
            return from < bytes && count <= bytes - from;
        }
    };
    // How far apart the checked build keeps its objects (object_gaps.py): nothing else lies that near to one.
    static constexpr std::size_t gap_bytes = 64;

    ModuleMemory() = default;  // of no library
    // Of a library that dlopen returned, before any of its code ran.
    explicit ModuleMemory(void* module);

    bool contains(const void* address) const {
        return std::uintptr_t(address) - std::uintptr_t(begin_) < std::size_t(end_ - begin_);
    }
    const std::vector<Object>& objects() const { return objects_; }
    // Of the dynamic shared memory's start, as its declarations ask for it.
    std::size_t dynamic_alignment() const { return dynamic_alignment_; }
    // The object that holds the address; null: none does.
    const Object* object_at(const void* address) const;
    // Whether all the bytes are a literal's, or a table's that has no name.
    bool is_literal(const void* address, std::size_t bytes) const;
    // "4 bytes past the end of 'table'", or that no object is near.
    std::string describe(const void* address) const;

    // A byte of a `__device__` object as the library's image has it.
    unsigned char initial(const Object& object, std::size_t offset) const {
        return object.starts_as_zeros ? 0 : image_[object.image_offset + offset];
    }
    // Gives every `__device__` object its initial values.
    void restore() const;

private:
    struct Range {
        const char* begin;
        const char* end;
    };
    struct Section;
    struct Image;
    void add(const Section& section, std::size_t value, std::size_t bytes, const char* name);
    const Object* before(const void* address) const;

    char* begin_ = nullptr;
    char* end_ = nullptr;
    std::size_t dynamic_alignment_ = 128;
    Range read_only_after_loading_{};
    std::vector<Object> objects_;  // by address
    std::vector<Range> literals_;
    std::vector<unsigned char> image_;
};

// Of the process's only kernel library.
const ModuleMemory& module_memory(void* module);

}  // namespace gf_emulator
