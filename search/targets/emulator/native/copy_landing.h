// The end of a thread's cp.async: the bytes come into shared memory.
#pragma once
#include <cstring>

#include "checker.h"
#include "fiber.h"

namespace gf_emulator {

inline void land_copy(const AsyncCopy& copy, Checker* checker) {
    if (checker) checker->copy_landed(copy);
    if (copy.valid_bytes) std::memcpy(copy.destination, copy.source, std::size_t(copy.valid_bytes));
    std::memset(copy.destination + copy.valid_bytes, 0, std::size_t(copy.bytes - copy.valid_bytes));
}

// The copies that the fiber's arrival of this number at an mbarrier waits for. The fiber counts as the running one.
inline void land_copies_of_arrival(Fiber& fiber, unsigned number, Checker* checker) {
    std::size_t left = 0;
    for (const AsyncCopy& copy : fiber.copies)
        if (copy.arrival && copy.arrival <= number)
            land_copy(copy, checker);
        else
            fiber.copies[left++] = copy;
    fiber.copies.resize(left);
}

}  // namespace gf_emulator
