// The operations that cooperative groups' reductions and scans name.
#pragma once
#include <limits>

#include "gf_emulator/qualifiers.h"

namespace cooperative_groups {

#define GF_EMULATOR_OPERATION(name, value)                                              \
    template <class T>                                                                  \
    struct name {                                                                       \
        __forceinline__ T operator()(const T& a, const T& b) const { return value; }    \
    };
GF_EMULATOR_OPERATION(plus, a + b)
GF_EMULATOR_OPERATION(less, b < a ? b : a)
GF_EMULATOR_OPERATION(greater, a < b ? b : a)
GF_EMULATOR_OPERATION(bit_and, a & b)
GF_EMULATOR_OPERATION(bit_or, a | b)
GF_EMULATOR_OPERATION(bit_xor, a ^ b)
#undef GF_EMULATOR_OPERATION

namespace details {

template <class T, class Operation>
__forceinline__ T neutral(const Operation&) {
    using Plain = std::decay_t<Operation>;
    if constexpr (std::is_same_v<Plain, less<T>>)
        return ::std::numeric_limits<T>::max();
    else if constexpr (std::is_same_v<Plain, greater<T>>)
        return ::std::numeric_limits<T>::lowest();
    else if constexpr (std::is_same_v<Plain, bit_and<T>>)
        return T(~T());
    else
        return T();
}

}  // namespace details
}  // namespace cooperative_groups

namespace gf_emulator {

// The value before.
template <class Atomic, class T, class Operation>
__forceinline__ T update_atomic(Atomic& atomic, T value, const Operation& operation) {
    using Plain = std::decay_t<Operation>;
    if constexpr (std::is_same_v<Plain, cooperative_groups::plus<T>>) {
        return atomic.fetch_add(value);
    } else {
        auto before = atomic.load();
        while (!atomic.compare_exchange_weak(before, operation(before, value))) {
        }
        return before;
    }
}

}  // namespace gf_emulator
