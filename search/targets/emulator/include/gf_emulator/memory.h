// memcpy and its kin by their names: see copies.h. The last header of the prelude: the names are macros from here on.
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
