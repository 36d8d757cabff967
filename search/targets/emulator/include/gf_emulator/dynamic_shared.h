// `extern __shared__ T name[]` among namespaces: an object that stands for the block's dynamic shared memory.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

template <class T>
struct DynamicShared {
    __forceinline__ operator T*() const { return static_cast<T*>(gf_emulator_dynamic_shared()); }
    template <class U> __forceinline__ explicit operator U*() const {
        return static_cast<U*>(gf_emulator_dynamic_shared());
    }
};

}  // namespace gf_emulator
