// One update of memory by an atomic operation, without its checks.
#pragma once
#include "gf_emulator/abi.h"

namespace gf_emulator {

unsigned size_of(AtomicType type);
// Of the element at `address` by the one at `operand`.
void update_element(void* address, const void* operand, AtomicOperation operation, AtomicType type);

}  // namespace gf_emulator
