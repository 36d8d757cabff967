#pragma once

namespace gf {

// Start copying `bytes` (4, 8 or 16) from global to shared memory; the first `valid_bytes` come from the
// source, the rest of the destination becomes zero, and with 0 the source is not read at all. Both addresses
// are aligned to `bytes`. The destination is undefined until the copying thread's async_copy_wait, and for
// other threads until a barrier after it. PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy:
// cp.async".
//! Undefined: an address that is not aligned to `bytes` (the emulator: `misaligned`), a destination outside of
//! shared memory, a source outside of global memory, and `valid_bytes` below 0 or above `bytes` (`device_fault`);
//! a source that is written, or a destination that is touched, before the wait (`race`, `in_flight_read`).
template <int bytes>
__device__ __forceinline__ void async_copy(void* shared_destination, const void* global_source,
                                           int valid_bytes = bytes) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async moves 4, 8 or 16 bytes");
    const unsigned destination = static_cast<unsigned>(__cvta_generic_to_shared(shared_destination));
    if constexpr (bytes == 16) {
        // .cg keeps the line out of L1, which it would only pass through.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_source),
                     "r"(valid_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(global_source),
                     "n"(bytes), "r"(valid_bytes)
                     : "memory");
    }
}

// The same, all bytes or none.
//! Undefined: the same.
template <int bytes>
__device__ __forceinline__ void async_copy(void* shared_destination, const void* global_source, bool valid) {
    async_copy<bytes>(shared_destination, global_source, valid ? bytes : 0);
}

// Close the group of copies that this thread started since the last commit. PTX ISA, "cp.async.commit_group".
//! Undefined: nothing; a group without copies counts as finished.
__device__ __forceinline__ void async_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most `groups_left_in_flight` of this thread's newest committed groups are unfinished. Copies
// that were never committed are not waited for. PTX ISA, "cp.async.wait_group / cp.async.wait_all".
//! Undefined: nothing by itself. Bytes of groups that are left in flight, and of copies that were not committed,
//! are undefined (the emulator: `in_flight_read`, `unwaited_copy`); other threads' copies are not waited for.
template <int groups_left_in_flight>
__device__ __forceinline__ void async_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left_in_flight) : "memory");
}

}  // namespace gf
