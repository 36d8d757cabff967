// What the compiler calls from the kernel's code: before each load and store of a counted or checked build
// (the hooks of -fsanitize=thread, without its library), on a misaligned address (-fsanitize=alignment), on an index
// outside an array of known size (-fsanitize=bounds), and on an access past the end of an object (-fsanitize=object-size).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker.h"

using namespace gf_emulator;

namespace {

inline void count(const void* address, unsigned bytes, bool write, const void* site) {
    if (!Worker::exists()) return;
    Worker& worker = Worker::current();
    if (worker.counting().enabled()) worker.count_access(address, bytes, write, site);
}

// A thread that reads a volatile word again and again waits for another one, which must get its turn.
void look_at_flag(const void* address, unsigned bytes, const void* site) {
    Block& block = Worker::current().block();
    block.current().site = site;
    std::uint64_t value = 0;
    std::memcpy(&value, address, std::min<std::size_t>(bytes, sizeof value));
    block.reads_flag(address, bytes, value, site);
}

// The same in a build without checks.
template <Action action>
void watch_flag(const void* address, unsigned bytes, const void* site) {
    if (!Worker::exists()) return;
    Worker& worker = Worker::current();
    if (!worker.block().inside_fiber() || worker.stacks().contains(address)) return;
    if (action == Action::volatile_write)
        worker.block().progresses();
    else
        look_at_flag(address, bytes, site);
}

// A thread's own memory, which may be an accumulator of a matrix product under way.
__attribute__((noinline)) void watch_own(const void* address, std::size_t bytes, bool write, const void* site) {
    if (!Checker::active()) return;
    Block& block = Worker::current().block();
    if (block.inside_fiber()) block.warpgroups().own_access(block, block.current(), address, bytes, write, site);
}

template <Action action, unsigned bytes>
__attribute__((noinline)) void check(const void* address, const void* site) {
    Checker& checker = *Checker::active();
    // First, since it settles what came before: a store that raced is judged by what it leaves.
    if (action == Action::volatile_write) {
        Worker::current().block().pause_before_flag(address);
        Worker::current().block().progresses();
        checker.before_volatile_store(address);
    }
    checker.access_outside_frames(address, bytes, action, site);
    if (action == Action::volatile_read) {
        look_at_flag(address, bytes, site);
        checker.reads_flag(address);
    }
    if (checker.counts_too()) count(address, bytes, writes(action), site);
}

// Most accesses are to the thread's own memory: they are done with here.
template <Action action, unsigned bytes>
inline void access(const void* address, const void* site) {
    if (in_live_frames(address, bytes)) {
        if (__builtin_expect(Warpgroups::watched.load(std::memory_order_relaxed), 0)) watch_own(address, bytes, writes(action), site);
        return;
    }
    if (Checker::active()) {
        check<action, bytes>(address, site);
    } else {
        count(address, bytes, writes(action), site);
        if (is_volatile(action)) watch_flag<action>(address, bytes, site);
    }
}

void access_range(const void* address, unsigned long bytes, Action action, const void* site) {
    if (__builtin_expect(Warpgroups::watched.load(std::memory_order_relaxed), 0) && bytes && in_live_frames(address, bytes))
        watch_own(address, bytes, writes(action), site);
    if (Checker* checker = Checker::active()) checker->access_range(address, bytes, action, site);
    count(address, unsigned(bytes), writes(action), site);
}

// The compiler's description of a failed check (the -fsanitize=undefined interface of GCC and Clang).
struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[1];
};
struct TypeMismatch {
    const char* file;
    std::uint32_t line, column;
    const TypeDescriptor* type;
    std::uint8_t alignment_log2;
    std::uint8_t access_kind;
};

struct IndexOutside {
    const char* file;
    std::uint32_t line, column;
    const TypeDescriptor* array;
    const TypeDescriptor* index;
};

struct ShiftOutside {
    const char* file;
    std::uint32_t line, column;
    const TypeDescriptor* shifted;
    const TypeDescriptor* count;
};

// A GPU shifts everything out, where this processor takes the count's low bits; C++ gives the result no value.
[[noreturn]] void shifted_out(const ShiftOutside* found, std::uintptr_t count, const void* site) {
    const unsigned bits = 1u << (found->shifted->info >> 1), count_bits = 1u << (found->count->info >> 1);
    const bool is_signed = found->count->info & 1;
    const long number = is_signed && count_bits == 32 ? long(std::int32_t(count)) : long(count);
    Worker::current().fail("undefined_operation", site,
                           format("a shift of %u bits by %ld has no value in CUDA C++", bits, number));
}

[[noreturn]] void cast_outside(const void* site) {
    Worker::current().fail("undefined_operation", site,
                           "a cast of a floating-point number that the integer type cannot hold has no value in CUDA "
                           "C++; __float2int_rz and its like saturate");
}

[[noreturn]] void outside(const IndexOutside* found, std::uintptr_t index, const void* site) {
    Worker::current().fail("out_of_bounds", site,
                           format("index %ld of an array of type %s", long(index), found->array->name));
}

[[noreturn]] void misaligned(const TypeMismatch* mismatch, const void* site) {
    Worker::current().fail("misaligned", site,
                           format("an access to %s at an address that is not a multiple of %u bytes",
                                  mismatch->type->name, 1u << mismatch->alignment_log2));
}

// Too few bytes from here to the end of an object that the compiler knows. Of memory where one object lies beside
// another, only this call tells which was meant; elsewhere the access's own hook reports more.
void too_small(const TypeMismatch* mismatch, const void* address, const void* site) {
    if (!Checker::active()) return;
    const bool own = in_live_frames(address, 1);
    if (!own && !Checker::active()->is_static(address)) return;
    const ModuleMemory& module = *Worker::current().launch().module;
    const bool in_gap = module.contains(address) && !module.object_at(address);
    Worker::current().fail("out_of_bounds", site,
                           format("an access to %s %s", mismatch->type->name,
                                  own      ? "past the end of the thread's own object"
                                  : in_gap ? module.describe(address).c_str()
                                           : "past the end of its object"));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#define SITE __builtin_return_address(0)
#define HOOK(name, bytes, action) \
    void __tsan_##name##bytes(void* address) { access<Action::action, bytes>(address, SITE); }
#define HOOKS(bytes)                                 \
    HOOK(read, bytes, read)                          \
    HOOK(write, bytes, write)                        \
    HOOK(unaligned_read, bytes, read)                \
    HOOK(unaligned_write, bytes, write)              \
    HOOK(volatile_read, bytes, volatile_read)        \
    HOOK(volatile_write, bytes, volatile_write)               \
    HOOK(unaligned_volatile_read, bytes, volatile_read) \
    HOOK(unaligned_volatile_write, bytes, volatile_write)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
#undef HOOKS
#undef HOOK

void __tsan_read_range(void* address, unsigned long bytes) { access_range(address, bytes, Action::read, SITE); }
void __tsan_write_range(void* address, unsigned long bytes) { access_range(address, bytes, Action::write, SITE); }
void* __tsan_memcpy(void* destination, const void* source, std::size_t bytes) {
    access_range(source, bytes, Action::read, SITE);
    access_range(destination, bytes, Action::write, SITE);
    return std::memcpy(destination, source, bytes);
}
void* __tsan_memmove(void* destination, const void* source, std::size_t bytes) {
    access_range(source, bytes, Action::read, SITE);
    access_range(destination, bytes, Action::write, SITE);
    return std::memmove(destination, source, bytes);
}
int __tsan_memcmp(const void* left, const void* right, std::size_t bytes) {
    access_range(left, bytes, Action::read, SITE);
    access_range(right, bytes, Action::read, SITE);
    return std::memcmp(left, right, bytes);
}
void* __tsan_memset(void* destination, int value, std::size_t bytes) {
    access_range(destination, bytes, Action::write, SITE);
    return std::memset(destination, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void* place, void*) { access<Action::write, 8>(place, SITE); }
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// Of objects' sizes: it may return, and the access follows. The other is of alignment.
void __ubsan_handle_type_mismatch_v1(TypeMismatch* mismatch, std::uintptr_t address) {
    too_small(mismatch, reinterpret_cast<const void*>(address), SITE);
}
void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* mismatch, std::uintptr_t) { misaligned(mismatch, SITE); }
void __ubsan_handle_out_of_bounds(IndexOutside* found, std::uintptr_t index) { outside(found, index, SITE); }
void __ubsan_handle_out_of_bounds_abort(IndexOutside* found, std::uintptr_t index) {
    outside(found, index, SITE);
}
void __ubsan_handle_shift_out_of_bounds_abort(ShiftOutside* found, std::uintptr_t, std::uintptr_t count) {
    shifted_out(found, count, SITE);
}
// What control_edges.py of a checked build calls. The kernel's entry ends its thread instead of returning here, where a
// write past the kernel's own variables could have left another address.
void gf_emulator_thread_ends() { Worker::current().block().exit_thread(); }
void gf_emulator_wrong_call(const void* target, const void* site) {
    Worker::current().fail("device_fault", site,
                           format("a call to address %p, where no function begins that the text names", target));
}
void gf_emulator_wrong_return(const void* target) {
    Worker& worker = Worker::current();
    worker.fail("out_of_bounds", worker.fiber().site,
                format("a write past the thread's own objects: a function would return to address %p", target));
}
void __ubsan_handle_float_cast_overflow_abort(void*, std::uintptr_t) { cast_outside(SITE); }

}  // extern "C"
#pragma GCC visibility pop
