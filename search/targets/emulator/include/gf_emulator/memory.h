// memcpy and its kin. Compilers expand them behind the hooks' back, so that a watched build calls the hooks itself; a
// constant size that is one load and one store is left to the compiler, which hooks those. The last header of the
// prelude: the names are macros from here on.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

// The device's heap. `new` and `delete` are linked to it.
#define malloc gf_emulator_device_malloc
#define free gf_emulator_device_free
namespace std {
using ::gf_emulator_device_free;
using ::gf_emulator_device_malloc;
}  // namespace std

#if defined(GF_EMULATOR_CHECKED) || defined(GF_EMULATOR_COUNTED)
extern "C" {
void* __tsan_memcpy(void* destination, const void* source, std::size_t bytes);
void* __tsan_memmove(void* destination, const void* source, std::size_t bytes);
void* __tsan_memset(void* destination, int value, std::size_t bytes);
int __tsan_memcmp(const void* left, const void* right, std::size_t bytes);
}

#define GF_EMULATOR_IS_ONE_ACCESS(bytes) \
    (__builtin_constant_p(bytes) && ((bytes) == 1 || (bytes) == 2 || (bytes) == 4 || (bytes) == 8 || (bytes) == 16))

__forceinline__ void* gf_emulator_memcpy(void* destination, const void* source, std::size_t bytes) {
    if (GF_EMULATOR_IS_ONE_ACCESS(bytes)) return __builtin_memcpy(destination, source, bytes);
    return __tsan_memcpy(destination, source, bytes);
}
__forceinline__ void* gf_emulator_memmove(void* destination, const void* source, std::size_t bytes) {
    if (GF_EMULATOR_IS_ONE_ACCESS(bytes)) return __builtin_memcpy(destination, source, bytes);
    return __tsan_memmove(destination, source, bytes);
}
__forceinline__ void* gf_emulator_memset(void* destination, int value, std::size_t bytes) {
    return __tsan_memset(destination, value, bytes);
}
__forceinline__ int gf_emulator_memcmp(const void* left, const void* right, std::size_t bytes) {
    return __tsan_memcmp(left, right, bytes);
}
namespace std {
using ::gf_emulator_memcmp;
using ::gf_emulator_memcpy;
using ::gf_emulator_memmove;
using ::gf_emulator_memset;
}  // namespace std

#define memcpy gf_emulator_memcpy
#define memmove gf_emulator_memmove
#define memset gf_emulator_memset
#define memcmp gf_emulator_memcmp
#define __builtin_memcpy gf_emulator_memcpy
#define __builtin_memmove gf_emulator_memmove
#define __builtin_memset gf_emulator_memset
#define __builtin_memcmp gf_emulator_memcmp
#endif
