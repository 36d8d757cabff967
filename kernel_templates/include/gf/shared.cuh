#pragma once

// Declares `Type* name`, the block's dynamic shared memory, 128-byte aligned. Its size is the launch's; its
// content is undefined until written. Two uses in one kernel name the same bytes.
//! Undefined: bytes beyond the launch's size (the emulator: `out_of_bounds`), bytes read before they were written
//! (`uninitialised`), and an alignment of more than 128 bytes.
#define GF_DYNAMIC_SHARED(Type, name)                                         \
    extern __shared__ __align__(128) unsigned char gf_dynamic_shared_bytes[]; \
    Type* name = reinterpret_cast<Type*>(gf_dynamic_shared_bytes)
