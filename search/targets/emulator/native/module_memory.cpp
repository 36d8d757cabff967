#include "module_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "loading.h"
#include "memory_map.h"
#include "report.h"

namespace gf_emulator {

namespace {

constexpr char constant_section[] = ".gf_constant";  // where qualifiers.h puts `__constant__` objects
constexpr char dynamic_section[] = ".gf_dynamic_shared";  // as aligned as dynamic shared memory (dynamic_shared.py)

bool begins_with(const char* text, const char* start) { return std::strncmp(text, start, std::strlen(start)) == 0; }

std::string readable(const char* name) {
    int status = 0;
    if (!begins_with(name, "_Z")) return name;  // else "d" would become "double"
    char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string result = status == 0 && text ? text : name;
    std::free(text);
    for (const char* ours : {"gf_own_", "gf_emulator_"})  // before names that are not the text's alone
        for (std::size_t at; (at = result.find(ours)) != std::string::npos;) result.erase(at, std::strlen(ours));
    return result;
}

// Zeros, without touching the pages of a large array that nobody touched.
void clear(char* begin, std::size_t bytes) {
    char* first = reinterpret_cast<char*>(round_up(std::uintptr_t(begin), page_bytes));
    char* end = begin + bytes;
    const std::size_t pages = first < end ? std::size_t(end - first) / page_bytes * page_bytes : 0;
    if (pages < 16 * page_bytes || madvise(first, pages, MADV_DONTNEED) != 0) {
        std::memset(begin, 0, bytes);
    } else {
        std::memset(begin, 0, std::size_t(first - begin));
        std::memset(first + pages, 0, std::size_t(end - first) - pages);
    }
}

}  // namespace

struct ModuleMemory::Section {
    const char* name;
    ElfW(Shdr) header;
    bool holds(std::size_t value, std::size_t bytes) const {
        return value >= header.sh_addr && bytes <= header.sh_size && value - header.sh_addr <= header.sh_size - bytes;
    }
};

// The library's file.
struct ModuleMemory::Image {
    const char* data;
    std::size_t bytes;
    std::vector<Section> sections;

    explicit Image(const FileMap& file) : data(file.first), bytes(file.bytes) {
        const auto& header = *at<ElfW(Ehdr)>(0, 1);
        const auto* headers = at<ElfW(Shdr)>(header.e_shoff, header.e_shnum);
        const ElfW(Shdr)& names = headers[header.e_shstrndx];
        for (unsigned i = 0; i < header.e_shnum; i++)
            sections.push_back({at<char>(names.sh_offset + headers[i].sh_name, 1), headers[i]});
    }

    template <class T>
    const T* at(std::size_t offset, std::size_t count) const {
        if (offset > bytes || count > (bytes - offset) / sizeof(T)) give_up("the kernel library's symbols");
        return reinterpret_cast<const T*>(data + offset);
    }
};

ModuleMemory::ModuleMemory(void* module) {
    link_map* map = nullptr;
    if (dlinfo(module, RTLD_DI_LINKMAP, &map) != 0) give_up("dlinfo");
    begin_ = end_ = reinterpret_cast<char*>(map->l_addr);
    const Image image(loading().file());
    const auto& header = *image.at<ElfW(Ehdr)>(0, 1);
    const auto* segments = image.at<ElfW(Phdr)>(header.e_phoff, header.e_phnum);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        char* first = begin_ + segments[i].p_vaddr;
        if (segments[i].p_type == PT_LOAD) end_ = std::max(end_, first + segments[i].p_memsz);
        if (segments[i].p_type == PT_GNU_RELRO) read_only_after_loading_ = {first, first + segments[i].p_memsz};
    }
    for (const Section& section : image.sections) {
        if (begins_with(section.name, ".rodata"))
            literals_.push_back({begin_ + section.header.sh_addr,
                                 begin_ + section.header.sh_addr + section.header.sh_size});
        if (std::strcmp(section.name, dynamic_section) == 0) dynamic_alignment_ = section.header.sh_addralign;
        if (section.header.sh_type != SHT_SYMTAB) continue;
        const std::size_t count = section.header.sh_size / sizeof(ElfW(Sym));
        const auto* symbols = image.at<ElfW(Sym)>(section.header.sh_offset, count);
        if (section.header.sh_link >= image.sections.size()) continue;
        const std::size_t names = image.sections[section.header.sh_link].header.sh_offset;
        for (const auto* symbol = symbols; symbol < symbols + count; symbol++)
            if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && symbol->st_size &&
                symbol->st_shndx < image.sections.size())
                add(image.sections[symbol->st_shndx], symbol->st_value, symbol->st_size,
                    image.at<char>(names + symbol->st_name, 1));
    }
    std::sort(objects_.begin(), objects_.end(), [](const Object& one, const Object& other) {
        return one.begin != other.begin ? one.begin < other.begin : one.bytes > other.bytes;
    });
}

void ModuleMemory::add(const Section& section, std::size_t value, std::size_t bytes, const char* name) {
    if (!(section.header.sh_flags & SHF_ALLOC) || !section.holds(value, bytes)) return;
    // The linker's and the start files' own, such as _DYNAMIC and completed.0.
    if (!begins_with(section.name, ".data") && !begins_with(section.name, ".bss") &&
        !begins_with(section.name, ".rodata") && !begins_with(section.name, constant_section))
        return;
    Object object;
    object.begin = begin_ + value;
    object.bytes = bytes;
    object.name = readable(name);
    const bool stays_writable =
        section.header.sh_flags & SHF_WRITE &&
        !(object.begin >= read_only_after_loading_.begin && object.begin < read_only_after_loading_.end);
    object.kind = begins_with(section.name, constant_section) ? Kind::constant
                  : stays_writable                            ? Kind::device
                                                              : Kind::table;
    object.starts_as_zeros = section.header.sh_type == SHT_NOBITS;
    if (object.kind == Kind::device && !object.starts_as_zeros) {
        // From memory, and not from the file: pointers in it have been relocated.
        object.image_offset = image_.size();
        image_.insert(image_.end(), object.begin, object.begin + bytes);
    }
    objects_.push_back(std::move(object));
}

const ModuleMemory::Object* ModuleMemory::before(const void* address) const {
    const auto next = std::upper_bound(
        objects_.begin(), objects_.end(), static_cast<const char*>(address),
        [](const char* byte, const Object& object) { return byte < object.begin; });
    return next == objects_.begin() ? nullptr : &*std::prev(next);
}

const ModuleMemory::Object* ModuleMemory::object_at(const void* address) const {
    const Object* object = before(address);
    return object && object->holds(address, 1) ? object : nullptr;
}

bool ModuleMemory::is_literal(const void* address, std::size_t bytes) const {
    const char* byte = static_cast<const char*>(address);
    const bool inside = std::any_of(literals_.begin(), literals_.end(), [&](const Range& range) {
        return byte >= range.begin && byte < range.end && bytes <= std::size_t(range.end - byte);
    });
    if (!inside) return false;
    const Object* last = before(byte + bytes + gap_bytes - 1);
    return !last || last->begin + last->bytes + gap_bytes <= byte;
}

std::string ModuleMemory::describe(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    const Object* last = before(byte);
    const Object* next = last ? last + 1 : objects_.data();
    const Object* end = objects_.data() + objects_.size();
    const std::size_t behind = last ? std::size_t(byte - last->begin) - std::min(last->bytes, std::size_t(byte - last->begin))
                                    : ~std::size_t(0);
    const std::size_t ahead = next < end ? std::size_t(next->begin - byte) : ~std::size_t(0);
    if (last && behind <= std::min<std::size_t>(ahead, 4096))
        return format("%zu bytes past the end of '%s'", behind, last->name.c_str());
    if (next < end && ahead <= 4096) return format("%zu bytes before the start of '%s'", ahead, next->name.c_str());
    return "inside the kernel's library, in none of its objects";
}

void ModuleMemory::restore() const {
    for (const Object& object : objects_) {
        if (object.kind != Kind::device) continue;
        if (object.starts_as_zeros)
            clear(object.begin, object.bytes);
        else
            std::memcpy(object.begin, image_.data() + object.image_offset, object.bytes);
    }
}

const ModuleMemory& module_memory(void* module) {
    static const ModuleMemory memory(module);
    return memory;
}

}  // namespace gf_emulator
