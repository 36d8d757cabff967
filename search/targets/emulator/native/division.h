// Integer division as a GPU does it, where the host's instruction faults.
#pragma once

namespace gf_emulator {

// Completes the division at which the signal's context stopped and goes on behind it. False where that is none that
// is known. A GPU's quotient by zero has all bits set, and its remainder is the dividend; the quotient of the lowest
// value by -1 is that value.
bool complete_division(void* context);

}  // namespace gf_emulator
