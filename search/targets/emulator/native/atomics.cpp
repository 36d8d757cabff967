// Atomics on shared and global memory.
#include "atomics.h"

#include <cstring>

#include "gf_emulator/float_formats.h"
#include "worker.h"

namespace gf_emulator {

namespace {

template <class T>
T from_memory(const void* address) {
    T value;
    std::memcpy(&value, address, sizeof value);
    return value;
}

// A pair of 16-bit floats, added element by element; the device makes each element's addition atomic on its
// own, here the pair's is.
template <class Format>
struct Float16Value {
    std::uint16_t bits;
    Float16Value operator+(Float16Value other) const {
        return {Format::from_float(Format::to_float(bits) + Format::to_float(other.bits))};
    }
};
template <class Format>
struct Float16Pair {
    Float16Value<Format> x, y;
    Float16Pair operator+(Float16Pair other) const { return {x + other.x, y + other.y}; }
};

template <class T>
T combine(T before, T operand, AtomicOperation operation) {
    switch (operation) {
        case AtomicOperation::add:
            if constexpr (std::is_integral_v<T>)
                return T(std::make_unsigned_t<T>(before) + std::make_unsigned_t<T>(operand));
            else
                return before + operand;
        case AtomicOperation::minimum: return operand < before ? operand : before;
        case AtomicOperation::maximum: return before < operand ? operand : before;
        case AtomicOperation::exchange: return operand;
        case AtomicOperation::increment: return before >= operand ? T(0) : T(before + 1);
        case AtomicOperation::decrement: return before == T(0) || before > operand ? operand : T(before - 1);
        default: break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (operation == AtomicOperation::bit_and) return before & operand;
        if (operation == AtomicOperation::bit_or) return before | operand;
        if (operation == AtomicOperation::bit_xor) return before ^ operand;
    }
    return operand;
}

// Of 16-bit floats the device has the sum only.
template <class Format>
Float16Value<Format> combine(Float16Value<Format> before, Float16Value<Format> operand, AtomicOperation) {
    return before + operand;
}
template <class Format>
Float16Pair<Format> combine(Float16Pair<Format> before, Float16Pair<Format> operand, AtomicOperation) {
    return before + operand;
}

// T's value, exchanged as the integer of its size: the hardware compares bit patterns too. True when it changed.
template <class T, class Bits>
bool update(void* address, const void* operand, const void* compared, void* before,
            AtomicOperation operation) {
    Bits* word = static_cast<Bits*>(address);
    Bits old = __atomic_load_n(word, __ATOMIC_SEQ_CST), wanted = old;
    for (;;) {
        if (operation == AtomicOperation::compare_and_swap) {
            wanted = old;
            if (old != from_memory<Bits>(compared)) break;
            wanted = from_memory<Bits>(operand);
        } else {
            const T value = combine(from_memory<T>(&old), from_memory<T>(operand), operation);
            std::memcpy(&wanted, &value, sizeof wanted);
        }
        if (__atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
    }
    std::memcpy(before, &old, sizeof old);
    return wanted != old;
}

bool is_float(AtomicType type) {
    switch (type) {
        case AtomicType::int32:
        case AtomicType::uint32:
        case AtomicType::int64:
        case AtomicType::uint64:
        case AtomicType::uint16: return false;
        default: return true;
    }
}

struct Atomic {
    void* address;
    const void* operand;
    const void* compared;
    void* before;
    AtomicOperation operation;
    AtomicType type;
};

bool update(const Atomic& atomic) {
    const auto& [address, operand, compared, before, operation, type] = atomic;
    switch (type) {
        case AtomicType::int32:
            return update<std::int32_t, std::uint32_t>(address, operand, compared, before, operation);
        case AtomicType::uint32:
            return update<std::uint32_t, std::uint32_t>(address, operand, compared, before, operation);
        case AtomicType::int64:
            return update<std::int64_t, std::uint64_t>(address, operand, compared, before, operation);
        case AtomicType::uint64:
            return update<std::uint64_t, std::uint64_t>(address, operand, compared, before, operation);
        case AtomicType::float32:
            return update<float, std::uint32_t>(address, operand, compared, before, operation);
        case AtomicType::float64:
            return update<double, std::uint64_t>(address, operand, compared, before, operation);
        case AtomicType::uint16:
            return update<std::uint16_t, std::uint16_t>(address, operand, compared, before, operation);
        case AtomicType::float16:
            return update<Float16Value<HalfFormat>, std::uint16_t>(address, operand, compared, before, operation);
        case AtomicType::bfloat16:
            return update<Float16Value<BFloat16Format>, std::uint16_t>(address, operand, compared, before,
                                                                operation);
        case AtomicType::float16x2:
            return update<Float16Pair<HalfFormat>, std::uint32_t>(address, operand, compared, before, operation);
        case AtomicType::bfloat16x2:
            return update<Float16Pair<BFloat16Format>, std::uint32_t>(address, operand, compared, before, operation);
    }
    return false;
}

void perform(const Atomic& atomic, bool block_wide, const void* site) {
    void* const address = atomic.address;
    const AtomicType type = atomic.type;
    const AtomicOperation operation = atomic.operation;
    Worker& worker = Worker::current();
    Fiber& self = worker.fiber();
    self.site = site;
    const unsigned bytes = size_of(type);
    const bool adds_floats = operation == AtomicOperation::add && is_float(type);
    if (std::uintptr_t(address) % bytes)
        worker.fail("misaligned", site,
                    format("an atomic on %u bytes at an address that is not a multiple of %u", bytes, bytes));
    if (worker.counting().enabled()) worker.count_access(address, bytes, true, site, adds_floats);
    worker.counting().events.atomics++;
    Checker* checker = worker.checker();
    if (checker) {
        if (in_live_frames(address, 1))
            worker.fail("device_fault", site, "an atomic on a thread's own local memory, which has none");
        for (const void* value : {atomic.operand, atomic.compared})
            if (value) checker->access(value, bytes, Action::read, site);
        checker->access(atomic.before, bytes, Action::write, site);
        checker->atomic_follows(operation == AtomicOperation::compare_and_swap ? address : nullptr);
        const Action action = block_wide ? Action::block_atomic : Action::atomic;
        checker->exchanges(operation == AtomicOperation::exchange);
        checker->atomic_reads(address, bytes, action, site);
        checker->access(address, bytes, action, site);
        checker->exchanges(false);
        checker->before_atomic(address, block_wide);
    }
    const bool changed = update(atomic);
    if (checker) checker->after_atomic(address, block_wide, changed);
    if (changed) {
        worker.block().progresses();
        // Else the first block would serve a whole queue before a second one starts.
        if (checker && worker.launch().order.is_seeded() && !worker.shared().contains(address))
            return worker.block().pause_for_others();
    } else {
        std::uint64_t value = 0;
        std::memcpy(&value, atomic.before, bytes);
        // What it decides by the value comes later, and others may have changed the word by then.
        if (worker.block().reads_flag(address, bytes, value, site)) worker.block().pause_behind_read(address);
        return;
    }
    // A thread that spins on an atomic waits for another thread, which must get its turn.
    constexpr unsigned turns = 64;
    if (++self.atomics_since_yield >= turns) {
        self.atomics_since_yield = 0;
        worker.block().yield();
    }
}

}  // namespace

unsigned size_of(AtomicType type) {
    switch (type) {
        case AtomicType::uint16:
        case AtomicType::float16:
        case AtomicType::bfloat16: return 2;
        case AtomicType::float16x2:
        case AtomicType::bfloat16x2:
        case AtomicType::int32:
        case AtomicType::uint32:
        case AtomicType::float32: return 4;
        default: return 8;
    }
}

void update_element(void* address, const void* operand, AtomicOperation operation, AtomicType type) {
    std::uint64_t before;
    update({address, operand, nullptr, &before, operation, type});
}

}  // namespace gf_emulator

using namespace gf_emulator;

extern "C" void gf_emulator_atomic(void* address, const void* operand, const void* compared, void* before,
                                   AtomicOperation operation, AtomicType type) {
    perform({address, operand, compared, before, operation, type}, false, __builtin_return_address(0));
}

extern "C" void gf_emulator_block_atomic(void* address, const void* operand, const void* compared, void* before,
                                         AtomicOperation operation, AtomicType type) {
    perform({address, operand, compared, before, operation, type}, true, __builtin_return_address(0));
}

extern "C" std::uint64_t gf_emulator_exchanged(std::uint64_t bits) {
    if (Checker* checker = Worker::current().checker()) checker->uses_exchanged();
    return bits;
}
