// A copy that threads share: each moves its part by cp.async where the device could, else by loads and stores.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

template <int width>
__forceinline__ void copy_parts(unsigned rank, unsigned threads, char* destination, const char* source,
                                std::size_t bytes) {
    for (std::size_t at = std::size_t(rank) * width; at < bytes; at += std::size_t(threads) * width)
        gf_emulator_async_copy(destination + at, source + at, width, width);
}

__forceinline__ void group_copy(unsigned rank, unsigned threads, void* destination, const void* source,
                                std::size_t bytes) {
    char* const to = static_cast<char*>(destination);
    const char* const from = static_cast<const char*>(source);
    const std::size_t places = std::size_t(to) | std::size_t(from) | bytes;
    if (places % 4 == 0 && gf_emulator_is_shared(to) && !gf_emulator_is_shared(from)) {
        if (places % 16 == 0) return copy_parts<16>(rank, threads, to, from, bytes);
        if (places % 8 == 0) return copy_parts<8>(rank, threads, to, from, bytes);
        return copy_parts<4>(rank, threads, to, from, bytes);
    }
    for (std::size_t at = rank; at < bytes; at += threads) to[at] = from[at];
}

}  // namespace gf_emulator
