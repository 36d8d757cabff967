#include "coordinates.h"

#include <cstdint>

namespace gf_emulator {

__thread uint3 running_thread_index, running_block_index, running_block_size, running_grid_size;
__thread int warp_size = 32;

namespace {

template <class Object>
bool contains(const Object& object, const void* address, unsigned bytes) {
    const std::uintptr_t offset = std::uintptr_t(address) - std::uintptr_t(&object);
    return offset < sizeof object && bytes <= sizeof object - offset;
}

}  // namespace

bool is_coordinate(const void* address, unsigned bytes) {
    return contains(running_block_size, address, bytes) || contains(running_grid_size, address, bytes) ||
           contains(running_thread_index, address, bytes) || contains(running_block_index, address, bytes) ||
           contains(warp_size, address, bytes);
}

}  // namespace gf_emulator
