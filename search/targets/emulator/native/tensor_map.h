// A tensor map as the emulator encodes it: the value of a kernel's argument `gf::TensorMap`, whose 128 bytes a GPU
// fills in another, undocumented way.
#pragma once
#include "gf_emulator/abi.h"

namespace gf_emulator {

constexpr unsigned tensor_map_tag = 0x544d4150;  // "TMAP": bytes without it are no map
constexpr unsigned copied_tensor_map_tag = 0x434d4150;  // of a parameter without __grid_constant__
constexpr unsigned most_tensor_map_axes = 5;

// Axes are innermost first; the first has a stride of one element. Unused axes have a size and box of 1.
struct alignas(64) EmulatedTensorMap {
    unsigned char* base;
    unsigned long long sizes[5];          // elements
    unsigned long long strides_bytes[4];  // of axes 1 to 4
    unsigned int box[5];                  // elements
    unsigned int rank;
    unsigned int element_bytes;
    unsigned int swizzle_bytes;  // 0: none
    unsigned int fill_nan;       // elements outside read as NaN; else as zeros
    int element_type;            // an AtomicType; -1: none that atomics know
    unsigned int tag;            // tensor_map_tag
};
static_assert(sizeof(EmulatedTensorMap) <= 128, "a kernel takes a map as 128 bytes");

}  // namespace gf_emulator
