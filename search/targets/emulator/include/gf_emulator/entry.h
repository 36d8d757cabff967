// How the runtime calls a kernel: arguments[i] points at the i-th argument's value, as cuLaunchKernel takes
// them.
#pragma once
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

// The arguments lie in the runtime's own memory, which no check knows.
template <class... Parameters, std::size_t... index>
__attribute__((no_sanitize("thread"))) __forceinline__ void invoke(void (*kernel)(Parameters...),
                                                                   void** arguments,
                                                                   std::index_sequence<index...>) {
    kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[index])...);
}

template <class... Parameters>
__attribute__((no_sanitize("thread"))) __forceinline__ void invoke(void (*kernel)(Parameters...),
                                                                   void** arguments) {
    // Qualified: a text could have an `invoke` of its own beside the type of a parameter.
    gf_emulator::invoke(kernel, arguments, std::index_sequence_for<Parameters...>());
}

}  // namespace gf_emulator

// A GPU launches the function whose symbol is `name`. The name alone may find another one, which a text brings in from
// one of its namespaces; it then conflicts with this declaration, or is passed over by ::name.
#define GF_EMULATOR_ENTRY(name)                                                                                    \
    extern "C" decltype(name) name;                                                                                \
    GF_EMULATOR_ALIAS(name)

#define GF_EMULATOR_ALIAS(name)                                                                                    \
    extern "C" __attribute__((visibility("default"), externally_visible, no_sanitize("thread"))) void gf_entry_##name( \
        void** arguments) {                                                                                        \
        gf_emulator::invoke(&::name, arguments);                                                                   \
    }
