// What host code of a CUDA program calls while its launches are recorded: the "device's" memory lies in this
// process, and a launch is written down instead of being run. search/diagnose/host_program.py reads the record.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <typeinfo>
#include <unistd.h>
#include <utility>

#include "gf_vector_types.h"

struct CUstream_st;
struct CUevent_st;
typedef CUstream_st* cudaStream_t;
typedef CUevent_st* cudaEvent_t;

namespace gf_recorder {

constexpr int most_launches = 400, most_equal_launches = 2;

struct Allocation {
    int number;
    std::size_t bytes;
    bool host_writes;       // managed or mapped: the host writes it without a call
    bool changed;           // by the host since its content was last written down
    std::uint64_t content;  // a hash of what was written down
};

inline std::string quoted(const char* text) {
    std::string result = "\"";
    for (; *text; ++text) {
        if (*text == '"' || *text == '\\') result += '\\';
        result += (unsigned char)(*text) < ' ' ? ' ' : *text;
    }
    return result + '"';
}

inline std::string hexadecimal(const void* data, std::size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string result;
    for (std::size_t at = 0; at < bytes; ++at) {
        const unsigned char byte = static_cast<const unsigned char*>(data)[at];
        result += digits[byte >> 4];
        result += digits[byte & 15];
    }
    return result;
}

template <class T> std::string type_name() {
    int status = 0;
    char* name = abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status);
    const std::string result = name ? name : "";
    std::free(name);
    return result;
}

class Recorder {
public:
    static Recorder& instance() {
        static Recorder* const recorder = new Recorder;  // never destroyed: globals may call it at exit
        return *recorder;
    }

    void* allocate(std::size_t bytes, bool host_writes) {
        // Pages of its own: aligned as CUDA's allocations are, and zero until it is written.
        void* const address = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (address == MAP_FAILED) return nullptr;
        const int number = ++allocations_made_;
        allocations_[reinterpret_cast<std::uintptr_t>(address)] = {number, bytes, host_writes, false, 0};
        std::fprintf(file_, "{\"event\": \"allocate\", \"number\": %d, \"bytes\": %zu}\n", number, bytes);
        return address;
    }
    // The address stays taken, so that no later allocation is mistaken for this one.
    void release(void* address) { allocations_.erase(reinterpret_cast<std::uintptr_t>(address)); }

    // The allocation that an address lies in, also just behind its end; null: host memory.
    Allocation* find(const void* address, std::size_t* offset = nullptr) {
        const auto value = reinterpret_cast<std::uintptr_t>(address);
        auto next = allocations_.upper_bound(value);
        if (next == allocations_.begin()) return nullptr;
        --next;
        if (value - next->first > next->second.bytes) return nullptr;
        if (offset) *offset = value - next->first;
        return &next->second;
    }

    void written(const void* address, std::size_t bytes) {
        std::size_t offset = 0;
        Allocation* const to = find(address, &offset);
        if (!to || !bytes) return;
        to->changed = true;
        std::fprintf(file_, "{\"event\": \"write\", \"number\": %d, \"offset\": %zu, \"bytes\": %zu}\n", to->number, offset,
                     bytes < to->bytes - offset ? bytes : to->bytes - offset);
    }
    void copied(const void* address, const void* source, std::size_t bytes) {
        std::size_t offset = 0, from_offset = 0;
        const Allocation *const to = find(address, &offset), *const from = find(source, &from_offset);
        if (!to || !bytes) return;
        if (!from || from->host_writes) return written(address, bytes);
        std::fprintf(file_,
                     "{\"event\": \"copy\", \"number\": %d, \"offset\": %zu, \"from\": %d, \"from_offset\": %zu, \"bytes\": %zu}\n",
                     to->number, offset, from->number, from_offset, bytes);
    }
    void symbol(const char* name, const std::string& value) {
        std::fprintf(file_, "{\"event\": \"symbol\", \"name\": %s, \"value\": %s}\n", quoted(name).c_str(),
                     quoted(value.c_str()).c_str());
    }
    void unsupported(const char* what) {
        std::fprintf(file_, "{\"event\": \"unsupported\", \"what\": %s}\n", quoted(what).c_str());
        std::fflush(file_);
    }

    void configure(dim3 grid, dim3 block, std::size_t shared_bytes, dim3 cluster = dim3()) {
        grid_ = grid, block_ = block, shared_bytes_ = shared_bytes, cluster_ = cluster;
    }
    void launch(const char* function, int template_parameters, const char* names, const std::string& arguments) {
        char sizes[320];
        std::snprintf(sizes, sizeof sizes,
                      "\"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"cluster\": [%u, %u, %u], \"shared_bytes\": %zu",
                      grid_.x, grid_.y, grid_.z, block_.x, block_.y, block_.z, cluster_.x, cluster_.y, cluster_.z,
                      shared_bytes_);
        const std::string line = "{\"event\": \"launch\", \"function\": " + quoted(function) + ", \"template_parameters\": " +
                                 std::to_string(template_parameters) + ", \"names\": " + quoted(names) + ", " + sizes + ", \"arguments\": [" + arguments + "]}\n";
        write_contents();
        if (++equal_launches_[line] <= most_equal_launches)
            std::fputs(line.c_str(), file_);
        else
            std::fputs("{\"event\": \"repeated\"}\n", file_);
        std::fflush(file_);
        if (++launches_ == most_launches) _exit(0);
    }

private:
    Recorder() : file_(std::fopen("record", "w")) {
        if (!file_) std::abort();
    }
    void write_contents() {
        for (auto& entry : allocations_) {
            Allocation& it = entry.second;
            if (!it.changed && !it.host_writes) continue;
            const void* const data = reinterpret_cast<const void*>(entry.first);
            if (it.host_writes) {
                const std::uint64_t content = hash(data, it.bytes);
                if (content == it.content) continue;
                it.content = content;
                std::fprintf(file_, "{\"event\": \"write\", \"number\": %d, \"offset\": 0, \"bytes\": %zu}\n", it.number, it.bytes);
            }
            it.changed = false;
            char name[32];
            std::snprintf(name, sizeof name, "content%d", ++contents_);
            std::FILE* const file = std::fopen(name, "wb");
            if (!file || std::fwrite(data, 1, it.bytes, file) != it.bytes) {
                unsupported("its data, which is too large to be written down");
                _exit(0);
            }
            std::fclose(file);
            std::fprintf(file_, "{\"event\": \"content\", \"number\": %d, \"file\": \"%s\"}\n", it.number, name);
            write_addresses(it.number, static_cast<const char*>(data), it.bytes);
        }
    }
    // The allocations whose addresses are in the content of another, as in an array of pointers.
    void write_addresses(int number, const char* data, std::size_t bytes) {
        const std::uintptr_t first = allocations_.begin()->first, last = allocations_.rbegin()->first;
        std::map<int, bool> told;
        for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
            std::uintptr_t value;
            std::memcpy(&value, data + at, sizeof value);
            if (value < first || value > last + allocations_.rbegin()->second.bytes) continue;
            const Allocation* const to = find(reinterpret_cast<const void*>(value));
            if (to && !told[to->number]) {
                told[to->number] = true;
                std::fprintf(file_, "{\"event\": \"address\", \"number\": %d, \"of\": %d}\n", number, to->number);
            }
        }
    }
    static std::uint64_t hash(const void* data, std::size_t bytes) {
        std::uint64_t value = 1469598103934665603u;
        for (std::size_t at = 0; at < bytes; ++at) value = (value ^ static_cast<const unsigned char*>(data)[at]) * 1099511628211u;
        return value;
    }

    std::FILE* const file_;
    std::map<std::uintptr_t, Allocation> allocations_;
    std::map<std::string, int> equal_launches_;
    dim3 grid_, block_, cluster_;
    std::size_t shared_bytes_ = 0;
    int allocations_made_ = 0, contents_ = 0, launches_ = 0;
};

inline Recorder& recorder() { return Recorder::instance(); }

// One argument of a launch: {"pointer": 3, "offset": 0}, {"null": true}, {"host": true} or {"bytes": ..., "pointers": ...}.
inline std::string address_text(const void* address) {
    if (!address) return "\"null\": true";
    std::size_t offset = 0;
    const Allocation* const allocation = recorder().find(address, &offset);
    if (!allocation) return "\"host\": true";
    return "\"pointer\": " + std::to_string(allocation->number) + ", \"offset\": " + std::to_string(offset);
}

template <class T> std::string argument_text(const T& value) {
    const std::string type = ", \"type\": " + quoted(type_name<typename std::remove_pointer<T>::type>().c_str()) + "}";
    if constexpr (std::is_pointer<T>::value && !std::is_function<typename std::remove_pointer<T>::type>::value) {
        return "{" + address_text(const_cast<const void*>(static_cast<const volatile void*>(value))) + type;
    } else {
        unsigned char bytes[sizeof(T)];
        std::memcpy(bytes, static_cast<const void*>(&value), sizeof(T));
        std::string pointers;
        if constexpr (std::is_class<T>::value || std::is_union<T>::value)
            for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
                const void* address;
                std::memcpy(&address, bytes + at, sizeof address);
                if (address && recorder().find(address))
                    pointers += (pointers.empty() ? "{\"at\": " : ", {\"at\": ") + std::to_string(at) + ", " + address_text(address) + "}";
            }
        return "{\"bytes\": \"" + hexadecimal(bytes, sizeof(T)) + "\", \"pointers\": [" + pointers + "]" + type;
    }
}

// By value, without a `__restrict__` of the parameter.
template <class... Arguments> void launch(const char* function, int template_parameters, const char* names, Arguments... values) {
    std::string text;
    const std::string texts[] = {std::string(), argument_text(values)...};
    for (std::size_t at = 1; at <= sizeof...(values); ++at) text += (at > 1 ? ", " : "") + texts[at];
    recorder().launch(function, template_parameters, names, text);
}

inline void configure(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
    recorder().configure(grid, block, shared_bytes);
}

// The value of a `__constant__` or `__device__` variable as a C++ initialiser, with x and the bytes for a struct; empty: of
// another kind.
template <class T> std::string initialiser(const T& value) {
    if constexpr (std::is_array<T>::value) {
        std::string text;
        for (const auto& each : value) {
            const std::string part = initialiser(each);
            if (part.empty()) return part;
            text += (text.empty() ? "{" : ", ") + part;
        }
        return text + "}";
    } else if constexpr (std::is_floating_point<T>::value) {
        char text[64];
        std::snprintf(text, sizeof text, "%.17g", double(value));
        return text;
    } else if constexpr (std::is_integral<T>::value) {
        return std::is_signed<T>::value ? std::to_string((long long)(value)) : std::to_string((unsigned long long)(value)) + "u";
    } else if constexpr (std::is_pointer<T>::value || !std::is_trivially_copyable<T>::value) {
        return std::string();
    } else {  // a struct: its bytes, unless one of its members points to an allocation
        for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
            const void* address;
            std::memcpy(&address, reinterpret_cast<const char*>(&value) + at, sizeof address);
            if (address && recorder().find(address)) return std::string();
        }
        return "x" + hexadecimal(&value, sizeof(T));
    }
}

}  // namespace gf_recorder
