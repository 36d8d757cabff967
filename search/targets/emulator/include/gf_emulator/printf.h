// Device `printf`: nothing is printed, but the strings of `%s` are read as a device reads them.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

template <class Value>
__forceinline__ const char* string_of(const Value&) {
    return nullptr;
}
__forceinline__ const char* string_of(const char* value) { return value; }
__forceinline__ const char* string_of(char* value) { return value; }

__forceinline__ void read_string(const char* string) {
    volatile char last;  // keeps the loads
    if (string)
        while ((last = *string++) != 0) {}
}

__forceinline__ void read_strings(const char* format, const char* const* strings, unsigned count) {
    unsigned argument = 0;
    for (const char* at = format; *at; at++) {
        if (*at != '%' || *++at == '%') continue;
        for (; *at && !((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')); at++) argument += *at == '*';
        while (*at == 'l' || *at == 'h') at++;
        if (!*at) return;
        if (*at == 's' && argument < count) read_string(strings[argument]);
        argument++;
    }
}

// The result is the device's: the number of values, -1 without a format (CUDA C++ Programming Guide, "Formatted
// Output").
template <class... Values>
__forceinline__ int swallow_printf(const char* format, const Values&... values) {
    gf_emulator_printf();
    if (!format) return -1;
    if constexpr (sizeof...(Values) > 0) {
        const char* const strings[] = {string_of(values)...};
        read_strings(format, strings, sizeof...(Values));
    }
    return int(sizeof...(Values));
}

}  // namespace gf_emulator
// A name without arguments: a text's own variable of this name is then renamed like its uses.
#define printf gf_emulator_swallow_printf
template <class... Values>
__forceinline__ int printf(const char* format, const Values&... values) {
    return gf_emulator::swallow_printf(format, values...);
}
