// Copies of memory that a watched build's hooks see. Compilers expand the builtins behind the hooks' back. This comes
// before the host's own headers, whose algorithms copy and compare by these builtins as well. A plain build has the same
// functions, so that no text can tell one build from the other by their types.
#pragma once

#if defined(GF_EMULATOR_CHECKED) || defined(GF_EMULATOR_COUNTED)
extern "C" {
void* __tsan_memcpy(void* destination, const void* source, decltype(sizeof 0) bytes);
void* __tsan_memmove(void* destination, const void* source, decltype(sizeof 0) bytes);
void* __tsan_memset(void* destination, int value, decltype(sizeof 0) bytes);
int __tsan_memcmp(const void* left, const void* right, decltype(sizeof 0) bytes);
}
#define GF_EMULATOR_WATCHED(name) __tsan_##name
// A constant size that is one load and one store is left to the compiler, which hooks those.
#define GF_EMULATOR_IS_ONE_ACCESS(bytes) \
    (__builtin_constant_p(bytes) && ((bytes) == 1 || (bytes) == 2 || (bytes) == 4 || (bytes) == 8 || (bytes) == 16))
#else
#define GF_EMULATOR_WATCHED(name) __builtin_##name
#define GF_EMULATOR_IS_ONE_ACCESS(bytes) false
#endif
#define GF_EMULATOR_COPY inline __attribute__((always_inline))

GF_EMULATOR_COPY void* gf_emulator_memcpy(void* destination, const void* source, decltype(sizeof 0) bytes) {
    if (GF_EMULATOR_IS_ONE_ACCESS(bytes)) return __builtin_memcpy(destination, source, bytes);
    return GF_EMULATOR_WATCHED(memcpy)(destination, source, bytes);
}
GF_EMULATOR_COPY void* gf_emulator_memmove(void* destination, const void* source, decltype(sizeof 0) bytes) {
    if (GF_EMULATOR_IS_ONE_ACCESS(bytes)) return __builtin_memcpy(destination, source, bytes);
    return GF_EMULATOR_WATCHED(memmove)(destination, source, bytes);
}
GF_EMULATOR_COPY void* gf_emulator_memset(void* destination, int value, decltype(sizeof 0) bytes) {
    return GF_EMULATOR_WATCHED(memset)(destination, value, bytes);
}
GF_EMULATOR_COPY int gf_emulator_memcmp(const void* left, const void* right, decltype(sizeof 0) bytes) {
    return GF_EMULATOR_WATCHED(memcmp)(left, right, bytes);
}

#define __builtin_memcpy gf_emulator_memcpy
#define __builtin_memmove gf_emulator_memmove
#define __builtin_memset gf_emulator_memset
#define __builtin_memcmp gf_emulator_memcmp
