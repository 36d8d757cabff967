// What stands for a CUtensorMap in an emulated launch: its numbers, in the 128 bytes that the kernel takes by value.
#pragma once
#include <cstddef>

namespace gf_emulator {

struct alignas(64) EmulatedTensorMap {
    unsigned char* base;
    unsigned long long sizes[4];          // in elements, the innermost axis first
    unsigned long long strides_bytes[3];  // of the axes 1 to 3
    unsigned int box[4];                  // in elements
    unsigned int rank;                    // 1 to 4
    unsigned int element_bytes;
    unsigned int swizzle_bytes;  // 0, 32, 64 or 128
    unsigned int fill_nan;       // elements outside the tensor: 0 zeros, 1 NaN
    unsigned int tag;            // tensor_map_tag
};
static_assert(sizeof(EmulatedTensorMap) <= 128, "a kernel takes 128 bytes");

constexpr unsigned int tensor_map_tag = 0x544d4150;

}  // namespace gf_emulator
