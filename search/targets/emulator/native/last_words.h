// Memory for the report of a thread that was stopped anywhere, even in the allocator with its locks held.
#pragma once

namespace gf_emulator {

// From now on this thread's `new` takes from a reserve, which is never given back.
void allocate_from_reserve();

}  // namespace gf_emulator
